"""Helpers of the forwarding tests: an upstream, forwarders before it, and a service that reports what it received."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from grpclib.exceptions import StreamTerminatedError
from h2.errors import ErrorCodes

from headway import rpc
from headway.api import Cardinality, Duplex, Handler
from headway.protobuf import encode
from headway.rpc import framed
from tests.helpers.wrapped_services import admitting
from tests.rpc.rpc_kit import Served, Text, served

_METHODS = ("Left", "Odd", "Refuse", "Break", "Talk", "Halves", "Deaf", "ChangeMind")
LEFT, ODD, REFUSE, BREAK, TALK, HALVES, DEAF, CHANGE_MIND = (f"/test.Odd/{name}" for name in _METHODS)
DETAILS = "grpc-status-details-bin"


_ENDED = StreamTerminatedError("the service has ended the call by itself")


class Odd:
    """A service with behavior that the resource service lacks and another service might have."""

    def __init__(self) -> None:
        self.calls = 0
        self.refusals = 0
        self.half_sent = trio.Event()
        self.go_on = trio.Event()
        self.deaf = trio.Event()
        self.deaf_ended = trio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        one, talk = Cardinality.UNARY_UNARY, Cardinality.STREAM_STREAM
        functions: dict[str, tuple[Any, Cardinality]] = {
            LEFT: (self._left, one),
            ODD: (self._odd, one),
            REFUSE: (self._refuse, one),
            BREAK: (self._break, one),
            TALK: (self._talk, talk),
            HALVES: (self._halves, one),
            CHANGE_MIND: (self._change_mind, one),
        }
        handlers = {path: Handler(function, kind, Text, Text) for path, (function, kind) in functions.items()}
        return {**handlers, DEAF: Handler(self._left, one, Text, Text, admit=admitting(self._deaf))}

    async def _left(self, call: Any, _: Text) -> Text:
        """Return the seconds until the deadline, as far as this service knows it."""
        return Text(text="for ever" if call.deadline is None else str(call.deadline.time_remaining()))

    async def _odd(self, stream: Any, request: Text) -> Text:
        """Answer with unusual headers, status details and trailers."""
        await stream.send_headers(
            [(":status", "200"), ("content-type", "application/grpc+proto"), ("x-first", "1"), ("x-both", "a")]
        )
        if request.text == "answer":
            await stream.send_message(Text(text="answered"))
        status = "0" if request.text == "answer" else "9"
        await stream.send_headers(
            [
                ("grpc-status", status),
                ("grpc-message", "no, 100%25"),
                (DETAILS, "b2YgYSBmYWlsdXJl"),
                ("x-last", "2"),
                ("x-both", "b"),
            ],
            end=True,
        )
        raise _ENDED

    async def _refuse(self, stream: Any, request: Text) -> Text:
        """Refuse the call a number of times as a server that has not begun with it, and then answer."""
        self.calls += 1
        if self.refusals:
            self.refusals -= 1
            stream.http2.abandon(ErrorCodes.REFUSED_STREAM)
            raise _ENDED
        return request

    async def _break(self, stream: Any, request: Text) -> Text:
        """Send the reply without ever ending the stream."""
        self.calls += 1
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        await stream.send_message(request)
        stream.http2.abandon(ErrorCodes.INTERNAL_ERROR)
        raise _ENDED

    async def _change_mind(self, stream: Any, _: Text) -> Text:
        """Begin to answer, and then refuse the call as if it had not begun."""
        self.calls += 1
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        stream.http2.abandon(ErrorCodes.REFUSED_STREAM)
        raise _ENDED

    async def _halves(self, stream: Any, request: Text) -> Text:
        """Send one reply in two parts."""
        reply = framed(encode(request))
        half = len(reply) // 2
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        await stream.send_data(reply[:half])
        self.half_sent.set()
        await self.go_on.wait()
        await stream.send_data(reply[half:])
        await stream.send_headers([("grpc-status", "0")], end=True)
        raise _ENDED

    async def _deaf(self, _: Any) -> None:
        """Never read the request."""
        self.deaf.set()
        try:
            await trio.sleep_forever()
        finally:
            self.deaf_ended.set()

    async def _talk(self, _: Any, stream: Duplex) -> None:
        """Speak first, answer each message, and end when the client does."""
        await stream.send_message(Text(text="hello"))
        while (request := await stream.recv_message()) is not None:
            await stream.send_message(request)


@asynccontextmanager
async def forwarded(hops: int = 1, **options: Any) -> AsyncIterator[tuple[Served, str]]:
    """A server and the address of a forwarder before it. With more hops, the forwarders form a chain."""
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(served(**options))
        where = it.where
        for _ in range(hops):
            server = await stack.enter_async_context(rpc.open_forwarder(where, ["127.0.0.1:0"]))
            where = server.addresses[0]
        yield it, where


class Restarting:
    """A server that can be stopped and started again at its address."""

    def __init__(self, it: Served, path: str) -> None:
        self.where = f"unix:{path}"
        self._services = it.services
        self.server: Any = None
        self._end = trio.Event()
        self._ended = trio.Event()

    async def start(self, nursery: trio.Nursery, **options: Any) -> None:
        self._end, self._ended = trio.Event(), trio.Event()
        self.server = await nursery.start(self._run, options)

    async def stop(self) -> None:
        self._end.set()
        await self._ended.wait()

    async def _run(self, options: dict[str, Any], task_status: trio.TaskStatus[Any]) -> None:
        try:
            async with rpc.open_server(self._services, [self.where], **options) as server:
                task_status.started(server)
                await self._end.wait()
        finally:
            self._ended.set()
