// Command etcd_go commits to a real etcd with Go's own client what a store of Headway must ask of etcd, and no more.
//
// Usage: etcd_go ENDPOINT PREFIX WRITES WRITERS BYTES
//
// Each writer waits for its own write before it begins the next. Waiting writes share a transaction, and two
// transactions are on their way at once. A transaction compares each key and an anchor, and puts each key and a head. A
// watch of the prefix delivers every change. It prints one JSON object: the processor time of this process and the wall
// time, in microseconds for each write.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	atOnce   = 64
	underWay = 2
)

// A write waits until its key is stored.
type write struct {
	key    string
	stored chan struct{}
}

type result struct {
	CPU  float64 `json:"cpu_us"`
	Wall float64 `json:"wall_us"`
}

// A job is all that the program does.
type job struct {
	client  *clientv3.Client
	prefix  string
	value   string
	waiting chan write
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func processor() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	micros := func(each syscall.Timeval) float64 { return float64(each.Sec)*1e6 + float64(each.Usec) }
	return micros(used.Utime) + micros(used.Stime)
}

// follow closes the channel that it returns when this many new keys have been delivered.
func (j *job) follow(ctx context.Context, writes int) <-chan struct{} {
	delivered, created := make(chan struct{}), make(chan struct{})
	go func() {
		seen := 0
		options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFragment(), clientv3.WithCreatedNotify()}
		for response := range j.client.Watch(ctx, j.prefix, options...) {
			must(response.Err())
			if response.Created {
				close(created)
			}
			for _, event := range response.Events {
				if event.IsCreate() && string(event.Kv.Key) != j.prefix+"head" {
					seen++
				}
			}
			if seen == writes {
				close(delivered)
				return
			}
		}
	}()
	<-created
	return delivered
}

// commit stores what is waiting, until nothing will.
func (j *job) commit(ctx context.Context) {
	for first := range j.waiting {
		batch := []write{first}
	more:
		for len(batch) < atOnce {
			select {
			case next, open := <-j.waiting:
				if !open {
					break more
				}
				batch = append(batch, next)
			default:
				break more
			}
		}
		absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.ModRevision(key), "=", 0) }
		conditions := []clientv3.Cmp{absent(j.prefix + "anchor")}
		puts := []clientv3.Op{clientv3.OpPut(j.prefix+"head", "head")}
		for _, each := range batch {
			conditions = append(conditions, absent(each.key))
			puts = append(puts, clientv3.OpPut(each.key, j.value))
		}
		answer, err := j.client.Txn(ctx).If(conditions...).Then(puts...).Commit()
		must(err)
		if !answer.Succeeded {
			must(fmt.Errorf("a key is there already below %s", j.prefix))
		}
		for _, each := range batch {
			close(each.stored)
		}
	}
}

// run makes all writes, and returns what each has cost.
func (j *job) run(ctx context.Context, writes, writers int) result {
	delivered := j.follow(ctx, writes)
	cpu, began := processor(), time.Now()
	var committing, writing sync.WaitGroup
	for range underWay {
		committing.Go(func() { j.commit(ctx) })
	}
	for writer := range writers {
		writing.Go(func() {
			for number := writer; number < writes; number += writers {
				key := fmt.Sprintf("%sresource/bench/Managed/default/default/note-%06d", j.prefix, number)
				each := write{key, make(chan struct{})}
				j.waiting <- each
				<-each.stored
			}
		})
	}
	writing.Wait()
	close(j.waiting)
	committing.Wait()
	<-delivered
	per := 1 / float64(writes)
	return result{(processor() - cpu) * per, float64(time.Since(began).Microseconds()) * per}
}

func main() {
	if len(os.Args) != 6 {
		must(fmt.Errorf("usage: %s ENDPOINT PREFIX WRITES WRITERS BYTES", os.Args[0]))
	}
	number := func(at int) int {
		found, err := strconv.Atoi(os.Args[at])
		must(err)
		return found
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 10 * time.Second})
	must(err)
	made := &job{client, os.Args[2], strings.Repeat("n", number(5)), make(chan write, atOnce)}
	found := made.run(context.Background(), number(3), number(4))
	must(client.Close())
	must(json.NewEncoder(os.Stdout).Encode(found))
}
