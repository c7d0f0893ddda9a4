package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "headway/benchmarks/peers/grpc_go/gen"
)

// A key is what tells the resources of one type apart.
type key struct{ partition, namespace, name string }

// A kind names a type.
type kind struct{ group, version, kind string }

// A server answers the resource service from a map. It checks nothing but the version that a write names.
type server struct {
	pb.UnimplementedResourceServiceServer
	mutex    sync.RWMutex
	revision int
	// A stored resource is never changed, so that an answer can be encoded without the lock.
	stored map[kind]map[key]*pb.Resource
}

func kindOf(of *pb.Type) kind { return kind{of.GetGroup(), of.GetGroupVersion(), of.GetKind()} }

func keyOf(id *pb.ID) key {
	return key{id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace(), id.GetName()}
}

func (s *server) put(resource *pb.Resource) {
	s.revision++
	resource.Version = strconv.Itoa(s.revision)
	of := kindOf(resource.Id.Type)
	if s.stored[of] == nil {
		s.stored[of] = map[key]*pb.Resource{}
	}
	s.stored[of][keyOf(resource.Id)] = resource
}

// Read returns one resource.
func (s *server) Read(_ context.Context, request *pb.ReadRequest) (*pb.ReadResponse, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found := s.stored[kindOf(request.GetId().GetType())][keyOf(request.Id)]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "%s not found", request.GetId().GetName())
	}
	return &pb.ReadResponse{Resource: found}, nil
}

// Write stores a resource, if the version that it names is the stored one.
func (s *server) Write(_ context.Context, request *pb.WriteRequest) (*pb.WriteResponse, error) {
	resource := request.GetResource()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.stored[kindOf(resource.GetId().GetType())][keyOf(resource.Id)]
	if resource.Version != "" && resource.Version != found.GetVersion() {
		return nil, status.Errorf(codes.Aborted, "version %s is not stored: it is %q", resource.Version, found.GetVersion())
	}
	resource.Generation = fmt.Sprintf("01HY%022d", s.revision+1)
	resource.Id.Uid = found.GetId().GetUid()
	resource.Status = found.GetStatus()
	if found == nil {
		resource.Id.Uid = fmt.Sprintf("01HZ%022d", s.revision+1)
	}
	s.put(resource)
	return &pb.WriteResponse{Resource: resource}, nil
}

// within returns the resources of a type in a tenancy, in no order.
func (s *server) within(of *pb.Type, tenancy *pb.Tenancy, prefix string) []*pb.Resource {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	all := s.stored[kindOf(of)]
	found := make([]*pb.Resource, 0, len(all))
	matches := func(wanted, has string) bool { return wanted == "*" || wanted == has }
	for key, each := range all {
		if matches(tenancy.GetPartition(), key.partition) && matches(tenancy.GetNamespace(), key.namespace) &&
			strings.HasPrefix(key.name, prefix) {
			found = append(found, each)
		}
	}
	return found
}

// List returns all resources of a type.
func (s *server) List(_ context.Context, request *pb.ListRequest) (*pb.ListResponse, error) {
	return &pb.ListResponse{Resources: s.within(request.Type, request.Tenancy, request.NamePrefix)}, nil
}

// WatchList sends a snapshot and its end. It sends no changes, which none of the rows waits for.
func (s *server) WatchList(request *pb.WatchListRequest, stream grpc.ServerStreamingServer[pb.WatchEvent]) error {
	for _, each := range s.within(request.Type, request.Tenancy, request.NamePrefix) {
		upsert := &pb.WatchEvent_Upsert_{Upsert: &pb.WatchEvent_Upsert{Resource: each}}
		if err := stream.Send(&pb.WatchEvent{Event: upsert}); err != nil {
			return err
		}
	}
	end := &pb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &pb.WatchEvent_EndOfSnapshot{}}
	if err := stream.Send(&pb.WatchEvent{Event: end}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// serve prints the address of a server with a number of resources, and runs it until its standard input ends.
func serve(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("expected COUNT, the number of resources, got %d arguments", len(arguments))
	}
	count, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	made := &server{stored: map[kind]map[key]*pb.Resource{}}
	for number := range count {
		made.put(note(number))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	grpcServer := grpc.NewServer()
	pb.RegisterResourceServiceServer(grpcServer, made)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		grpcServer.Stop()
	}()
	fmt.Println(listener.Addr())
	return grpcServer.Serve(listener)
}
