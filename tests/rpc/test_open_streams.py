"""Services without authentication: limits for the number, duration and size of their streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock

import headway
from headway.access import Access, Authorizer
from headway.errors import HeadwayError
from headway.protobuf import decode
from headway.rpc import (
    DescribedFiles,
    Health,
    HealthCheckRequest,
    HealthCheckResponse,
    OpenStreams,
    Reflection,
    RemoteChannel,
    ServerReflectionRequest,
    ServerReflectionResponse,
    Services,
    _forward,
    open_channel,
    open_forwarder,
    open_server,
)
from tests.helpers.service_errors import status_of

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


def bodies(type: Any) -> Any:
    return lambda: lambda bodies: [decode(type, body) for body in bodies]


DECODERS = {
    CHECK: bodies(HealthCheckResponse),
    WATCH: bodies(HealthCheckResponse),
    REFLECT: bodies(ServerReflectionResponse),
}


@asynccontextmanager
async def serving(streams: OpenStreams, listen: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, Health]]:
    services, health = Services(), Health(streams=streams)
    services.add(health)
    services.add(Reflection(services, DescribedFiles(()), streams=streams))
    with trio.fail_after(200):
        async with open_server(services, [listen]) as server:
            yield server.addresses[0], health


@asynccontextmanager
async def connected(where: str) -> AsyncIterator[RemoteChannel]:
    async with open_channel(where, decoders=DECODERS) as channel:
        yield channel


async def watching(stack: AsyncExitStack, channel: RemoteChannel) -> None:
    """Open another watch of health."""
    stream = await stack.enter_async_context(channel.stream(WATCH, HealthCheckRequest()))
    assert (await anext(stream)).status == 1


async def reflecting(stack: AsyncExitStack, channel: RemoteChannel) -> None:
    """Open another stream of reflection."""
    stream = await stack.enter_async_context(channel.duplex(REFLECT, ServerReflectionRequest(list_services="")))
    answer = await anext(aiter(stream))
    assert answer.list_services_response.service


@pytest.mark.parametrize("begin", [watching, reflecting])
@pytest.mark.parametrize(("bound", "where"), [((2, 9), "this connection"), ((9, 2), "this server")])
async def test_streams_beyond_the_limit_are_refused_until_others_end(
    begin: Any, bound: tuple[int, int], where: str
) -> None:
    """Unary calls continue."""
    streams = OpenStreams(*bound)
    async with serving(streams) as (address, _), connected(address) as channel, AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            await begin(first, channel)
            await begin(first, channel)
            with pytest.raises(HeadwayError, match=f"{where} has 2 open streams") as refused:
                await begin(stack, channel)
            assert status_of(refused.value) is Status.RESOURCE_EXHAUSTED
            answer = await channel.unary(CHECK, HealthCheckRequest(), HealthCheckResponse)
            assert answer.status == 1
        while streams.open:
            await trio.lowlevel.checkpoint()
        await begin(stack, channel)


async def test_full_connection_leaves_room_for_another() -> None:
    async with serving(OpenStreams(1, 9)) as (address, _), AsyncExitStack() as stack:
        for _ in range(3):
            await watching(stack, await stack.enter_async_context(connected(address)))


async def test_connection_with_most_streams_yields_one_to_another() -> None:
    """A stranger that holds all streams of a server cannot keep others from watching."""
    streams = OpenStreams(9, 3)
    async with serving(streams) as (address, _), AsyncExitStack() as stack:
        greedy = await stack.enter_async_context(connected(address))
        held = []
        for _ in range(3):
            # They are opened one after the other, because the server may begin concurrent calls in any order.
            held.append(await stack.enter_async_context(greedy.stream(WATCH, HealthCheckRequest())))
            assert (await anext(held[-1])).status == 1
        honest = await stack.enter_async_context(connected(address))
        await watching(stack, honest)
        with pytest.raises(HeadwayError, match="this server has 3 open streams") as ended:
            await anext(held[2])
        assert status_of(ended.value) is Status.RESOURCE_EXHAUSTED
        with pytest.raises(HeadwayError, match="this server has 3 open streams"):
            await watching(stack, honest)
        assert streams.open == 3


async def test_clients_of_a_forwarder_yield_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sees one client, and would refuse the honest one."""
    monkeypatch.setattr(_forward, "_STRANGERS", 2)
    streams = OpenStreams(9, 3)
    async with (
        serving(streams) as (address, _),
        open_forwarder(address, ["127.0.0.1:0"]) as forwarder,
        connected(forwarder.addresses[0]) as greedy,
        connected(forwarder.addresses[0]) as honest,
        AsyncExitStack() as stack,
    ):
        await watching(stack, greedy)
        async with greedy.stream(WATCH, HealthCheckRequest()) as newest:
            assert (await anext(newest)).status == 1
            await watching(stack, honest)
            with pytest.raises(HeadwayError, match="this server has 2 open streams") as ended:
                await anext(newest)
            assert status_of(ended.value) is Status.RESOURCE_EXHAUSTED


async def test_idle_reflection_stream_ends(autojump_clock: MockClock, tmp_path: Path) -> None:
    """It ends a minute after the last request. A watch of health stays."""
    streams = OpenStreams()
    async with (
        serving(streams, f"unix:{tmp_path}/server") as (address, health),
        connected(address) as channel,
        channel.duplex(REFLECT, ServerReflectionRequest(list_services="")) as call,
        channel.stream(WATCH, HealthCheckRequest()) as watch,
    ):
        answers = aiter(call)
        assert (await anext(watch)).status == 1
        await anext(answers)
        await trio.sleep(60 - 1)
        await call.send(ServerReflectionRequest(list_services=""))
        await anext(answers)
        asked = trio.current_time()
        with pytest.raises(StopAsyncIteration):
            await anext(answers)
        assert trio.current_time() - asked == pytest.approx(60, abs=1)
        assert streams.open == 1
        health.set_all(serving=False)
        assert (await anext(watch)).status == 2


@pytest.mark.parametrize(
    ("path", "request_of"),
    [
        (CHECK, lambda text: HealthCheckRequest(service=text)),
        (WATCH, lambda text: HealthCheckRequest(service=text)),
        (REFLECT, lambda text: ServerReflectionRequest(file_containing_symbol=text)),
    ],
)
async def test_request_over_a_few_kilobytes_is_refused_by_its_length(path: str, request_of: Any) -> None:
    streams = OpenStreams()
    async with serving(streams) as (address, _), connected(address) as channel:
        call = partial(channel.stream, path, request_of("x" * 4096))
        with pytest.raises(HeadwayError) as refused:
            async with channel.duplex(path, request_of("x" * 4096)) if path == REFLECT else call() as answers:
                await anext(aiter(answers))
        assert status_of(refused.value) is Status.RESOURCE_EXHAUSTED
        assert streams.open == 0


async def test_engine_limits_streams_of_callers_without_a_token() -> None:
    """The limit is a hundred on one connection of a stock client."""

    def client(where: str) -> tuple[int, Any]:
        with grpc.insecure_channel(where) as channel:
            watches = [channel.unary_stream(WATCH)(b"", timeout=20) for _ in range(101)]
            opened = 0
            code = None
            for each in watches:
                try:
                    next(each)
                    opened += 1
                except grpc.RpcError as error:
                    code = error.code()
            return opened, code

    async with headway.open_engine(
        "memory:", network=headway.Network(["127.0.0.1:0"], access=Authorizer(Access()))
    ) as engine:
        opened, code = await trio.to_thread.run_sync(client, engine.addresses[0])
    assert (opened, code) == (100, grpc.StatusCode.RESOURCE_EXHAUSTED)
