"""Clients that are not ours: grpclib on asyncio, and grpcio with code generated from the schema."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from google.protobuf.descriptor_pool import DescriptorPool
from grpclib.client import Channel

from headway import rpc
from headway.client import Client
from headway.resource import AnyMessage, decode, encode, pb
from headway.rpc._reflection import ServerReflectionRequest, ServerReflectionResponse
from tests.helpers.stock import StockClient
from tests.rpc.rpc_kit import ECHO, THING, WAIT, Served, Text, app, certificates, served

SCHEMA = Path(__file__).parents[2] / "schema"


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run a client that is not Trio's beside the server."""
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def filled(it: Served, count: int) -> None:
    local = Client(rpc.InProcessChannel(it.services), app.registry)
    for number in range(count):
        await local.write(THING.new(f"thing-{number}", Text(text=str(number))))


async def test_grpclib_on_asyncio_reads_and_watches() -> None:
    """One event a message, as its own codec has it."""

    async def client(host: str, port: int) -> tuple[str, list[str]]:
        async with asyncio.timeout(20):
            channel = Channel(host, port)
            try:
                stub = StockClient(channel)
                id = pb.Id(
                    name="thing-0",
                    type=THING.name.message(),
                    tenancy=pb.Tenancy(partition="default", namespace="default"),
                )
                read = await stub.read(pb.ReadRequest(id=id))
                names: list[str] = []
                async with contextlib.aclosing(_events(stub)) as events:
                    async for event in events:
                        if event.end_of_snapshot is not None:
                            break
                        assert event.upsert is not None
                        assert event.upsert.resource is not None
                        assert event.upsert.resource.id is not None
                        names.append(event.upsert.resource.id.name)
                assert read.resource is not None
                assert read.resource.data is not None
                return read.resource.version, names
            finally:
                channel.close()

    async with served() as it:
        await filled(it, 5)
        host, port = it.where.split(":")
        version, names = await in_thread(lambda: asyncio.run(client(host, int(port))))
    assert version
    assert sorted(names) == [f"thing-{number}" for number in range(5)]


async def _events(stub: StockClient) -> AsyncGenerator[pb.WatchEvent, None]:
    request = pb.WatchListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
    async for event in stub.watch_list(request):
        yield event


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Grpcio's own code for the schema."""
    folder = tmp_path_factory.mktemp("stubs")
    source = "headway/resource/v1/resource.proto"
    # Under a package name of its own: `headway` is ours.
    (folder / "protos/wire_test").mkdir(parents=True)
    (folder / "protos/wire_test/resource.proto").write_text((SCHEMA / source).read_text())
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{folder}/protos",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            "wire_test/resource.proto",
        ],
        check=True,
    )
    sys.path.insert(0, str(folder))
    try:
        yield (
            importlib.import_module("wire_test.resource_pb2"),
            importlib.import_module("wire_test.resource_pb2_grpc"),
        )
    finally:
        sys.path.remove(str(folder))


def wanted(pb2: Any, name: str) -> Any:
    return pb2.ID(
        name=name,
        type=pb2.Type(group="test", group_version="v1", kind="Thing"),
        tenancy=pb2.Tenancy(partition="default", namespace="default"),
    )


