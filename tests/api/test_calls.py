"""Errors of failed calls: each says of which call, and so is told from an error of the caller's own code."""

from __future__ import annotations

import copy
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status
from trio.testing import MockClock

import headway
from headway.api import ROWS, Call, Code, FailedCall, Row, call_of, code_of, described
from headway.client import Client, LeaseClient
from headway.client._refusals import in_doubt
from headway.errors import Conflict, InvalidArgument, NotFound, RateLimited
from headway.quotas import list_quotas
from headway.resource import pb
from headway.rpc import (
    InProcessChannel,
    Services,
    WithMetadata,
    grpc_error,
    open_channel,
    open_server,
    token_metadata,
    told,
)
from headway.rpc._channel import ChannelClosed, NotBegun, NotGrpc, NotHttp2, NotReached, NotServed, TooLarge
from headway.rpc._limited import Limited
from headway.service import RESOURCE_SERVICE, WATCH_LIST, ResourceService, TypesService, WatchDecoder, watch_encoders
from headway.storage import MemoryBackend
from headway.versions import Comparison
from tests.client.test_outcomes import Failing
from tests.helpers.compared import TEAM
from tests.helpers.declared import NOTE, a_note, registry
from tests.helpers.service_errors import an_error, failed
from tests.helpers.wrapped_services import WrappedServices, answering

UNREACHED: list[GRPCError] = [
    ChannelClosed(),
    NotBegun(Status.UNAVAILABLE, "not sent"),
    NotGrpc(Status.UNIMPLEMENTED, "a web page"),
    NotHttp2([]),
    NotReached([]),
    NotServed("no such method", "10.0.0.1:9000"),
    TooLarge(7, 5),
    Limited("too many", 1.5),
]
"""The errors of a call that no service has answered."""


def program() -> headway.App:
    app = headway.App("staff")
    app.registry.register(TEAM)
    return app


def wires() -> list[GRPCError]:
    found = [grpc_error(an_error(row)) for row in ROWS]
    plain = [GRPCError(status, "because") for status in Status if status is not Status.OK]
    return [*(each for each in found if each is not None), *plain, *UNREACHED]


@pytest.mark.parametrize("wire", wires(), ids=lambda each: f"{type(each).__name__}-{each.status.name}")
def test_error_of_a_call_has_its_status_and_message(wire: GRPCError) -> None:
    """Copies of it have them too: an error may be raised in several tasks, and pass to another process."""
    error = told(wire)
    call = call_of(error)

    assert call is not None
    assert (call.code, call.message) == (wire.status.value, wire.message)
    assert call.not_begun is isinstance(wire, NotBegun)
    assert described(error) == f"{wire.status.name}: {wire.message}"
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again), code_of(again)) == (type(error), str(error), call.code)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.error.__name__)
def test_error_of_other_code_is_of_no_call(row: Row) -> None:
    """A reader of a stream tells what the server has said from what its own code raises in the block."""
    assert call_of(an_error(row)) is None
    assert call_of(ValueError("x")) is None


async def test_channels_raise_errors_of_calls() -> None:
    """Within the process and over a network, they are the same."""
    service = ResourceService(MemoryBackend(), registry())
    missing = pb.ReadRequest(id=NOTE.id("nobody").message())
    calls: list[FailedCall | None] = []
    async with (
        open_server(Services(service), ["127.0.0.1:0"]) as server,
        open_channel(server.addresses[0]) as remote,
    ):
        for channel in (InProcessChannel(service), remote):
            with pytest.raises(NotFound) as caught:
                await channel.unary(f"/{RESOURCE_SERVICE}/Read", missing, pb.ReadResponse)
            calls.append(call_of(caught.value))
    assert calls == [FailedCall(Code.NOT_FOUND, "Note nobody not found")] * 2


