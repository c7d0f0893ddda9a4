"""Stock clients through a forwarder see what they see without one."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from importlib.resources import files
from typing import Any

import grpc
import pytest
import trio

from headway import rpc
from headway.client import Client
from headway.protobuf import decode, encode
from headway.resource import AnyMessage, pb
from headway.rpc import ServerReflectionRequest, ServerReflectionResponse
from headway.service import TypesService
from tests.rpc.forward_kit import DETAILS, ODD, TALK, Odd, forwarded
from tests.rpc.rpc_kit import COUNT, ECHO, FLOOD, THING, WAIT, Served, Text, app
from tests.rpc.test_stock_clients import in_thread

RESOURCES = "/headway.resource.v1.ResourceService"
CONSULS = "/hashicorp.consul.resource.ResourceService"


def _id(name: str) -> pb.Id:
    return pb.Id(name=name, type=THING.name.message(), tenancy=pb.Tenancy(partition="default", namespace="default"))


def _everything() -> pb.WatchListRequest:
    return pb.WatchListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))


async def filled(it: Served, count: int) -> None:
    local = Client(rpc.InProcessChannel(it.services), app.registry)
    for number in range(count):
        await local.write(THING.new(f"thing-{number}", Text(text=str(number))))


def _outcome(call: Any) -> tuple[Any, str, list[bytes], list[Any], list[Any]]:
    """Return everything that a grpcio client sees of a call: code, details, replies, headers and trailers."""
    replies: list[bytes] = []
    with contextlib.suppress(grpc.RpcError):
        replies.extend(call)
    return call.code(), call.details(), replies, list(call.initial_metadata()), list(call.trailing_metadata())


async def test_grpcio_gets_the_same_answers_with_and_without_a_forwarder() -> None:
    """All methods are called under both service names. Code, details, replies, headers and trailers are compared."""
    async with forwarded() as (it, where):
        it.services.add(TypesService(app.registry))
        described = (files("headway._gen") / "descriptors.bin").read_bytes()
        it.services.add(rpc.Reflection(it.services, rpc.DescribedFiles.of_set(described)))
        endless = {COUNT, FLOOD, WAIT, "/grpc.health.v1.Health/Watch"}
        paths = sorted(set(it.services.handlers) - endless)

        def ask(address: str) -> dict[str, Any]:
            with grpc.insecure_channel(address) as channel:
                return {path: _outcome(channel.unary_stream(path)(b"", timeout=20)) for path in paths}

        direct, through = await in_thread(lambda: ask(it.where)), await in_thread(lambda: ask(where))
    assert {f"{name}/{method}" for name in (RESOURCES, CONSULS) for method in ("Write", "WatchList")} <= set(paths)
    assert "/headway.lease.v1.LeaseService/Raise" in paths
    assert "/headway.types.v1.TypesService/List" in paths
    assert through == direct
    assert {said[0] for said in through.values()} > {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}


@pytest.mark.parametrize("service", [RESOURCES, CONSULS])
async def test_grpcio_writes_reads_and_watches_through_a_forwarder(service: str) -> None:
    """Both names of the service work."""

    def client(where: str) -> tuple[str, str, list[str], list[str]]:
        with grpc.insecure_channel(where) as channel:

            def call(method: str, request: object, reply_type: Any) -> Any:
                return channel.unary_unary(f"{service}/{method}", encode, partial(decode, reply_type))(
                    request, timeout=10
                )

            data = AnyMessage(type_url=THING.type_url, value=encode(Text(text="of grpcio")))
            resource = pb.Resource(id=_id("mine"), data=data)
            written = call("Write", pb.WriteRequest(resource=resource), pb.WriteResponse).resource
            read = call("Read", pb.ReadRequest(id=_id("mine")), pb.ReadResponse).resource
            names, deleted = [], []
            watch = channel.unary_stream(f"{service}/WatchList", encode, partial(decode, pb.WatchEvent))
            stream = watch(_everything(), timeout=20)
            for event in stream:
                if event.end_of_snapshot is not None:
                    assert event.end_of_snapshot.position.revision > 0
                    call("Delete", pb.DeleteRequest(id=read.id), pb.DeleteResponse)
                elif event.upsert is not None:
                    names.append(event.upsert.resource.id.name)
                elif event.delete is not None:
                    deleted.append(event.delete.resource.id.name)
                    break
            stream.cancel()
            return written.version, read.version, names, deleted

    async with forwarded() as (it, where):
        await filled(it, 2)
        written, read, names, deleted = await in_thread(lambda: client(where))
    assert (written, sorted(names), deleted) == (read, ["mine", "thing-0", "thing-1"], ["mine"])


@pytest.mark.parametrize("text", ["answer", "refuse"])
async def test_headers_trailers_and_details_are_forwarded(text: str) -> None:
    """They arrive exactly as the service sent them, in its order."""
    async with forwarded(2) as (it, where):
        it.services.add(Odd())

        def client() -> Any:
            with grpc.insecure_channel(where) as channel:
                return _outcome(channel.unary_stream(ODD)(encode(Text(text=text)), timeout=20))

        code, details, replies, first, last = await in_thread(client)
    answers = text == "answer"
    assert code is (grpc.StatusCode.OK if answers else grpc.StatusCode.FAILED_PRECONDITION)
    # In grpcio, a success has no details.
    assert (details, replies) == (("", [encode(Text(text="answered"))]) if answers else ("no, 100%", []))
    assert {("x-first", "1"), ("x-both", "a")} <= set(first)
    assert {("x-last", "2"), ("x-both", "b"), (DETAILS, b"of a failure")} <= set(last)


async def test_deadline_and_cancellation_of_grpcio_reach_the_upstream() -> None:
    def late(where: str) -> Any:
        with grpc.insecure_channel(where) as channel:
            return _outcome(channel.unary_stream(WAIT)(b"", timeout=0.2))[0]

    def canceled(where: str, begun: trio.Event, ended: trio.Event) -> None:
        with grpc.insecure_channel(where) as channel:
            future = channel.unary_unary(WAIT).future(b"", timeout=20)
            trio.from_thread.run(begun.wait)
            future.cancel()
            trio.from_thread.run(ended.wait)

    async with forwarded(2) as (it, where):
        assert await in_thread(lambda: late(where)) is grpc.StatusCode.DEADLINE_EXCEEDED
        await it.echo.until_waiting(0)
        begun, ended = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, lambda: canceled(where, begun, ended))
            await it.echo.until_waiting(1)
            begun.set()
            await it.echo.until_waiting(0)
            ended.set()
        assert it.echo.cancelled == 2


async def test_forwarded_duplex_streams_run_in_both_directions_at_once() -> None:
    """A server speaks first, a client answers, and reflection works. Neither side waits for the other to end."""

    def talk(where: str) -> list[str]:
        with grpc.insecure_channel(where) as channel:
            said: list[str] = []
            answered = threading.Semaphore(0)

            def say() -> Any:
                # Each message is sent when the previous one has been answered.
                for number in range(3):
                    while len(said) <= number:
                        answered.acquire(timeout=10)
                    yield encode(Text(text=str(number)))

            for reply in channel.stream_stream(TALK)(say(), timeout=20):
                said.append(decode(Text, reply).text)
                answered.release()
            return said

    def services(where: str) -> set[str]:
        with grpc.insecure_channel(where) as channel:
            path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            question = encode(ServerReflectionRequest(list_services=""))
            (answer,) = list(channel.stream_stream(path)(iter([question]), timeout=20))
            listed = decode(ServerReflectionResponse, answer).list_services_response
            assert listed is not None
            return {each.name for each in listed.service}

    async with forwarded(2) as (it, where):
        it.services.add(Odd())
        described = (files("headway._gen") / "descriptors.bin").read_bytes()
        it.services.add(rpc.Reflection(it.services, rpc.DescribedFiles.of_set(described)))
        assert await in_thread(lambda: talk(where)) == ["hello", "0", "1", "2"]
        assert {RESOURCES[1:], CONSULS[1:]} <= await in_thread(lambda: services(where))


async def test_compressed_messages_are_forwarded_unchanged() -> None:
    """The upstream decides if it understands them. Its refusal says how messages may be encoded."""

    def client(where: str) -> Any:
        with grpc.insecure_channel(where, compression=grpc.Compression.Gzip) as channel:
            return _outcome(channel.unary_stream(ECHO)(encode(Text(text="a" * 1000)), timeout=20))[:2]

    async with forwarded() as (it, where):
        through = await in_thread(lambda: client(where))
        assert through == await in_thread(lambda: client(it.where))
    assert through == (
        grpc.StatusCode.UNIMPLEMENTED,
        "compressed messages are not supported: send them as they are (grpc-encoding: identity)",
    )
