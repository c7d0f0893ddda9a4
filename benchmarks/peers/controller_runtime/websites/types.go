package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// WebsiteSpec is what a Website should be.
type WebsiteSpec struct {
	Image string `json:"image"`
	// +kubebuilder:default=1
	Replicas int32             `json:"replicas"`
	Pages    map[string]string `json:"pages,omitempty"`
	Host     string            `json:"host,omitempty"`
}

// WebsiteStatus is what has become of it.
type WebsiteStatus struct {
	Ready int32 `json:"ready,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Website is a website of static pages.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebsiteSpec   `json:"spec,omitempty"`
	Status            WebsiteStatus `json:"status,omitempty"`
}

// WebsiteList is a list of them.
//
// +kubebuilder:object:root=true
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}

var builder = &scheme.Builder{GroupVersion: schema.GroupVersion{Group: "example.org", Version: "v1"}}

func init() {
	builder.Register(&Website{}, &WebsiteList{})
}
