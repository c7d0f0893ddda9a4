// resource-client calls a resource service as a stock Go program does: google.golang.org/grpc with its default
// options, and stubs generated from schema/. It writes and reads by turns on one connection or several, may watch on
// the first one meanwhile, and prints what came of it as one JSON object. It exits with 1 if anything failed.
// With -subscribe it follows types instead: see subscribe.go.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	pb "headway/tests/go/client/gen"
)

const ours = "headway.resource.v1.ResourceService"

var (
	address     = flag.String("address", "127.0.0.1:9000", "`HOST:PORT` or unix:/path of the server")
	token       = flag.String("token", "", "sent as x-consul-token with every call")
	service     = flag.String("service", ours, "the name that the service is called by, such as hashicorp.consul.resource.ResourceService")
	calls       = flag.Int("calls", 100, "calls in all: a Write, a Read of what it stored, and so on")
	connections = flag.Int("connections", 1, "connections, each with calls of its own, one after the other")
	typeName    = flag.String("type", "test.v1.Thing", "`GROUP.VERSION.KIND` of the resources")
	payload     = flag.String("payload", "test.Text", "full name of the payload's message, whose field 1 is a string")
	prefix      = flag.String("prefix", "go", "what the resources' names begin with")
	watch       = flag.Bool("watch", false, "watch the type on the first connection, and check that every write is heard")
	pause       = flag.Duration("pause", 0, "time from the beginning of a call to that of the next one on its connection, if it is over by then")
	timeout     = flag.Duration("timeout", 20*time.Second, "for each call, and for the watch to hear the last write")
	ca          = flag.String("ca", "", "PEM `FILE` of the authority whose certificate the server has; without it there is no TLS")
)

// Outcome is what is printed.
type Outcome struct {
	Calls       int            `json:"calls"`
	Writes      int            `json:"writes"`
	Failed      int            `json:"failed"`
	Errors      map[string]int `json:"errors"`
	Seconds     float64        `json:"seconds"`
	P50         float64        `json:"p50_ms"`
	P99         float64        `json:"p99_ms"`
	Heard       int            `json:"heard"`
	Missed      int            `json:"missed"`
	Bookmarks   int            `json:"bookmarks"`
	WatchFailed string         `json:"watch_failed"`
}

type renamed struct {
	grpc.ClientConnInterface
}

// The stubs know Headway's name alone.
func (r renamed) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	return r.ClientConnInterface.Invoke(ctx, strings.Replace(method, ours, *service, 1), in, out, options...)
}

func (r renamed) NewStream(ctx context.Context, of *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return r.ClientConnInterface.NewStream(ctx, of, strings.Replace(method, ours, *service, 1), options...)
}

func transport() (credentials.TransportCredentials, error) {
	if *ca == "" {
		return insecure.NewCredentials(), nil
	}
	text, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate found", *ca)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool}), nil
}

func dial() (*grpc.ClientConn, error) {
	secured, err := transport()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(*address, grpc.WithTransportCredentials(secured))
}

func connect() (pb.ResourceServiceClient, error) {
	conn, err := dial()
	return pb.NewResourceServiceClient(renamed{conn}), err
}

func authorized(ctx context.Context) context.Context {
	if *token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "x-consul-token", *token)
}

func resourceType() *pb.Type {
	return typeNamed(*typeName)
}

func typeNamed(name string) *pb.Type {
	parts := strings.Split(name, ".")
	last := len(parts) - 1
	if last < 2 {
		fmt.Fprintf(os.Stderr, "%q is not a type: expected GROUP.VERSION.KIND, such as test.v1.Thing\n", name)
		os.Exit(2)
	}
	return &pb.Type{Group: strings.Join(parts[:last-1], "."), GroupVersion: parts[last-1], Kind: parts[last]}
}

func tenancy(name string) *pb.Tenancy {
	return &pb.Tenancy{Partition: name, Namespace: name}
}

// caller makes the calls of one connection.
type caller struct {
	client pb.ResourceServiceClient
	took   []time.Duration
	errors []string
	writes []string
}

func (c *caller) write(ctx context.Context, name string, number int) *pb.ID {
	text := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprint(number))
	id := &pb.ID{Name: name, Type: resourceType(), Tenancy: tenancy("default")}
	data := &anypb.Any{TypeUrl: "type.googleapis.com/" + *payload, Value: text}
	written, err := c.client.Write(ctx, &pb.WriteRequest{Resource: &pb.Resource{Id: id, Data: data}})
	if err != nil {
		c.errors = append(c.errors, "Write: "+err.Error())
		return nil
	}
	c.writes = append(c.writes, name+"@"+written.Resource.Version)
	return written.Resource.Id
}

