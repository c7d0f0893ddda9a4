package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// updateAll creates what a Website owns, or updates what differs in the cache. It sets only the fields that it asks
// for, so that the defaults of the API server are no difference.
func updateAll(ctx context.Context, c client.Client, site *Website) error {
	labels := labelsOf(site)
	here := metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}
	ensure := func(object client.Object, mutate func()) error {
		_, err := controllerutil.CreateOrUpdate(ctx, c, object, func() error {
			object.SetLabels(labels)
			mutate()
			return controllerutil.SetControllerReference(site, object, c.Scheme())
		})
		return err
	}
	pages := &corev1.ConfigMap{ObjectMeta: here}
	if err := ensure(pages, func() { pages.Data = site.Spec.Pages }); err != nil {
		return err
	}
	deployment := &appsv1.Deployment{ObjectMeta: here}
	if err := ensure(deployment, func() {
		spec := &deployment.Spec
		spec.Replicas = &site.Spec.Replicas
		spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		spec.Template.Labels, spec.Template.Annotations = labels, pagesHash(site)
		pod := &spec.Template.Spec
		if len(pod.Containers) != 1 {
			pod.Containers = make([]corev1.Container, 1)
		}
		container := &pod.Containers[0]
		container.Name, container.Image = "web", site.Spec.Image
		if len(container.Ports) != 1 {
			container.Ports = make([]corev1.ContainerPort, 1)
		}
		container.Ports[0].ContainerPort = 8080
		container.VolumeMounts = []corev1.VolumeMount{{Name: "pages", MountPath: "/srv"}}
		if len(pod.Volumes) != 1 || pod.Volumes[0].ConfigMap == nil {
			pod.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
		}
		pod.Volumes[0].Name, pod.Volumes[0].ConfigMap.Name = "pages", site.Name
	}); err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: here}
	if err := ensure(service, func() {
		service.Spec.Selector = labels
		if len(service.Spec.Ports) != 1 {
			service.Spec.Ports = make([]corev1.ServicePort, 1)
		}
		port := &service.Spec.Ports[0]
		port.Name, port.Port, port.TargetPort = "http", 80, intstr.FromInt32(8080)
	}); err != nil {
		return err
	}
	if site.Spec.Host == "" {
		return nil
	}
	ingress := &networkingv1.Ingress{ObjectMeta: here}
	return ensure(ingress, func() {
		prefix := networkingv1.PathTypePrefix
		port := networkingv1.ServiceBackendPort{Name: "http"}
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: site.Name, Port: port}}
		paths := []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}}
		value := networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}
		ingress.Spec.Rules = []networkingv1.IngressRule{{Host: site.Spec.Host, IngressRuleValue: value}}
	})
}