async def test_grpcio_writes_reads_and_watches(generated: Any) -> None:
    """Its stubs, by protoc, know nothing of ours but the schema."""
    pb2, pb2_grpc = generated
    value = encode(Text(text="of grpcio"))

    def client(where: str) -> tuple[str, str, list[str], list[str]]:
        with grpc.insecure_channel(where) as channel:
            stub = pb2_grpc.ResourceServiceStub(channel)
            resource = pb2.Resource(id=wanted(pb2, "mine"))
            resource.data.type_url, resource.data.value = THING.type_url, value
            written = stub.Write(pb2.WriteRequest(resource=resource), timeout=10).resource
            read = stub.Read(pb2.ReadRequest(id=wanted(pb2, "mine")), timeout=10).resource
            request = pb2.WatchListRequest(type=read.id.type, tenancy=pb2.Tenancy(partition="*", namespace="*"))
            names, live = [], []
            stream = stub.WatchList(request, timeout=20)
            for event in stream:
                kind = event.WhichOneof("event")
                if kind == "end_of_snapshot":
                    assert event.end_of_snapshot.position.revision > 0
                    stub.Delete(pb2.DeleteRequest(id=read.id), timeout=10)
                elif kind == "upsert":
                    names.append(event.upsert.resource.id.name)
                elif kind == "delete":
                    assert event.revision > 0
                    live.append(event.delete.resource.id.name)
                    break
            stream.cancel()
            return written.version, read.version, names, live

    async with served() as it:
        await filled(it, 3)
        written, read, names, live = await in_thread(lambda: client(it.where))
    assert written == read
    assert sorted(names) == ["mine", "thing-0", "thing-1", "thing-2"]
    assert live == ["mine"]


async def test_grpcio_sees_errors_deadlines_and_cancellation(generated: Any) -> None:
    """Statuses and messages as they were meant, and its cancellation reaches the handler."""
    pb2, pb2_grpc = generated

    def failures(where: str) -> list[Any]:
        with grpc.insecure_channel(where) as channel:
            stub = pb2_grpc.ResourceServiceStub(channel)
            wait = channel.unary_unary(WAIT)
            seen = []
            for call, request, timeout in (
                (stub.Read, pb2.ReadRequest(id=wanted(pb2, "nobody")), 10),
                (stub.Read, pb2.ReadRequest(), 10),
                (channel.unary_unary("/test.Echo/Nothing"), b"", 10),
                (channel.unary_unary(ECHO), b"\xff\xff", 10),
                (wait, b"", 0.2),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call(request, timeout=timeout)
                seen.append(caught.value.code())
            return seen

    def cancelled(where: str, begun: trio.Event, ended: trio.Event) -> None:
        with grpc.insecure_channel(where) as channel:
            future = channel.unary_unary(WAIT).future(b"", timeout=20)
            trio.from_thread.run(begun.wait)
            future.cancel()
            trio.from_thread.run(ended.wait)

    async with served() as it:
        assert await in_thread(lambda: failures(it.where)) == [
            grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        ]
        await it.echo.until_waiting(0)
        begun, ended = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, lambda: cancelled(it.where, begun, ended))
            await it.echo.until_waiting(1)
            begun.set()
            await it.echo.until_waiting(0)
            ended.set()
        assert it.echo.cancelled == 2


async def test_both_service_names_are_answered(generated: Any) -> None:
    """A client made for Consul's public API calls the same methods under its name."""
    pb2, _ = generated

    def client(where: str) -> tuple[str, int]:
        with grpc.insecure_channel(where) as channel:
            prefix = "/hashicorp.consul.resource.ResourceService/"
            encode_any = type(pb2.ReadRequest()).SerializeToString
            read = channel.unary_unary(f"{prefix}Read", encode_any, pb2.ReadResponse.FromString)
            watch = channel.unary_stream(f"{prefix}WatchList", encode_any, pb2.WatchEvent.FromString)
            resource = read(pb2.ReadRequest(id=wanted(pb2, "thing-0")), timeout=10).resource
            request = pb2.WatchListRequest(type=resource.id.type, tenancy=pb2.Tenancy(partition="*", namespace="*"))
            count = 0
            for event in watch(request, timeout=20):
                if event.WhichOneof("event") == "end_of_snapshot":
                    break
                count += 1
            return resource.id.name, count

    async with served() as it:
        await filled(it, 2)
        assert await in_thread(lambda: client(it.where)) == ("thing-0", 2)


async def test_grpcio_over_tls_and_a_large_message(tmp_path: Path) -> None:
    """ALPN is agreed on; a message larger than the window goes in both directions."""
    made = certificates(tmp_path)
    body = encode(Text(text="x" * 3_000_000))
    ca = made.ca.read_bytes()

    def client(where: str) -> bytes:
        with grpc.secure_channel(where, grpc.ssl_channel_credentials(ca)) as channel:
            reply: bytes = channel.unary_unary(ECHO)(body, timeout=20)
            return reply

    async with served(tls=made.server) as it:
        assert await in_thread(lambda: client(it.where)) == body


