package main

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyAll applies what a Website owns by server-side apply.
func applyAll(ctx context.Context, c client.Client, site *Website) error {
	labels := labelsOf(site)
	owner := metav1ac.OwnerReference().
		WithAPIVersion(builder.GroupVersion.String()).
		WithKind("Website").
		WithName(site.Name).
		WithUID(site.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
	container := corev1ac.Container().
		WithName("web").
		WithImage(site.Spec.Image).
		WithPorts(corev1ac.ContainerPort().WithContainerPort(8080)).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("pages").WithMountPath("/srv"))
	pages := corev1ac.Volume().
		WithName("pages").
		WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(site.Name))
	objects := []runtime.ApplyConfiguration{
		corev1ac.ConfigMap(site.Name, site.Namespace).
			WithLabels(labels).
			WithOwnerReferences(owner).
			WithData(site.Spec.Pages),
		appsv1ac.Deployment(site.Name, site.Namespace).
			WithLabels(labels).
			WithOwnerReferences(owner).
			WithSpec(appsv1ac.DeploymentSpec().
				WithReplicas(site.Spec.Replicas).
				WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
				WithTemplate(corev1ac.PodTemplateSpec().
					WithLabels(labels).
					WithAnnotations(pagesHash(site)).
					WithSpec(corev1ac.PodSpec().WithContainers(container).WithVolumes(pages)))),
		corev1ac.Service(site.Name, site.Namespace).
			WithLabels(labels).
			WithOwnerReferences(owner).
			WithSpec(corev1ac.ServiceSpec().
				WithSelector(labels).
				WithPorts(corev1ac.ServicePort().
					WithName("http").
					WithPort(80).
					WithTargetPort(intstr.FromInt32(8080)))),
	}
	if site.Spec.Host != "" {
		backend := networkingv1ac.IngressBackend().
			WithService(networkingv1ac.IngressServiceBackend().
				WithName(site.Name).
				WithPort(networkingv1ac.ServiceBackendPort().WithName("http")))
		path := networkingv1ac.HTTPIngressPath().
			WithPath("/").
			WithPathType(networkingv1.PathTypePrefix).
			WithBackend(backend)
		objects = append(objects, networkingv1ac.Ingress(site.Name, site.Namespace).
			WithLabels(labels).
			WithOwnerReferences(owner).
			WithSpec(networkingv1ac.IngressSpec().
				WithRules(networkingv1ac.IngressRule().
					WithHost(site.Spec.Host).
					WithHTTP(networkingv1ac.HTTPIngressRuleValue().WithPaths(path)))))
	}
	for _, each := range objects {
		if err := c.Apply(ctx, each, client.FieldOwner("websites"), client.ForceOwnership); err != nil {
			return err
		}
	}
	return nil
}
