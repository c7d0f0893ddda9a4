"""The channel inside a process: a caller sees what a server over the network would show."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from dataclasses import dataclass, field
from typing import Any, cast

import grpclib.client
import grpclib.server
import pytest
import trio
import trio.testing
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import HeadwayError
from headway.resource import pb
from headway.rpc import InProcessChannel
from headway.service import unary_handlers
from tests.helpers.service_errors import answer_of, status_of
from tests.rpc.in_process_kit import REQUEST, Serve, Service, raising, sending


@dataclass
class Seen:
    """The messages that a caller received, and how the call ended."""

    messages: list[object] = field(default_factory=list)
    status: Status = Status.OK
    message: str | None = None

    @contextlib.contextmanager
    def ending(self) -> Any:
        try:
            yield
        except GRPCError as error:
            self.status, self.message = error.status, error.message or error.status.name
        except HeadwayError as error:
            self.status, self.message = status_of(error), answer_of(error)


async def in_process(path: str, service: Service, reported: list[BaseException]) -> Seen:
    channel, seen = InProcessChannel(service, report=lambda _, error: reported.append(error)), Seen()
    with seen.ending():
        if "stream" in path:
            async with channel.stream(path, REQUEST) as items:
                async for item in items:
                    seen.messages.append(item)
        else:
            seen.messages.append(await channel.unary(path, REQUEST, pb.Type))
    return seen


async def over_a_wire(path: str, service: Service) -> Seen:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server, seen = grpclib.server.Server([cast("Any", service)]), Seen()
        await server.start(sock=listener)
        channel = grpclib.client.Channel(*listener.getsockname())
        try:
            with seen.ending():
                if "stream" in path:
                    method: Any = grpclib.client.UnaryStreamMethod(channel, path, pb.Type, pb.Type)
                    async with method.open() as stream:
                        await stream.send_message(REQUEST, end=True)
                        async for item in stream:
                            seen.messages.append(item)
                else:
                    unary: Any = grpclib.client.UnaryUnaryMethod(channel, path, pb.Type, pb.Type)
                    seen.messages.append(await unary(REQUEST))
        finally:
            channel.close()
            server.close()
            await server.wait_closed()
    return seen


ENDINGS: list[tuple[str, Serve, bool]] = [
    ("refuses", raising(lambda: GRPCError(Status.NOT_FOUND, "name 'x' is not there")), False),
    ("refuses_without_words", raising(lambda: GRPCError(Status.ABORTED)), False),
    (
        "refuses_in_other_letters",
        raising(lambda: GRPCError(Status.INVALID_ARGUMENT, "größer als 100 % ist zu viel")),
        False,
    ),
    ("refuses_after_its_answer", raising(lambda: GRPCError(Status.DATA_LOSS, "late"), after=1), False),
    ("crashes", raising(lambda: ValueError("a secret")), True),
    ("crashes_after_its_answer", raising(lambda: ValueError("a secret"), after=1), True),
    ("crashes_in_a_group", raising(lambda: ExceptionGroup("two", [GRPCError(Status.NOT_FOUND, "x")])), True),
    ("times_out", raising(lambda: TimeoutError("slow")), True),
    ("stops", raising(lambda: StopAsyncIteration()), True),
    ("answers", sending(pb.Type(kind="Reply")), False),
    ("answers_nothing", sending(), True),
    ("answers_something_else", sending(pb.Id(name="x")), True),
    ("stream_answers", sending(pb.Type(kind="One"), pb.Type(kind="Two")), False),
    ("stream_answers_nothing", sending(), False),
    ("stream_refuses", raising(lambda: GRPCError(Status.NOT_FOUND, "no")), False),
    ("stream_refuses_in_the_middle", raising(lambda: GRPCError(Status.OUT_OF_RANGE, "too far"), after=2), False),
    ("stream_crashes", raising(lambda: ValueError("a secret")), True),
    ("stream_crashes_in_the_middle", raising(lambda: ValueError("a secret"), after=2), True),
    ("stream_crashes_by_stopping", raising(lambda: StopAsyncIteration(), after=2), True),
]


@pytest.mark.parametrize(("name", "serve", "crashes"), ENDINGS, ids=lambda each: each if isinstance(each, str) else "")
def test_in_process_caller_sees_the_same_as_a_remote_one(name: str, serve: Serve, crashes: bool) -> None:
    """Messages, status and words are equal. A missing answer is UNKNOWN, and reported in full."""
    path, service, reported = f"/test/{name}", Service(**{name: serve}), list[BaseException]()
    wire = asyncio.run(over_a_wire(path, service))
    assert trio.run(in_process, path, service, reported) == wire
    assert (len(reported) == 1) is crashes
    if crashes:
        assert (wire.status, wire.message) == (Status.UNKNOWN, "Internal Server Error")


@pytest.mark.parametrize("path", ["/test/nothing", "/test/stream_nothing"])
def test_unknown_method_is_unimplemented(path: str) -> None:
    """The message names the path, as a gRPC server's does, and nothing is reported. grpclib's own client does not get
    this far: it insists on a header that its server's answer lacks.
    """
    reported: list[BaseException] = []
    ours = trio.run(in_process, path, Service(), reported)
    assert (ours.status, ours.message) == (Status.UNIMPLEMENTED, f"Method not found: {path}")
    assert reported == []


async def test_wrapper_around_a_handler_is_called() -> None:
    """The handler may be able to answer without a stream, and the wrapper may copy its attributes."""

    async def answer(request: pb.Type) -> pb.Type:
        return pb.Type(group=request.kind)

    bare = unary_handlers("test", unary=(answer, pb.Type, pb.Type))["/test/unary"].func
    called: list[str] = []

    @functools.wraps(bare)
    async def wrapped(stream: Any) -> None:
        called.append("wrapped")
        await bare(stream)

    for handler in (bare, wrapped):
        reply = await InProcessChannel(Service(unary=handler)).unary("/test/unary", REQUEST, pb.Type)
        assert reply.group == "Request"
    assert called == ["wrapped"]


async def test_in_process_channel_copies_nothing() -> None:
    """A handler gets the caller's own request and metadata, and a caller the handler's own messages."""
    replies = [pb.Type(kind="One"), pb.Type(kind="Two")]
    requests: list[tuple[object, object]] = []

    async def serve(stream: Any) -> None:
        requests.append((await stream.recv_message(), stream.metadata))
        for reply in replies[: len(requests)]:
            await stream.send_message(reply)

    channel, metadata = InProcessChannel(Service(call=serve, stream_call=serve)), {"who": "me"}
    assert await channel.unary("/test/call", REQUEST, pb.Type, metadata=metadata) is replies[0]
    async with channel.stream("/test/stream_call", REQUEST, metadata=metadata) as items:
        assert [id(item) async for item in items] == [id(reply) for reply in replies]
    for request, given in requests:
        assert request is REQUEST
        assert given is metadata