async def test_health_is_asked_and_watched() -> None:
    """By the standard service, with its numbers."""
    check, watch = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
    service = b"\x0a\x23headway.resource.v1.ResourceService"

    def checked(where: str) -> tuple[bytes, bytes, Any]:
        with grpc.insecure_channel(where) as channel:
            ask = channel.unary_unary(check)
            with pytest.raises(grpc.RpcError) as caught:
                ask(b"\x0a\x01x", timeout=10)
            return ask(b"", timeout=10), ask(service, timeout=10), caught.value.code()

    def watched(where: str, first: trio.Event) -> list[bytes]:
        with grpc.insecure_channel(where) as channel:
            stream = channel.unary_stream(watch)(service, timeout=20)
            seen = [next(stream)]
            trio.from_thread.run_sync(first.set)
            seen.append(next(stream))
            stream.cancel()
            return seen

    async with served() as it:
        serving, not_serving = b"\x08\x01", b"\x08\x02"
        assert await in_thread(lambda: checked(it.where)) == (serving, serving, grpc.StatusCode.NOT_FOUND)
        first, seen = trio.Event(), []

        async def follow() -> None:
            seen.extend(await in_thread(lambda: watched(it.where, first)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await first.wait()
            it.health.set("headway.resource.v1.ResourceService", serving=False)
        assert seen == [serving, not_serving]


def test_the_message_of_a_resource_is_the_same_in_both(generated: Any) -> None:
    """What our compiled codec writes, protobuf's own reads."""
    pb2, _ = generated
    resource = pb.Resource(
        id=pb.Id(name="a", type=pb.Type(kind="Thing")),
        metadata={"k": "v"},
        data=AnyMessage(type_url="u", value=b"\x00"),
    )
    read = pb2.Resource.FromString(encode(resource))
    assert (read.id.name, read.id.type.kind, dict(read.metadata), read.data.value) == (
        "a",
        "Thing",
        {"k": "v"},
        b"\x00",
    )


async def test_reflection_describes_the_services_under_both_names() -> None:
    """As protobuf's own pool reads it: the files that come are whole."""
    described = (files("headway._gen") / "descriptors.bin").read_bytes()
    names = ["headway.resource.v1.ResourceService", "hashicorp.consul.resource.ResourceService"]

    def ask(where: str, version: str, question: bytes) -> bytes:
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        with grpc.insecure_channel(where) as channel:
            (answer,) = list(channel.stream_stream(path)(iter([question]), timeout=20))
            reply: bytes = answer
            return reply

    async with served() as it:
        it.services.add(rpc.Reflection(it.services, rpc.DescribedFiles.of_set(described)))
        for version in ("v1", "v1alpha"):
            answer = await in_thread(partial(ask, it.where, version, b"\x3a\x00"))
            listed = decode(ServerReflectionResponse, answer).list_services_response
            assert listed is not None
            assert {*names, "grpc.health.v1.Health"} <= {each.name for each in listed.service}
        for name in names:
            question = encode(ServerReflectionRequest(file_containing_symbol=name))
            reply = decode(ServerReflectionResponse, await in_thread(partial(ask, it.where, "v1", question)))
            assert reply.file_descriptor_response is not None
            pool = DescriptorPool()
            for file in reversed(reply.file_descriptor_response.file_descriptor_proto):
                pool.AddSerializedFile(file)
            methods = [method.name for method in pool.FindServiceByName(name).methods]
            assert {"Read", "Write", "WatchList"} <= set(methods)
        question = encode(ServerReflectionRequest(file_containing_symbol="nobody.Knows"))
        reply = decode(ServerReflectionResponse, await in_thread(lambda: ask(it.where, "v1", question)))
        assert reply.error_response is not None
        assert reply.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
