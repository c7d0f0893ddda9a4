package main

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A working has the caches of a reconcile that does real work.
type working struct {
	notes                          *store
	cachedNotes, settings, outputs cache.SharedIndexInformer
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func named(name string, number int, owner string) *corev1.ConfigMap {
	made := note(number)
	made.Name, made.UID = name, types.UID("uid-"+name)
	if owner != "" {
		made.OwnerReferences = []metav1.OwnerReference{{Name: owner, UID: types.UID("uid-" + owner)}}
	}
	return made
}

// read returns a copy from a cache, as a client of controller-runtime does.
func read(from cache.SharedIndexInformer, name string) *corev1.ConfigMap {
	found, exists, err := from.GetIndexer().GetByKey("default/" + name)
	must(err)
	if !exists {
		must(fmt.Errorf("%s is not cached", name))
	}
	return found.(*corev1.ConfigMap).DeepCopy()
}

// apply reads an output, gives it what it should have, and writes it if that differs, like controllerutil.CreateOrUpdate.
func (w *working) apply(name string, wanted *corev1.ConfigMap) {
	existing := read(w.outputs, name)
	before := existing.DeepCopy()
	existing.Data, existing.Labels, existing.OwnerReferences = wanted.Data, wanted.Labels, wanted.OwnerReferences
	if !equality.Semantic.DeepEqual(before, existing) {
		must(fmt.Errorf("%s differs", name))
	}
}

// reconcile makes five reads, two applies that change nothing, and one write of a status.
func (w *working) reconcile(name string) bool {
	found := read(w.cachedNotes, name)
	read(w.settings, found.Labels["group"])
	owned, err := w.outputs.GetIndexer().ByIndex("owner", "uid-"+name)
	must(err)
	for _, each := range owned {
		each.(*corev1.ConfigMap).DeepCopy()
	}
	for _, which := range []string{"a", "b"} {
		output := name + "-" + which
		read(w.outputs, output)
		wanted := &corev1.ConfigMap{Data: map[string]string{"text": found.Data["text"]}}
		wanted.Labels = map[string]string{"group": found.Labels["group"]}
		wanted.OwnerReferences = []metav1.OwnerReference{{Name: name, UID: types.UID("uid-" + name)}}
		w.apply(output, wanted)
	}
	if found.Annotations["status"] == "ready" {
		return false
	}
	found.Annotations = map[string]string{"status": "ready"}
	w.notes.put(found)
	return true
}

// work measures until every object has been reconciled with real work. No status causes another reconcile: the predicate
// passes only changes of the content, like GenerationChangedPredicate.
func work(ctx context.Context, count, _ int) result {
	notes, settings, outputs := newStore(), newStore(), newStore()
	for number := range groups {
		settings.put(named(fmt.Sprintf("group-%d", number), number, ""))
	}
	for number := range count {
		made := note(number)
		made.UID = types.UID("uid-" + made.Name)
		notes.put(made)
		outputs.put(named(made.Name+"-a", number, made.Name))
		outputs.put(named(made.Name+"-b", number, made.Name))
	}
	byOwner := cache.Indexers{"owner": func(object any) ([]string, error) {
		var owners []string
		for _, each := range object.(*corev1.ConfigMap).OwnerReferences {
			owners = append(owners, string(each.UID))
		}
		return owners, nil
	}}
	byGroup := cache.Indexers{"group": func(object any) ([]string, error) {
		return []string{object.(*corev1.ConfigMap).Labels["group"]}, nil
	}}
	w := &working{
		notes,
		cache.NewSharedIndexInformer(notes.source(), &corev1.ConfigMap{}, 0, byGroup),
		cache.NewSharedIndexInformer(settings.source(), &corev1.ConfigMap{}, 0, cache.Indexers{}),
		cache.NewSharedIndexInformer(outputs.source(), &corev1.ConfigMap{}, 0, byOwner),
	}
	done := make(chan struct{})
	var written atomic.Int64
	skip := true
	made, err := controller.NewTypedUnmanaged("notes", controller.TypedOptions[reconcile.Request]{
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      &skip,
		UsePriorityQueue:        priority,
		Reconciler: reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			if w.reconcile(request.Name) && written.Add(1) == int64(count) {
				close(done)
			}
			return reconcile.Result{}, nil
		}),
	})
	must(err)
	content := predicate.Funcs{UpdateFunc: func(changed event.UpdateEvent) bool {
		before, after := changed.ObjectOld.(*corev1.ConfigMap), changed.ObjectNew.(*corev1.ConfigMap)
		return !equality.Semantic.DeepEqual(before.Data, after.Data)
	}}
	toOwner := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, output client.Object) []reconcile.Request {
		return []reconcile.Request{request(output.GetOwnerReferences()[0].Name)}
	})
	toGroup := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, setting client.Object) []reconcile.Request {
		found, err := w.cachedNotes.GetIndexer().ByIndex("group", setting.GetName())
		must(err)
		requests := make([]reconcile.Request, 0, len(found))
		for _, each := range found {
			requests = append(requests, request(each.(*corev1.ConfigMap).Name))
		}
		return requests
	})
	clock := begin()
	for _, each := range []syncing{
		{&source.Informer{Informer: w.cachedNotes, Handler: &handler.EnqueueRequestForObject{},
			Predicates: []predicate.Predicate{content}}, w.cachedNotes},
		{&source.Informer{Informer: w.settings, Handler: toGroup}, w.settings},
		{&source.Informer{Informer: w.outputs, Handler: toOwner}, w.outputs},
	} {
		must(made.Watch(each))
		go each.informer.RunWithContext(ctx)
	}
	go func() { must(made.Start(ctx)) }()
	<-done
	return clock.end()
}
