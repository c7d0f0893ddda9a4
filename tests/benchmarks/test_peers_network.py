"""The programs of the network's rows: both servers answer alike, and the client measures whole answers only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks._message import Note
from benchmarks.peers._network import Pair, Server, Work, large_works, measured, open_pair, works
from headway.protobuf import decode, encode
from headway.resource import AnyMessage, pb
from tests.helpers.go_programs import need_go_program

SIZE = 40


@pytest.fixture(scope="module")
def program() -> Path:
    return need_go_program("grpc-go-peer")


@pytest.fixture(scope="module")
def pair(program: Path) -> Iterator[Pair]:
    with open_pair(program, SIZE) as pair:
        yield pair


def test_each_work_costs_both_servers_time(program: Path, pair: Pair) -> None:
    for work in [*works(SIZE, 32), *large_works(SIZE)]:
        assert measured(program, pair.headway, SIZE, work) > 0, work
        assert measured(program, pair.grpc_go, SIZE, work) > 0, work


@pytest.mark.wide
@pytest.mark.parametrize("name", Pair._fields)
def test_write_of_another_version_is_refused(pair: Pair, name: str) -> None:
    server: Server = getattr(pair, name)
    of_type = pb.Type(group="bench", group_version="v1", kind="Note")
    id = pb.Id(name="note-000007", type=of_type, tenancy=pb.Tenancy(partition="default", namespace="default"))
    data = AnyMessage(type_url="type.googleapis.com/bench.Note", value=encode(Note(text="other")))

    with grpc.insecure_channel(server.address) as channel:

        def call(method: str, request: Any, answer: type[Any]) -> Any:
            path = f"/headway.resource.v1.ResourceService/{method}"
            unary = channel.unary_unary(path, encode, lambda received: decode(answer, received))
            return unary(request, timeout=20).resource

        def write(version: str) -> Any:
            changed = pb.Resource(id=id, version=version, data=data)
            return call("Write", pb.WriteRequest(resource=changed), pb.WriteResponse)

        found = call("Read", pb.ReadRequest(id=id), pb.ReadResponse)
        written = write(found.version)
        assert written.id.uid == found.id.uid
        assert written.version != found.version
        with pytest.raises(grpc.RpcError) as refused:
            write(found.version)
        assert refused.value.code() is grpc.StatusCode.ABORTED
        read = call("Read", pb.ReadRequest(id=id), pb.ReadResponse)
    assert (read.version, read.data) == (written.version, data)


@pytest.mark.wide
@pytest.mark.parametrize("work", works(SIZE, 32)[-2:], ids=lambda work: work.work)
def test_answer_without_all_resources_is_an_error(program: Path, pair: Pair, work: Work) -> None:
    for server in pair:
        with pytest.raises(RuntimeError, match=f"expected {SIZE + 1} resources, got {SIZE}"):
            measured(program, server, SIZE + 1, work)
