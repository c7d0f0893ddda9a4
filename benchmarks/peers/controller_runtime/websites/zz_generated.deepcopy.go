package main

// The methods that controller-gen generates for the types of types.go. They do not count as lines of the program.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the Website.
func (in *Website) DeepCopyInto(out *Website) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Pages != nil {
		out.Spec.Pages = make(map[string]string, len(in.Spec.Pages))
		for key, value := range in.Spec.Pages {
			out.Spec.Pages[key] = value
		}
	}
	in.Status.DeepCopyInto(&out.Status)
}

// DeepCopyInto copies the status.
func (in *WebsiteStatus) DeepCopyInto(out *WebsiteStatus) {
	*out = *in
	if in.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(in.Conditions))
		for at := range in.Conditions {
			in.Conditions[at].DeepCopyInto(&out.Conditions[at])
		}
	}
}

// DeepCopy returns a copy of the status.
func (in *WebsiteStatus) DeepCopy() *WebsiteStatus {
	out := new(WebsiteStatus)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the Website.
func (in *Website) DeepCopyObject() runtime.Object {
	out := new(Website)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the list.
func (in *WebsiteList) DeepCopyObject() runtime.Object {
	out := &WebsiteList{TypeMeta: in.TypeMeta, Items: make([]Website, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for at := range in.Items {
		in.Items[at].DeepCopyInto(&out.Items[at])
	}
	return out
}
