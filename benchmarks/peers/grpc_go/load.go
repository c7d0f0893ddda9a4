package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "headway/benchmarks/peers/grpc_go/gen"
)

// An outcome is what the client prints: of one call, on average, but for the number of calls and the quantiles.
type outcome struct {
	Calls  int     `json:"calls"`
	Server float64 `json:"server_us"`
	Client float64 `json:"client_us"`
	Wall   float64 `json:"wall_us"`
	Median float64 `json:"median_us"`
	P99    float64 `json:"p99_us"`
}

// A caller makes one call after the other on a connection that it may share. Each has resources of its own.
type caller struct {
	client   pb.ResourceServiceClient
	first    int
	step     int
	size     int
	versions map[int]string
	took     []time.Duration
	err      error
}

// The number of the resource of a call.
func (c *caller) number(call int) int { return (c.first + call*c.step) % c.size }

func (c *caller) read(ctx context.Context, call int) error {
	_, err := c.client.Read(ctx, &pb.ReadRequest{Id: noteID(c.number(call))})
	return err
}

func (c *caller) update(ctx context.Context, call int) error {
	number := c.number(call)
	changed := &pb.Resource{
		Id:       noteID(number),
		Version:  c.versions[number],
		Metadata: map[string]string{"group": fmt.Sprintf("group-%d", number%groups)},
		Data:     payload(number + call + 1),
	}
	answer, err := c.client.Write(ctx, &pb.WriteRequest{Resource: changed})
	if err == nil {
		c.versions[number] = answer.Resource.Version
	}
	return err
}

func (c *caller) list(ctx context.Context, _ int) error {
	tenancy := &pb.Tenancy{Partition: "default", Namespace: "default"}
	answer, err := c.client.List(ctx, &pb.ListRequest{Type: noteType(), Tenancy: tenancy})
	if err == nil && len(answer.Resources) != c.size {
		return fmt.Errorf("expected %d resources, got %d", c.size, len(answer.Resources))
	}
	return err
}

func (c *caller) snapshot(ctx context.Context, _ int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tenancy := &pb.Tenancy{Partition: "default", Namespace: "default"}
	stream, err := c.client.WatchList(ctx, &pb.WatchListRequest{Type: noteType(), Tenancy: tenancy})
	if err != nil {
		return err
	}
	for got := 0; ; got++ {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if event.GetEndOfSnapshot() != nil {
			if got != c.size {
				return fmt.Errorf("expected %d resources, got %d", c.size, got)
			}
			return nil
		}
	}
}

// learn reads the versions of the caller's resources, which its updates name.
func (c *caller) learn(ctx context.Context, calls int) error {
	c.versions = map[int]string{}
	for call := range calls {
		number := c.number(call)
		if _, known := c.versions[number]; known {
			break
		}
		answer, err := c.client.Read(ctx, &pb.ReadRequest{Id: noteID(number)})
		if err != nil {
			return err
		}
		c.versions[number] = answer.Resource.Version
	}
	return nil
}

// processor returns the processor time in seconds that a process has taken so far, of all its threads. Linux tells it
// by a clock whose number is made of the process's; 0 means this process.
func processor(pid int) (float64, error) {
	const ofProcess = 2
	var now syscall.Timespec
	number := uintptr(^pid<<3 | ofProcess)
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, number, uintptr(unsafe.Pointer(&now)), 0); failed != 0 {
		return 0, fmt.Errorf("process %d has no clock of its processor time: %w", pid, failed)
	}
	return float64(now.Nano()) / 1e9, nil
}

// together runs a function for each caller at once, and returns the first error.
func together(callers []*caller, run func(*caller) error) error {
	var group sync.WaitGroup
	for _, each := range callers {
		group.Go(func() { each.err = run(each) })
	}
	group.Wait()
	for _, each := range callers {
		if each.err != nil {
			return each.err
		}
	}
	return nil
}

// load makes calls to a server, and prints what they cost it.
func load(arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	address := flags.String("address", "", "`HOST:PORT` of the server")
	pid := flags.Int("pid", 0, "the process whose time is measured: the server's")
	work := flags.String("work", "read", "`read`, update, list or snapshot")
	calls := flags.Int("calls", 1000, "calls in all that are measured")
	warm := flags.Int("warm", 0, "calls before them")
	connections := flags.Int("connections", 1, "connections")
	inFlight := flags.Int("in-flight", 1, "calls in flight, over all connections")
	size := flags.Int("size", 10_000, "resources that the server has")
	timeout := flags.Duration("timeout", 120*time.Second, "for everything")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	works := map[string]func(*caller, context.Context, int) error{
		"read": (*caller).read, "update": (*caller).update, "list": (*caller).list, "snapshot": (*caller).snapshot,
	}
	do := works[*work]
	if do == nil || *connections < 1 || *inFlight < *connections || *size < *inFlight {
		return fmt.Errorf("expected a work of %v, and 1 <= connections <= in-flight <= size", "read, update, list, snapshot")
	}
	clients := make([]pb.ResourceServiceClient, *connections)
	for at := range clients {
		// A list of 10,000 is larger than what a client receives without this option.
		large := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32))
		made, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()), large)
		if err != nil {
			return err
		}
		clients[at] = pb.NewResourceServiceClient(made)
	}
	callers := make([]*caller, *inFlight)
	// Each caller has resources of its own, also when it begins again with its first one.
	own := *size - *size%*inFlight
	if *work == "list" || *work == "snapshot" {
		own = *size
	}
	for at := range callers {
		callers[at] = &caller{client: clients[at%*connections], first: at, step: *inFlight, size: own}
	}
	share := func(of, at int) int { return (of + *inFlight - 1 - at) / *inFlight }
	err := together(callers, func(c *caller) error {
		if *work == "update" {
			if err := c.learn(ctx, share(max(*calls, *warm), c.first)); err != nil {
				return err
			}
		}
		for call := range share(*warm, c.first) {
			if err := do(c, ctx, call); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	before, err := processor(*pid)
	if err != nil {
		return err
	}
	beforeHere, err := processor(0)
	if err != nil {
		return err
	}
	began := time.Now()
	err = together(callers, func(c *caller) error {
		for call := range share(*calls, c.first) {
			sent := time.Now()
			if err := do(c, ctx, call); err != nil {
				return err
			}
			c.took = append(c.took, time.Since(sent))
		}
		return nil
	})
	if err != nil {
		return err
	}
	wall := time.Since(began).Seconds()
	after, err := processor(*pid)
	if err != nil {
		return err
	}
	afterHere, err := processor(0)
	if err != nil {
		return err
	}
	var took []time.Duration
	for _, each := range callers {
		took = append(took, each.took...)
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	each := 1e6 / float64(len(took))
	at := func(of float64) float64 { return float64(took[int(float64(len(took)-1)*of)].Nanoseconds()) / 1e3 }
	return json.NewEncoder(os.Stdout).Encode(outcome{
		Calls: len(took), Server: (after - before) * each, Client: (afterHere - beforeHere) * each, Wall: wall * each,
		Median: at(0.5), P99: at(0.99),
	})
}
