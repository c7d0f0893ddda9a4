// The operator of benchmarks/kube_peers on controller-runtime: a Website becomes a Deployment, a Service, a ConfigMap
// and, if it has a host, an Ingress. With -update it compares and updates them instead of applying them each time.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// +kubebuilder:rbac:groups=example.org,resources=websites,verbs=get;list;watch
// +kubebuilder:rbac:groups=example.org,resources=websites/status,verbs=update
// +kubebuilder:rbac:groups=example.org,resources=websites/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;update;patch;delete

// Reconciler keeps what a Website owns as it asks.
type Reconciler struct {
	client.Client
	ensure func(context.Context, client.Client, *Website) error
}

// Reconcile brings one Website to what it asks.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &Website{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if err := r.ensure(ctx, r.Client, site); err != nil {
		return ctrl.Result{}, err
	}
	if site.Spec.Host == "" {
		if err := r.deleteIngress(ctx, site); err != nil {
			return ctrl.Result{}, err
		}
	}
	deployment := &appsv1.Deployment{}
	if err := r.Get(ctx, request.NamespacedName, deployment); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	before := site.Status.DeepCopy()
	site.Status.Ready = deployment.Status.ReadyReplicas
	ready := metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionFalse,
		Reason:             "Progressing",
		Message:            fmt.Sprintf("%d of %d replicas are ready", site.Status.Ready, site.Spec.Replicas),
		ObservedGeneration: site.Generation,
	}
	if site.Status.Ready >= site.Spec.Replicas {
		ready.Status, ready.Reason = metav1.ConditionTrue, "Available"
	}
	meta.SetStatusCondition(&site.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before, &site.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, site)
}

func (r *Reconciler) deleteIngress(ctx context.Context, site *Website) error {
	ingress := &networkingv1.Ingress{}
	if err := r.Get(ctx, client.ObjectKeyFromObject(site), ingress); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(ingress, site) {
		return nil
	}
	return client.IgnoreNotFound(r.Delete(ctx, ingress))
}

func labelsOf(site *Website) map[string]string {
	return map[string]string{"example.org/website": site.Name}
}

// pagesHash makes other Pods of other pages.
func pagesHash(site *Website) map[string]string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(site.Spec.Pages)) {
		fmt.Fprintf(hash, "%q=%q,", name, site.Spec.Pages[name])
	}
	return map[string]string{"example.org/pages": hex.EncodeToString(hash.Sum(nil))[:16]}
}

func run() error {
	metrics := flag.String("metrics", "0", "the address of the metrics")
	update := flag.Bool("update", false, "compare and update instead of applying")
	ownWrites := flag.Bool("own-writes", false, "let reads of the cache wait for the program's own writes")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, builder.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                        scheme,
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ownWrites}},
		Metrics:                       metricsserver.Options{BindAddress: *metrics},
		LeaderElection:                true,
		LeaderElectionID:              "websites.example.org",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	ensure := applyAll
	if *update {
		ensure = updateAll
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Website{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&networkingv1.Ingress{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(&Reconciler{Client: manager.GetClient(), ensure: ensure})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