async def watched(client: Client) -> None:
    async with client.watch(NOTE) as events:
        await anext(events)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.read(NOTE, "nobody"),
        lambda client: client.list(NOTE),
        lambda client: client.write(NOTE.new("one")),
        watched,
        list_quotas,
        lambda client: LeaseClient(client._channel).list(),
    ],
)
async def test_errors_of_a_client_are_of_no_call(ask: Callable[[Client], Awaitable[object]]) -> None:
    """A program's client may fail in a block that reads a stream, which has not failed then."""

    with pytest.raises(NotFound) as caught:
        await ask(Client(Failing(failed(Status.NOT_FOUND, "no such thing")), registry()))
    assert call_of(caught.value) is None


async def test_error_of_a_programs_own_call_passes_through_a_stream() -> None:
    """The block of a stream may use a stub of grpclib."""
    services = Services(ResourceService(MemoryBackend(), registry()), encoders=watch_encoders())
    own = GRPCError(Status.NOT_FOUND, "of another server")
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        open_channel(server.addresses[0], decoders={WATCH_LIST: WatchDecoder}) as channel,
    ):
        client = Client(channel, registry())

        async def ask() -> None:
            async with client.watch(NOTE) as events:
                await anext(events)
                raise own

        with pytest.raises(GRPCError) as caught:
            await ask()
    assert caught.value is own


@pytest.mark.parametrize("compared", [False, True])
async def test_cache_ends_with_an_error_of_its_own_program(compared: bool) -> None:
    """No stream has ended with it: it was raised before the call, and would be raised again for ever."""
    tokens = ["hw_1", "hw_1\nx"]
    async with headway.open_engine(
        "memory:", program(), network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        with trio.fail_after(20), pytest.raises(InvalidArgument, match="invalid token"):
            async with (
                open_channel(engine.addresses[0], decoders={WATCH_LIST: WatchDecoder}, insecure=True) as channel,
                headway.open_cache(
                    engine.addresses[0] if compared else channel,
                    program(),
                    watches=[TEAM],
                    token=lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0],
                    insecure=True,
                ),
            ):
                await trio.sleep_forever()


async def test_comparison_ends_with_an_error_of_its_own_program() -> None:
    channel = WithMetadata(InProcessChannel(TypesService(registry())), token_metadata(lambda: "hw_1\nx") or {})
    with trio.fail_after(20), pytest.raises(InvalidArgument, match="invalid token"):
        await Comparison([TEAM]).wait_refused(channel)


async def test_list_falls_back_for_a_server_without_watches() -> None:
    class Lists:
        knows_outcomes = False
        timeout = 30.0

        async def unary(self, *_: Any, **__: Any) -> Any:
            return pb.ListResponse(resources=[a_note("one")])

        @asynccontextmanager
        async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[Any]]:
            raise failed(Status.UNIMPLEMENTED, "no such method")
            yield

    found = await Client(Lists(), registry()).list(NOTE)
    assert [each.id.name for each in found] == ["one"]


async def test_call_waits_if_a_limit_refuses_what_comes_before_it() -> None:
    """On a new connection that is the description of the types."""
    refusals = 2

    async def limit(path: str, call: Call, request: Any, answer: Any) -> Any:
        nonlocal refusals
        if path.endswith("TypesService/List") and refusals:
            refusals -= 1
            raise RateLimited("too many calls", 0.05)
        return await answer(call, request)

    app, store = program(), MemoryBackend()
    plain = ResourceService(store, app.registry)
    await Client(InProcessChannel(plain), app.registry).write(TEAM.new("core"))
    services = Services(WrappedServices(answering(limit), plain, TypesService(app.registry)))
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        headway.connect(server.addresses[0], app) as client,
    ):
        assert (await client.read(TEAM, "core")).id.name == "core"
    assert not refusals


async def test_write_after_a_refused_one_is_in_doubt(autojump_clock: MockClock) -> None:
    """A program handles a refusal by another write, which is canceled after it was sent."""
    doubts: list[bool] = []

    async def write() -> None:
        try:
            raise RateLimited("too many calls", 1.0)
        except RateLimited:
            try:
                await trio.sleep_forever()
            except trio.Cancelled as canceled:
                doubts.append(in_doubt(canceled, knows_outcomes=False))
                raise

    with trio.move_on_after(1.0):
        await write()
    assert doubts == [True]
    assert not in_doubt(Conflict("x"), knows_outcomes=False)
