package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	groups = 10
	text   = 118
)

// A store keeps objects in memory and delivers each change to its watchers. It takes the place of an API server.
type store struct {
	mutex    sync.Mutex
	version  int64
	objects  map[string]*corev1.ConfigMap
	watchers map[*watching]struct{}
}

// A watching is one watch of the store.
type watching struct {
	of      *store
	results chan watch.Event
	ended   chan struct{}
	once    sync.Once
}

func newStore() *store {
	return &store{objects: map[string]*corev1.ConfigMap{}, watchers: map[*watching]struct{}{}}
}

// note returns an object with one label and a text like the payload of Headway's own benchmarks.
func note(number int) *corev1.ConfigMap {
	padded := fmt.Sprintf("%0*d", text, number)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      fmt.Sprintf("note-%06d", number),
			UID:       types.UID(fmt.Sprintf("01HZ%022d", number)),
			Labels:    map[string]string{"group": fmt.Sprintf("group-%d", number%groups)},
		},
		Data: map[string]string{"text": padded},
	}
}

// put stores an object, which must not be changed afterwards.
func (s *store) put(object *corev1.ConfigMap) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.version++
	object.ResourceVersion = strconv.FormatInt(s.version, 10)
	kind := watch.Modified
	if _, known := s.objects[object.Name]; !known {
		kind = watch.Added
	}
	s.objects[object.Name] = object
	for each := range s.watchers {
		each.results <- watch.Event{Type: kind, Object: object}
	}
}

// get returns a copy of an object, or nil.
func (s *store) get(name string) *corev1.ConfigMap {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.objects[name]
	if found == nil {
		return nil
	}
	return found.DeepCopy()
}

func (s *store) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := &corev1.ConfigMapList{Items: make([]corev1.ConfigMap, 0, len(s.objects))}
	list.ResourceVersion = strconv.FormatInt(s.version, 10)
	for _, each := range s.objects {
		list.Items = append(list.Items, *each)
	}
	return list, nil
}

func (s *store) watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	made := &watching{of: s, results: make(chan watch.Event, 1000), ended: make(chan struct{})}
	s.watchers[made] = struct{}{}
	return made, nil
}

func (s *store) source() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, unsupported{},
	)
}

// unsupported tells the reflector to list first: the store sends no bookmarks.
type unsupported struct{}

func (unsupported) IsWatchListSemanticsUnSupported() bool { return true }

func (w *watching) Stop() {
	w.once.Do(func() { close(w.ended) })
}

func (w *watching) ResultChan() <-chan watch.Event { return w.results }