func (c *caller) read(ctx context.Context, id *pb.ID) {
	if _, err := c.client.Read(ctx, &pb.ReadRequest{Id: id}); err != nil {
		c.errors = append(c.errors, "Read: "+err.Error())
	}
}

func (c *caller) run(name string, count int) {
	var id *pb.ID
	for number := 0; number < count; number++ {
		ctx, cancel := context.WithTimeout(authorized(context.Background()), *timeout)
		began := time.Now()
		if number%2 == 0 || id == nil {
			id = c.write(ctx, name, number)
		} else {
			c.read(ctx, id)
		}
		c.took = append(c.took, time.Since(began))
		cancel()
		time.Sleep(*pause - time.Since(began))
	}
}

// watcher hears changes of the type.
type watcher struct {
	ready     chan struct{}
	done      chan struct{}
	mutex     sync.Mutex
	heard     map[string]bool
	bookmarks int
	err       error
	changed   chan struct{}
}

func (w *watcher) run(ctx context.Context, client pb.ResourceServiceClient) {
	defer close(w.done)
	stream, err := client.WatchList(authorized(ctx), &pb.WatchListRequest{Type: resourceType(), Tenancy: tenancy("*")})
	begun := false
	for err == nil {
		var event *pb.WatchEvent
		if event, err = stream.Recv(); err != nil {
			break
		}
		switch what := event.Event.(type) {
		case *pb.WatchEvent_EndOfSnapshot_:
			begun = true
			close(w.ready)
		case *pb.WatchEvent_Upsert_:
			w.mutex.Lock()
			w.heard[what.Upsert.Resource.Id.Name+"@"+what.Upsert.Resource.Version] = true
			w.mutex.Unlock()
			select {
			case w.changed <- struct{}{}:
			default:
			}
		case *pb.WatchEvent_Bookmark_:
			w.bookmarks++
		}
	}
	if err != io.EOF && ctx.Err() == nil {
		w.err = err
	}
	if !begun {
		close(w.ready)
	}
}

// missing waits until every write has been heard, or the watch has ended, or the time is over.
func (w *watcher) missing(wanted []string) int {
	over := time.After(*timeout)
	for {
		missed := 0
		w.mutex.Lock()
		for _, each := range wanted {
			if !w.heard[each] {
				missed++
			}
		}
		w.mutex.Unlock()
		if missed == 0 {
			return 0
		}
		select {
		case <-w.changed:
		case <-w.done:
			return missed
		case <-over:
			return missed
		}
	}
}

func quantile(sorted []time.Duration, of float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(float64(len(sorted)-1)*of)].Microseconds()) / 1000
}

func main() {
	flag.Parse()
	if *subscribeTo != "" {
		connection, err := dial()
		if err == nil {
			err = subscribe(connection)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	callers := make([]*caller, *connections)
	for i := range callers {
		client, err := connect()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		callers[i] = &caller{client: client}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{
		ready: make(chan struct{}), done: make(chan struct{}), heard: map[string]bool{}, changed: make(chan struct{}, 1),
	}
	if *watch {
		go w.run(ctx, callers[0].client)
		<-w.ready
	}
	began := time.Now()
	var group sync.WaitGroup
	for i, each := range callers {
		count := *calls / *connections
		if i < *calls%*connections {
			count++
		}
		group.Add(1)
		go func() {
			defer group.Done()
			each.run(fmt.Sprintf("%s-%d", *prefix, i), count)
		}()
	}
	group.Wait()
	out := Outcome{Seconds: time.Since(began).Seconds(), Errors: map[string]int{}}
	var took []time.Duration
	var writes []string
	for _, each := range callers {
		took = append(took, each.took...)
		writes = append(writes, each.writes...)
		out.Failed += len(each.errors)
		for _, text := range each.errors {
			out.Errors[text]++
		}
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	out.Calls, out.Writes, out.P50, out.P99 = len(took), len(writes), quantile(took, 0.5), quantile(took, 0.99)
	if *watch {
		out.Missed = w.missing(writes)
		cancel()
		<-w.done
		out.Heard, out.Bookmarks = len(writes)-out.Missed, w.bookmarks
		if w.err != nil {
			out.WatchFailed = w.err.Error()
		}
	}
	cancel()
	text, _ := json.Marshal(out)
	fmt.Println(string(text))
	if out.Failed > 0 || out.Missed > 0 || out.WatchFailed != "" {
		os.Exit(1)
	}
}
