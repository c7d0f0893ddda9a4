"""Helpers of the forwarding tests: an upstream, forwarders before it, and a service that reports what it received."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from grpclib.const import Cardinality, Handler
from h2.errors import ErrorCodes

from headway import rpc
from headway.protobuf import encode
from headway.rpc import framed
from tests.rpc.rpc_kit import Served, Text, served

_METHODS = ("Left", "Odd", "Refuse", "Break", "Talk", "Halves", "Deaf", "ChangeMind")
LEFT, ODD, REFUSE, BREAK, TALK, HALVES, DEAF, CHANGE_MIND = (f"/test.Odd/{name}" for name in _METHODS)
DETAILS = "grpc-status-details-bin"


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
            DEAF: (self._deaf, one),
            CHANGE_MIND: (self._change_mind, one),
        }
        return {path: Handler(function, kind, Text, Text) for path, (function, kind) in functions.items()}

    async def _left(self, stream: Any) -> None:
        """Return the seconds until the deadline, as far as this service knows it."""
        await stream.recv_message()
        left = "for ever" if stream.deadline is None else str(stream.deadline.time_remaining())
        await stream.send_message(Text(text=left))

    async def _odd(self, stream: Any) -> None:
        """Answer with unusual headers, status details and trailers."""
        request = await stream.recv_message()
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

    async def _refuse(self, stream: Any) -> None:
        """Refuse the call a number of times as a server that has not begun with it, and then answer."""
        request = await stream.recv_message()
        self.calls += 1
        if self.refusals:
            self.refusals -= 1
            stream.http2.abandon(ErrorCodes.REFUSED_STREAM)
            return
        await stream.send_message(request)

    async def _break(self, stream: Any) -> None:
        """Send the reply without ever ending the stream."""
        request = await stream.recv_message()
        self.calls += 1
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        await stream.send_message(request)
        stream.http2.abandon(ErrorCodes.INTERNAL_ERROR)

    async def _change_mind(self, stream: Any) -> None:
        """Begin to answer, and then refuse the call as if it had not begun."""
        await stream.recv_message()
        self.calls += 1
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        stream.http2.abandon(ErrorCodes.REFUSED_STREAM)

    async def _halves(self, stream: Any) -> None:
        """Send one reply in two parts."""
        reply = framed(encode(await stream.recv_message()))
        half = len(reply) // 2
        await stream.send_headers([(":status", "200"), ("content-type", "application/grpc+proto")])
        await stream.send_data(reply[:half])
        self.half_sent.set()
        await self.go_on.wait()
        await stream.send_data(reply[half:])
        await stream.send_headers([("grpc-status", "0")], end=True)

    async def _deaf(self, _: Any) -> None:
        """Never read the request."""
        self.deaf.set()
        try:
            await trio.sleep_forever()
        finally:
            self.deaf_ended.set()

    async def _talk(self, stream: Any) -> None:
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
