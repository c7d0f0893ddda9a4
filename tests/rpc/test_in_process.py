"""The channel inside a process: a caller sees what a server over the network would show."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.api import Call, stream
from headway.errors import Conflict, HeadwayError, HistoryCompacted, InvalidArgument, NotFound
from headway.protobuf import decode
from headway.resource import pb
from headway.rpc import Channel, InProcessChannel, Services, open_channel, open_server
from tests.helpers.service_errors import answer_of, status_of
from tests.rpc.in_process_kit import REQUEST, Serve, Service, answering, failing, raising, sending


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
        except HeadwayError as error:
            self.status, self.message = status_of(error), answer_of(error)


async def seen_through(channel: Channel, path: str) -> Seen:
    seen = Seen()
    with seen.ending():
        if "stream" in path:
            async with channel.stream(path, REQUEST) as items:
                async for item in items:
                    seen.messages.append(item)
        else:
            seen.messages.append(await channel.unary(path, REQUEST, pb.Type))
    return seen


async def in_process(path: str, service: Service, reported: list[BaseException]) -> Seen:
    return await seen_through(InProcessChannel(service, report=lambda _, error: reported.append(error)), path)


async def over_a_wire(path: str, service: Service) -> Seen:
    def decoder() -> Any:
        return lambda bodies: [decode(pb.Type, body) for body in bodies]

    async with (
        open_server(Services(service), ["127.0.0.1:0"], report=lambda *_: None) as server,
        open_channel(server.addresses[0], decoders={path: decoder}) as channel,
    ):
        return await seen_through(channel, path)


ENDINGS: list[tuple[str, Serve, bool]] = [
    ("refuses", failing(lambda: NotFound("name 'x' is not there")), False),
    ("refuses_without_words", failing(lambda: Conflict("")), False),
    ("refuses_in_other_letters", failing(lambda: InvalidArgument("größer als 100 % ist zu viel")), False),
    ("crashes", failing(lambda: ValueError("a secret")), True),
    ("crashes_in_a_group", failing(lambda: ExceptionGroup("two", [NotFound("x")])), True),
    ("times_out", failing(lambda: TimeoutError("slow")), True),
    ("stops", failing(lambda: StopAsyncIteration()), True),
    ("answers", answering(pb.Type(kind="Reply")), False),
    ("stream_answers", sending(pb.Type(kind="One"), pb.Type(kind="Two")), False),
    ("stream_answers_nothing", sending(), False),
    ("stream_refuses", raising(lambda: NotFound("no")), False),
    ("stream_refuses_in_the_middle", raising(lambda: HistoryCompacted("too far"), after=2), False),
    ("stream_crashes", raising(lambda: ValueError("a secret")), True),
    ("stream_crashes_in_the_middle", raising(lambda: ValueError("a secret"), after=2), True),
    ("stream_crashes_by_stopping", raising(lambda: StopAsyncIteration(), after=2), True),
]


@pytest.mark.parametrize(("name", "serve", "crashes"), ENDINGS, ids=lambda each: each if isinstance(each, str) else "")
def test_in_process_caller_sees_the_same_as_a_remote_one(name: str, serve: Serve, crashes: bool) -> None:
    """Messages, status and words are equal. An error that a service may not raise is UNKNOWN, and reported in full."""
    path, service, reported = f"/test/{name}", Service(**{name: serve}), list[BaseException]()
    wire = trio.run(over_a_wire, path, service)
    assert trio.run(in_process, path, service, reported) == wire
    assert (len(reported) == 1) is crashes
    if crashes:
        assert (wire.status, wire.message) == (Status.UNKNOWN, "Internal Server Error")


def test_answer_of_another_class_is_a_fault_of_the_service() -> None:
    for answer in (None, pb.Id(name="x")):
        reported = list[BaseException]()
        seen = trio.run(in_process, "/test/answers", Service(answers=answering(answer)), reported)
        assert (seen.status, seen.messages) == (Status.UNKNOWN, [])
        assert [type(each) for each in reported] == [TypeError]


@pytest.mark.parametrize("path", ["/test/nothing", "/test/stream_nothing"])
def test_unknown_method_is_unimplemented(path: str) -> None:
    """The message names the path, as a gRPC server's does, and nothing is reported. grpclib's own client does not get
    this far: it insists on a header that its server's answer lacks.
    """
    reported: list[BaseException] = []
    ours = trio.run(in_process, path, Service(), reported)
    assert (ours.status, ours.message) == (Status.UNIMPLEMENTED, f"Method not found: {path}")
    assert reported == []


async def test_in_process_channel_copies_nothing() -> None:
    """A service gets the caller's own request and metadata, and a caller the service's own messages."""
    replies = [pb.Type(kind="One"), pb.Type(kind="Two")]
    requests: list[tuple[object, object]] = []

    async def answer(call: Call, request: pb.Type) -> pb.Type:
        requests.append((request, call.metadata))
        return replies[0]

    @stream
    async def send(call: Call, request: pb.Type) -> AsyncGenerator[pb.Type, None]:
        requests.append((request, call.metadata))
        for reply in replies:
            yield reply

    channel, metadata = InProcessChannel(Service(call=answer, stream_call=send)), {"who": "me"}
    assert await channel.unary("/test/call", REQUEST, pb.Type, metadata=metadata) is replies[0]
    async with channel.stream("/test/stream_call", REQUEST, metadata=metadata) as items:
        assert [id(item) async for item in items] == [id(reply) for reply in replies]
    for request, given in requests:
        assert request is REQUEST
        assert given is metadata
