// Command controller_runtime measures a controller of controller-runtime on a store in memory, without an API server.
//
// Usage: controller_runtime [-priority-queue=false] MODE OBJECTS (INDEXES|WRITERS|SILENCE)
//
// It prints one JSON object: the processor time and the wall time of the measured part in microseconds. `latency` adds
// the median and the processor time of a write, and takes the milliseconds from a reconcile until the next write. `peak`
// adds the bytes that the process holds at its peak beyond its start, and `live` the bytes of the objects on its heap
// after a collection, beyond those before.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	workers = 8
	samples = 2_000
)

var priority = flag.Bool("priority-queue", true, "take controller-runtime's priority queue, as it does by default")

type result struct {
	CPU    float64 `json:"cpu_us"`
	Wall   float64 `json:"wall_us"`
	Median float64 `json:"median_us,omitempty"`
	Each   float64 `json:"each_us,omitempty"`
	Bytes  float64 `json:"bytes"`
}

// A clock measures one part of the program.
type clock struct {
	wall time.Time
	cpu  float64
}

func processor() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	micros := func(each syscall.Timeval) float64 { return float64(each.Sec)*1e6 + float64(each.Usec) }
	return micros(used.Utime) + micros(used.Stime)
}

func begin() clock { return clock{time.Now(), processor()} }

func (c clock) end() result {
	return result{CPU: processor() - c.cpu, Wall: float64(time.Since(c.wall).Microseconds())}
}

// A running is a controller that is started, with its informer.
type running struct {
	informer cache.SharedIndexInformer
}

// A syncing source lets no worker begin before the informer has everything, like the sources of a manager's cache.
type syncing struct {
	source.Source
	informer cache.SharedIndexInformer
}

// WaitForSync returns when the informer has everything.
func (s syncing) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func start(ctx context.Context, from *store, indexes int, reconciled func(name string, got *corev1.ConfigMap)) running {
	by := cache.Indexers{}
	for number := range indexes {
		by[strconv.Itoa(number)] = func(object any) ([]string, error) {
			return []string{object.(*corev1.ConfigMap).Labels["group"]}, nil
		}
	}
	informer := cache.NewSharedIndexInformer(from.source(), &corev1.ConfigMap{}, 0, by)
	skip := true
	made, err := controller.NewTypedUnmanaged("notes", controller.TypedOptions[reconcile.Request]{
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      &skip,
		UsePriorityQueue:        priority,
		Reconciler: reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			found, exists, err := informer.GetIndexer().GetByKey(request.String())
			if err != nil || !exists {
				return reconcile.Result{}, err
			}
			// A client of controller-runtime copies what it reads from the cache.
			reconciled(request.Name, found.(*corev1.ConfigMap).DeepCopy())
			return reconcile.Result{}, nil
		}),
	})
	must(err)
	events := &source.Informer{Informer: informer, Handler: &handler.EnqueueRequestForObject{}}
	must(made.Watch(syncing{events, informer}))
	go informer.RunWithContext(ctx)
	go func() { must(made.Start(ctx)) }()
	return running{informer}
}

func fill(count int) *store {
	made := newStore()
	for number := range count {
		made.put(note(number))
	}
	return made
}

// prime measures until the first reconcile begins.
func prime(ctx context.Context, count, indexes int) result {
	from := fill(count)
	first := make(chan struct{})
	var once sync.Once
	clock := begin()
	start(ctx, from, indexes, func(string, *corev1.ConfigMap) { once.Do(func() { close(first) }) })
	<-first
	return clock.end()
}

// first measures until every object has been reconciled.
func first(ctx context.Context, count, indexes int) result {
	from := fill(count)
	done := make(chan struct{})
	var seen atomic.Int64
	clock := begin()
	start(ctx, from, indexes, func(string, *corev1.ConfigMap) {
		if seen.Add(1) == int64(count) {
			close(done)
		}
	})
	<-done
	return clock.end()
}

// throughput measures creations by a number of writers, each with a reconcile that writes a status.
func throughput(ctx context.Context, count, writers int) result {
	from := newStore()
	done := make(chan struct{})
	var written atomic.Int64
	run := start(ctx, from, 0, func(name string, got *corev1.ConfigMap) {
		if got.Annotations["status"] != "" {
			return
		}
		got.Annotations = map[string]string{"status": "ready"}
		from.put(got)
		if written.Add(1) == int64(count) {
			close(done)
		}
	})
	synced(run)
	clock := begin()
	for writer := range writers {
		go func() {
			for number := writer; number < count; number += writers {
				from.put(note(number))
			}
		}()
	}
	<-done
	return clock.end()
}

// latency measures from a write until its reconcile begins, with a number of objects in the cache and a silence of some
// milliseconds between a reconcile and the next write.
func latency(ctx context.Context, count, silence int) result {
	samples := samples
	if silence > 0 {
		samples = min(samples, 2*samples/silence)
	}
	from := fill(count)
	begun := make(chan time.Time, 1)
	var wanted atomic.Pointer[string]
	var seen atomic.Int64
	all := make(chan struct{})
	run := start(ctx, from, 0, func(name string, _ *corev1.ConfigMap) {
		if seen.Add(1) == int64(count) {
			close(all)
		}
		if awaited := wanted.Load(); awaited != nil && *awaited == name {
			begun <- time.Now()
		}
	})
	synced(run)
	if count > 0 {
		<-all
	}
	took := make([]float64, 0, samples)
	clock := begin()
	for number := range samples {
		object := note(count + number)
		wanted.Store(&object.Name)
		wrote := time.Now()
		from.put(object)
		took = append(took, float64((<-begun).Sub(wrote).Nanoseconds())/1e3)
		if silence > 0 {
			time.Sleep(time.Duration(silence) * time.Millisecond)
		}
	}
	found := clock.end()
	found.Each = found.CPU / float64(samples)
	sort.Float64s(took)
	found.Median = took[samples/2]
	return found
}

// peak measures the peak of a process with a store, a cache and a first pass, beyond what the process had before.
func peak(ctx context.Context, count, _ int) result {
	before := resident()
	found := first(ctx, count, 0)
	found.Bytes = resident() - before
	return found
}

// live measures the bytes of all objects that are alive after a first pass, beyond those before, without garbage.
func live(ctx context.Context, count, _ int) result {
	before := heap()
	found := first(ctx, count, 0)
	found.Bytes = heap() - before
	return found
}

func heap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func resident() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Maxrss) * 1024
}

func synced(run running) {
	for !run.informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	log.SetLogger(logr.Discard())
	modes := map[string]func(context.Context, int, int) result{
		"prime": prime, "first": first, "throughput": throughput, "work": work, "latency": latency, "peak": peak,
		"live": live,
	}
	flag.Parse()
	if flag.NArg() != 3 || modes[flag.Arg(0)] == nil {
		const usage = "usage: %s [-priority-queue=false] (prime|first|throughput|work|latency|peak|live) OBJECTS OTHER"
		must(fmt.Errorf(usage, os.Args[0]))
	}
	count, err := strconv.Atoi(flag.Arg(1))
	must(err)
	other, err := strconv.Atoi(flag.Arg(2))
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(modes[flag.Arg(0)](context.Background(), count, other)))
}
