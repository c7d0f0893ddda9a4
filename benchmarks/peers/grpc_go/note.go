package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	pb "headway/benchmarks/peers/grpc_go/gen"
)

// The resources are those of benchmarks/_message.py: one metadata entry, and a payload of 120 bytes.
const (
	groups = 10
	text   = 118
)

func noteType() *pb.Type {
	return &pb.Type{Group: "bench", GroupVersion: "v1", Kind: "Note"}
}

func noteID(number int) *pb.ID {
	tenancy := &pb.Tenancy{Partition: "default", Namespace: "default"}
	return &pb.ID{Name: fmt.Sprintf("note-%06d", number), Type: noteType(), Tenancy: tenancy}
}

func payload(number int) *anypb.Any {
	value := protowire.AppendTag(nil, 1, protowire.BytesType)
	value = protowire.AppendString(value, fmt.Sprintf("%s%06d", strings.Repeat("n", text-6), number%1_000_000))
	return &anypb.Any{TypeUrl: "type.googleapis.com/bench.Note", Value: value}
}

func note(number int) *pb.Resource {
	id := noteID(number)
	id.Uid = fmt.Sprintf("01HZ%022d", number)
	return &pb.Resource{
		Id:         id,
		Generation: fmt.Sprintf("01HY%022d", number),
		Metadata:   map[string]string{"group": fmt.Sprintf("group-%d", number%groups)},
		Data:       payload(number),
	}
}
