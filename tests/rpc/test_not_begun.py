"""Calls that failed without any effect for certain, and calls with an unknown outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hyperframe.frame import SettingsFrame

import headway
from headway import rpc
from headway.api import Call, Exhausted, Handler, NotBegun, NotServed
from headway.client import Client
from headway.errors import HeadwayError, OutcomeUnknown, TooLarge, Unavailable
from headway.rpc import CHANNEL_LIMITS, Limits
from headway.rpc.http2 import CountingH2
from tests.helpers.heard_writes import Heard
from tests.helpers.wrapped_services import admitting
from tests.rpc.rpc_kit import ECHO, META, THING, WAIT, Served, Text, app, served

SMALL = Limits(message_size=1000)
LARGE = "x" * 2000


class Passing:
    """A wrapper that notes the calls that have reached it, and can fail them after their handler has finished."""

    def __init__(self, end: Callable[[], None] = lambda: None) -> None:
        self.paths: list[str] = []
        self._end = end

    def __call__(self, path: str, handler: Handler) -> Handler:
        async def note(_: Call) -> None:
            self.paths.append(path)

        async def answer(call: Call, request: Any) -> Any:
            reply = await handler.func(call, request)
            self._end()
            return reply

        handler = handler._replace(admit=admitting(note))
        return handler._replace(func=answer) if path.endswith("/Write") else handler


@asynccontextmanager
async def client_of(it: Served, **options: Any) -> AsyncIterator[tuple[Client, Heard, rpc.RemoteChannel]]:
    writes = Heard()
    async with rpc.open_channel(it.where, **options) as channel:
        yield Client(channel, app.registry, writes), writes, channel


@pytest.mark.parametrize("announced", [True, False])
async def test_oversized_write_certainly_has_no_effect(announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses it if the server has announced its limit. Otherwise the server refuses it unread."""
    if not announced:
        monkeypatch.setattr(CountingH2, "message_limit", None)
    passing = Passing()
    async with served(limits=SMALL, wrap=passing) as it, client_of(it) as (client, writes, _):
        with pytest.raises(TooLarge, match=r"\d{4} bytes.*1000") as caught:
            await client.write(THING.new("a", Text(text=LARGE)))
        assert caught.value.size > 2000
        assert caught.value.limit == 1000
        assert isinstance(caught.value, headway.errors.CallerError)
        assert writes.unknowns == []
        assert len(passing.paths) == (0 if announced else 1)
        assert await client.list(THING) == []
        assert (await client.write(THING.new("a", Text(text="x" * 500)))).version


async def test_server_announces_its_limit_for_messages() -> None:
    """The client learns it with the connection, and announces no limit itself."""
    async with served(limits=SMALL) as it, client_of(it) as (client, _, channel):
        await client.list(THING)
        (protocol,) = channel._calls._protocols
        assert protocol.connection.h2.message_limit == 1000
        (theirs,) = it.server._connections
        assert theirs.connection.h2.message_limit is None


async def test_limit_is_in_the_first_frame_of_the_server() -> None:
    """A client that learned it after the other settings could already have sent a larger message."""
    async with served(limits=SMALL) as it:
        host, _, port = it.where.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            received = b""
            while len(received) < 9 or len(received) < 9 + int.from_bytes(received[:3], "big"):
                received += await stream.receive_some()
    frame = received[: 9 + int.from_bytes(received[:3], "big")]
    assert frame[3] == SettingsFrame.type
    assert (0xF048).to_bytes(2, "big") + (1000).to_bytes(4, "big") in frame


def _exhausted() -> None:
    raise Exhausted("too much, says a proxy")


async def test_resource_exhausted_after_the_commit_is_unknown() -> None:
    """The same status comes from behind the handler: the write has happened."""
    async with served(wrap=Passing(_exhausted)) as it, client_of(it) as (client, writes, _):
        with pytest.raises(OutcomeUnknown, match="RESOURCE_EXHAUSTED"):
            await client.write(THING.new("a", Text()))
        assert len(writes.unknowns) == 1
        assert len(await client.list(THING)) == 1


async def test_write_with_an_oversized_reply_is_unknown() -> None:
    """Its write has happened, too."""
    limits = dataclasses.replace(CHANNEL_LIMITS, message_size=100)
    async with served() as it, client_of(it, limits=limits) as (client, writes, _):
        with pytest.raises(OutcomeUnknown, match="RESOURCE_EXHAUSTED"):
            await client.write(THING.new("a", Text(text=LARGE)))
        assert len(writes.unknowns) == 1


@pytest.mark.parametrize("path", ["/test.Echo/Nothing", META, ECHO])
async def test_only_calls_that_failed_before_their_handler_count_as_not_begun(path: str) -> None:
    """Cases: an unknown method, a handler that failed before it received anything, and one that failed after it."""

    async def fail(*_: Any) -> Any:
        raise Unavailable("not now")

    def failing(asked: str, handler: Handler) -> Handler:
        return handler._replace(func=fail) if asked == ECHO else handler._replace(admit=admitting(fail))

    async with served(wrap=failing) as it, rpc.open_channel(it.where) as channel:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(path, Text(), Text)
        assert isinstance(caught.value, NotBegun | NotServed) == (path != ECHO)


async def test_write_to_a_stopping_server_is_unavailable() -> None:
    """The server states that it has not begun with the call."""
    writes = Heard()
    async with trio.open_nursery() as nursery:
        stop, stopping = trio.Event(), trio.Event()

        async def serve(*, task_status: trio.TaskStatus[Served]) -> None:
            async with served() as it:
                task_status.started(it)
                await stop.wait()
            stopping.set()

        it = await nursery.start(serve)
        async with rpc.open_channel(it.where) as channel, trio.open_nursery() as calls:
            client = Client(channel, app.registry, writes)
            # This call keeps the server, and so the connection, open during the grace period.
            calls.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            stop.set()
            while not it.server._stopping:
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Unavailable, match="stopping"):
                await client.write(THING.new("a", Text()))
            it.echo.release.set()
        await stopping.wait()
    assert writes.unknowns == []


def test_not_begun_error_survives_copying() -> None:
    """Errors are copied when they cross processes."""
    error = TooLarge("the request is too large", 5, 4)
    assert type(error)(*error.args).limit == 4
    assert str(error) == "the request is too large"
