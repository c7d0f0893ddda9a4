// resource-client -subscribe follows types as the guide tells clients in other languages to: it keeps the state of the
// types, replaces it when a snapshot is complete, resumes after each end that is not final, and prints each step as a
// JSON object on a line of its own. It runs until it is killed, or until the server refuses the subscription.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	resource "headway/tests/go/client/gen"
	pb "headway/tests/go/client/gen/subscribe"
)

var (
	subscribeTo = flag.String("subscribe", "", "follow these `TYPES` (GROUP.VERSION.KIND, by commas) instead of calling")
	resumeAfter = flag.String("resume", "", "begin after this `POSITION`, as an earlier step has printed it")
)

// The time before a stream that has ended is opened again.
const pauseBetween = 50 * time.Millisecond

// Step is what is printed.
type Step struct {
	Step     string   `json:"step"`
	State    []string `json:"state,omitempty"`
	Changed  []string `json:"changed,omitempty"`
	Why      string   `json:"why,omitempty"`
	Position string   `json:"position,omitempty"`
}

func say(step Step) {
	text, _ := json.Marshal(step)
	fmt.Println(string(text))
}

// subscription is the state of the types, and the position that it is at.
type subscription struct {
	client   pb.SubscribeServiceClient
	request  *pb.SubscribeRequest
	state    map[string]bool
	snapshot map[string]bool // What has arrived of a snapshot; nil while there is none.
}

func (s *subscription) position() string {
	text, _ := proto.Marshal(s.request.ResumeAfter)
	return base64.StdEncoding.EncodeToString(text)
}

func name(of *resource.Resource) string {
	return of.Id.Type.Kind + " " + of.Id.Name
}

func apply(events []*pb.Event, to map[string]bool) []string {
	var changed []string
	for _, each := range events {
		switch event := each.Event.(type) {
		case *pb.Event_Upsert:
			to[name(event.Upsert)] = true
			changed = append(changed, name(event.Upsert))
		case *pb.Event_Delete:
			delete(to, name(event.Delete))
			changed = append(changed, "-"+name(event.Delete))
		}
	}
	sort.Strings(changed)
	return changed
}

func (s *subscription) all() []string {
	names := []string{}
	for each := range s.state {
		names = append(names, each)
	}
	sort.Strings(names)
	return names
}

// take applies one message.
func (s *subscription) take(message *pb.SubscribeResponse, first bool) {
	switch event := message.Event.(type) {
	case *pb.SubscribeResponse_Batch:
		if event.Batch.Position == nil {
			apply(event.Batch.Events, s.snapshot)
			return
		}
		s.request.ResumeAfter = event.Batch.Position
		changed := apply(event.Batch.Events, s.state)
		say(Step{Step: "change", Changed: changed, State: s.all(), Position: s.position()})
	case *pb.SubscribeResponse_EndOfSnapshot:
		s.request.ResumeAfter = event.EndOfSnapshot.Position
		s.state, s.snapshot = s.snapshot, map[string]bool{}
		say(Step{Step: "snapshot", State: s.all(), Position: s.position()})
	case *pb.SubscribeResponse_NewSnapshotToFollow:
		s.snapshot = map[string]bool{}
		say(Step{Step: "new snapshot to follow", State: s.all(), Why: event.NewSnapshotToFollow.Reason})
	case *pb.SubscribeResponse_Progress:
		s.request.ResumeAfter = event.Progress.Position
		if first {
			say(Step{Step: "resumed", State: s.all(), Position: s.position()})
		}
	}
}

// follow reads one stream to its end.
func (s *subscription) follow() error {
	s.snapshot = map[string]bool{}
	stream, err := s.client.Subscribe(authorized(context.Background()), s.request)
	for first := true; err == nil; first = false {
		var message *pb.SubscribeResponse
		if message, err = stream.Recv(); err == nil {
			s.take(message, first)
		}
	}
	return err
}

func subscribed(types string) []*pb.Subject {
	var subjects []*pb.Subject
	for _, each := range strings.Split(types, ",") {
		part := &pb.Subject_Everything{Everything: &pb.Everything{}}
		subjects = append(subjects, &pb.Subject{Source: &pb.Subject_Type{Type: typeNamed(each)}, Part: part})
	}
	return subjects
}

func subscribe(connection grpc.ClientConnInterface) error {
	s := &subscription{client: pb.NewSubscribeServiceClient(connection), state: map[string]bool{}}
	s.request = &pb.SubscribeRequest{Subjects: subscribed(*subscribeTo), ProgressIntervalMs: 50}
	if *resumeAfter != "" {
		text, err := base64.StdEncoding.DecodeString(*resumeAfter)
		if err != nil {
			return fmt.Errorf("-resume: %w", err)
		}
		s.request.ResumeAfter = &pb.Position{}
		if err := proto.Unmarshal(text, s.request.ResumeAfter); err != nil {
			return fmt.Errorf("-resume: %w", err)
		}
	}
	for {
		err := s.follow()
		say(Step{Step: "ended", Why: status.Code(err).String(), State: s.all()})
		switch code := status.Code(err); {
		case code == codes.Aborted || code == codes.Unavailable || err == io.EOF:
			time.Sleep(pauseBetween)
		default:
			return err
		}
	}
}
