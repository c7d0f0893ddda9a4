// catalog-client writes, reads and deletes resources of the catalog as a stock Go program does: google.golang.org/grpc
// with its default options, under Consul's names, with stubs generated from examples/catalog/schema. Each line of its
// input is a request in JSON, and each line of its output the answer: the resource, or the status of the refusal.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	_ "headway/tests/go/client/gen/consul/auth"
	_ "headway/tests/go/client/gen/consul/catalog"
	_ "headway/tests/go/client/gen/consul/multicluster"
	pb "headway/tests/go/client/gen/consul/resource"
)

var (
	address = flag.String("address", "127.0.0.1:7070", "`HOST:PORT` of the server")
	timeout = flag.Duration("timeout", 10*time.Second, "for each call")
)

// Request is one line of the input.
type Request struct {
	Verb     string          `json:"verb"`
	Resource json.RawMessage `json:"resource"`
	ID       json.RawMessage `json:"id"`
	Version  string          `json:"version"`
}

// Answer is one line of the output.
type Answer struct {
	Resource json.RawMessage `json:"resource,omitempty"`
	Code     string          `json:"code"`
	Message  string          `json:"message,omitempty"`
}

func parse[M proto.Message](text []byte, into M) M {
	if err := protojson.Unmarshal(text, into); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return into
}

func call(ctx context.Context, client pb.ResourceServiceClient, request Request) (*pb.Resource, error) {
	switch request.Verb {
	case "write":
		answer, err := client.Write(ctx, &pb.WriteRequest{Resource: parse(request.Resource, &pb.Resource{})})
		return answer.GetResource(), err
	case "check":
		checked := &pb.MutateAndValidateRequest{Resource: parse(request.Resource, &pb.Resource{})}
		answer, err := client.MutateAndValidate(ctx, checked)
		return answer.GetResource(), err
	case "read":
		answer, err := client.Read(ctx, &pb.ReadRequest{Id: parse(request.ID, &pb.ID{})})
		return answer.GetResource(), err
	case "delete":
		_, err := client.Delete(ctx, &pb.DeleteRequest{Id: parse(request.ID, &pb.ID{}), Version: request.Version})
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%q is no verb: use write, check, read or delete\n", request.Verb)
	os.Exit(2)
	return nil, nil
}

func answer(client pb.ResourceServiceClient, line []byte) Answer {
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	resource, err := call(ctx, client, request)
	made := Answer{Code: status.Code(err).String()}
	if err != nil {
		made.Message = status.Convert(err).Message()
	}
	if resource != nil {
		text, err := protojson.Marshal(resource)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		made.Resource = text
	}
	return made
}

func main() {
	flag.Parse()
	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	client := pb.NewResourceServiceClient(connection)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := output.Encode(answer(client, lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}
