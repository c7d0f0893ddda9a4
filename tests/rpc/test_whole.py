"""Calls whose request arrives whole are answered without a stream, and get one as soon as they need it."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from h2.events import DataReceived, PingAckReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame, PingFrame, WindowUpdateFrame

from headway import rpc
from headway.api import Call, Cardinality, Handler
from headway.protobuf import decode, encode
from headway.rpc.http2 import CountingH2, Http2Processor, Http2Protocol, _protocol
from headway.rpc.server._transport import SocketTransport
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import ECHO, FAIL, WAIT, Served, Text, served

ADMITTED = "/test.Admitted/Echo"
GOAWAY = GoAwayFrame(0).serialize()


class Admitted:
    """A service whose calls wait before their request is received, or after they have been answered, and may fail.

    Args:
        first: True if they wait before their request is received.
        error: what the guard raises at the end.
        failure: what the handler raises.
    """

    def __init__(
        self, *, first: bool = False, error: Exception | None = None, failure: Exception | None = None
    ) -> None:
        self._first = first
        self._error = error
        self._failure = failure
        self.release = trio.Event()
        self.ended = trio.Event()
        self.calls: list[Call] = []

    def __mapping__(self) -> dict[str, Handler]:
        return {ADMITTED: Handler(self._echo, Cardinality.UNARY_UNARY, Text, Text, self._admit)}

    async def _echo(self, _: Call, request: Text) -> Text:
        if self._failure is not None:
            raise self._failure
        return Text(text=request.text)

    @asynccontextmanager
    async def _admit(self, call: Call) -> AsyncGenerator[None, None]:
        self.calls.append(call)
        if self._first:
            await self.release.wait()
        yield
        if self._error is not None:
            raise self._error
        try:
            await self.release.wait()
        finally:
            self.ended.set()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the ids of the whole calls that have got a stream."""
    ids: list[int] = []
    adopt = Http2Processor.adopt

    def adopted(self: Http2Processor, stream_id: int) -> Any:
        ids.append(stream_id)
        return adopt(self, stream_id)

    monkeypatch.setattr(Http2Processor, "adopt", adopted)
    return ids


def _send(
    raw: Raw, id: int, path: str = ECHO, text: str = "a", *, size: int | None = None, timeout: str | None = None
) -> None:
    headers = [(name, path if name == ":path" else value) for name, value in HEADERS]
    raw.h2.send_headers(id, headers if timeout is None else [*headers, ("grpc-timeout", timeout)])
    raw.h2.send_data(id, rpc.framed(encode(Text(text=text)))[:size], end_stream=True)


async def _first(raw: Raw) -> None:
    """Make the first call of a connection, which goes through h2."""
    _send(raw, 1)
    await raw.flush()
    assert await _text(raw, 1) == "a"


async def _ended(raw: Raw, id: int) -> Any:
    return await raw.until(lambda event: isinstance(event, StreamEnded | StreamReset) and event.stream_id == id)


async def _text(raw: Raw, id: int) -> str:
    """Return the text of a reply, which may come in parts."""
    assert isinstance(await _ended(raw, id), StreamEnded)
    parts = [each.data for each in raw.events if isinstance(each, DataReceived) and each.stream_id == id]
    return decode(Text, b"".join(parts)[5:]).text


def _status(raw: Raw, id: int) -> str:
    found = [
        dict(each.headers) for each in raw.events if getattr(each, "stream_id", 0) == id and hasattr(each, "headers")
    ]
    return str(found[-1][b"grpc-status"], "ascii")


def _calls(it: Served) -> int:
    return sum(len(calls._calls) for calls in it.server._connections.values())


async def test_whole_call_has_no_stream_if_it_need_not_wait(opened: list[int]) -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        for id in range(3, 43, 2):
            _send(raw, id, text=str(id), timeout=f"{id}S" if id % 4 == 1 else None)
        await raw.flush()
        assert [await _text(raw, id) for id in range(3, 43, 2)] == [str(id) for id in range(3, 43, 2)]
        assert (opened, _calls(it)) == ([], 0)


async def test_one_turn_answers_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other connections have their turns in between."""
    turns: list[int] = []
    take = Http2Protocol._take

    def taken(self: Http2Protocol) -> bool:
        before = self.processor.calls
        ended = take(self)
        turns.append(self.processor.calls - before)
        return ended

    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        monkeypatch.setattr(Http2Protocol, "_take", taken)
        for id in range(3, 123, 2):
            _send(raw, id, text=str(id))
        await raw.flush()
        assert [await _text(raw, id) for id in range(3, 123, 2)] == [str(id) for id in range(3, 123, 2)]
    assert sum(turns) == 60
    assert max(turns) <= 8


async def test_call_that_waits_gets_a_stream_and_keeps_its_request(opened: list[int]) -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        _send(raw, 3, WAIT, "b")
        _send(raw, 5, text="c")
        raw.h2.ping(b"12345678")
        await raw.flush()
        assert await _text(raw, 5) == "c"
        assert await raw.until(lambda event: isinstance(event, PingAckReceived))
        await it.echo.until_waiting(1)
        assert (opened, _calls(it)) == ([3], 1)
        it.echo.release.set()
        assert await _text(raw, 3) == "b"
        await trio.testing.wait_all_tasks_blocked()
        assert _calls(it) == 0


@pytest.mark.parametrize("how", ["reset", "deadline", "lost"])
async def test_call_that_waits_ends_with_its_client(how: str, opened: list[int]) -> None:
    async with served() as it:
        async with connected(it.where) as raw:
            await _first(raw)
            _send(raw, 3, WAIT, "b", timeout="50m" if how == "deadline" else None)
            await raw.flush()
            if how != "deadline":
                await it.echo.until_waiting(1)
            if how == "reset":
                raw.h2.reset_stream(3)
                await raw.flush()
            if how != "lost":
                await it.echo.until_waiting(0)
            if how == "deadline":
                await _ended(raw, 3)
                assert _status(raw, 3) == str(Status.DEADLINE_EXCEEDED.value)
        await it.echo.until_waiting(0)
        assert (opened, it.echo.cancelled) == ([3], 1)


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        (FAIL, None, Status.UNKNOWN),
        *((ECHO, size, Status.INTERNAL) for size in range(8)),
        ("/test.Echo/No", None, Status.UNIMPLEMENTED),
    ],
)
async def test_failed_call_has_the_usual_end(path: str, size: int | None, status: Status) -> None:
    """A message that is cut off is not whole, and goes the usual way. So does a call of an unknown method."""
    async with served(report=lambda *_: None) as it, connected(it.where) as raw:
        await _first(raw)
        _send(raw, 3, path, "abc", size=size)
        _send(raw, 5, text="c")
        await raw.flush()
        assert await _text(raw, 5) == "c"
        await _ended(raw, 3)
        assert _status(raw, 3) == str(status.value)


async def test_invalid_message_was_not_begun(opened: list[int]) -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        raw.h2.send_headers(3, [(name, ECHO if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(3, rpc.framed(b"\x0a\x01"), end_stream=True)
        await raw.flush()
        await _ended(raw, 3)
        ends = [
            dict(each.headers) for each in raw.events if getattr(each, "stream_id", 0) == 3 and hasattr(each, "headers")
        ]
        assert ends[-1][b"grpc-status"].decode() == str(Status.INVALID_ARGUMENT.value)
        assert rpc._channel.NOT_BEGUN.encode() in ends[-1]
        assert opened == [3]


async def test_reply_waits_for_the_window_of_its_stream(opened: list[int]) -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        await raw.flush()
        _send(raw, 3, text="x" * 40)
        await raw.flush()
        await raw.until(lambda event: isinstance(event, DataReceived) and event.stream_id == 3)
        raw.h2.increment_flow_control_window(100, 3)
        await raw.flush()
        assert await _text(raw, 3) == "x" * 40
        assert opened == [3]


async def test_call_that_waits_and_is_reset_in_the_same_read_harms_nothing() -> None:
    """Nothing may wake the task that reads before it has begun to wait for the call."""
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        await raw.flush()
        for id in range(3, 43, 4):
            _send(raw, id, text="x" * 40)
            raw.h2.reset_stream(id)
            _send(raw, id + 2, text="b")
            await raw.flush()
            assert await _text(raw, id + 2) == "b"
        await trio.testing.wait_all_tasks_blocked()
        assert _calls(it) == 0


@pytest.mark.parametrize("first", [False, True])
async def test_guard_may_wait_before_and_after_the_answer(first: bool, opened: list[int]) -> None:
    """The call ends with its guard. Until then it has a stream, and counts as one that waits."""
    guarded = Admitted(first=first)
    async with served() as it, connected(it.where) as raw:
        it.services.add(guarded)
        await _first(raw)
        _send(raw, 3, ADMITTED, "b")
        _send(raw, 5, text="c")
        await raw.flush()
        assert await _text(raw, 5) == "c"
        assert not any(isinstance(each, StreamEnded) and each.stream_id == 3 for each in raw.events)
        assert (opened, _calls(it)) == ([3], 1)
        guarded.release.set()
        assert await _text(raw, 3) == "b"
        await guarded.ended.wait()
        assert [each.peer is not None for each in guarded.calls] == [True]
        _send(raw, 7, text="d")
        await raw.flush()
        assert await _text(raw, 7) == "d"


async def test_stopping_server_lets_a_whole_call_finish() -> None:
    async with trio.open_nursery() as nursery, served() as it, connected(it.where) as raw:
        await _first(raw)
        _send(raw, 3, WAIT, "b")
        await raw.flush()
        await it.echo.until_waiting(1)

        async def stop() -> None:
            it.server._stopping = True
            for calls in it.server._connections.values():
                calls.stop()
            await it.server._until(lambda: not any(it.server._connections.values()))

        nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        it.echo.release.set()
        assert await _text(raw, 3) == "b"


async def test_guard_that_waits_after_the_answer_ends_with_its_client() -> None:
    guarded = Admitted()
    async with served() as it:
        async with connected(it.where) as raw:
            it.services.add(guarded)
            await _first(raw)
            _send(raw, 3, ADMITTED, "b")
            _send(raw, 5, text="c")
            await raw.flush()
            assert await _text(raw, 5) == "c"
        await guarded.ended.wait()


async def test_error_of_a_guard_after_the_answer_is_sent(opened: list[int]) -> None:
    async with served() as it, connected(it.where) as raw:
        it.services.add(Admitted(error=GRPCError(Status.ABORTED, "too late")))
        await _first(raw)
        _send(raw, 3, ADMITTED, "b")
        await raw.flush()
        await _ended(raw, 3)
        assert (_status(raw, 3), opened) == (str(Status.ABORTED.value), [3])


@pytest.mark.parametrize("error", [StreamTerminatedError("gone"), ProtocolError("wrong")])
async def test_call_that_ends_without_an_answer_is_known_to_http2(error: Exception) -> None:
    async with served() as it, connected(it.where) as raw:
        it.services.add(Admitted(failure=error))
        await _first(raw)
        _send(raw, 3, ADMITTED, "b")
        await raw.flush()
        assert isinstance(await _ended(raw, 3), StreamReset)
        await raw.stream.send_all(WindowUpdateFrame(3, window_increment=1).serialize())
        _send(raw, 5, text="c")
        await raw.flush()
        assert await _text(raw, 5) == "c"
        assert _calls(it) == 0


@pytest.mark.parametrize("goaway", ["before", "earlier", "after"])
@pytest.mark.parametrize("path", [ECHO, WAIT])
async def test_connection_closes_after_the_last_call_of_a_client_that_says_so(goaway: str, path: str) -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        if goaway == "earlier":
            await raw.stream.send_all(GOAWAY + PingFrame(0, b"12345678").serialize())
            assert await raw.until(lambda event: isinstance(event, PingAckReceived))
        _send(raw, 3, path, "b")
        call = raw.h2.data_to_send()
        await raw.stream.send_all({"before": GOAWAY + call, "earlier": call, "after": call + GOAWAY}[goaway])
        it.echo.release.set()
        assert await _text(raw, 3) == "b"
        assert await raw.until(lambda _: False) is None


@pytest.mark.parametrize("paths", [[FAIL, ECHO], [WAIT, ECHO], [ECHO, WAIT, ECHO], [ECHO] * 20], ids=str)
async def test_calls_that_come_in_one_read_with_a_goaway_are_all_answered(paths: list[str]) -> None:
    """Some of them are answered before the others are handled, which happens in a later turn of the connection."""
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        ids = range(3, 3 + 2 * len(paths), 2)
        for id, path in zip(ids, paths, strict=True):
            _send(raw, id, path, str(id))
        async with it.server._turn:
            await raw.stream.send_all(GOAWAY + raw.h2.data_to_send())
            await trio.testing.wait_all_tasks_blocked()
            it.echo.release.set()
            await trio.testing.wait_all_tasks_blocked()
            assert _calls(it) == 0
        for id, path in zip(ids, paths, strict=True):
            assert isinstance(await _ended(raw, id), StreamEnded)
            assert path == FAIL or await _text(raw, id) == str(id)
        assert await raw.until(lambda _: False) is None


async def test_turn_does_not_end_between_a_call_and_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call would be refused before its request is handled. Its client would get resets, too."""
    resets: list[int] = []
    monkeypatch.setattr(_protocol, "_SLICE", -1.0)
    monkeypatch.setattr(CountingH2, "reset_stream", lambda _, stream_id, __: resets.append(stream_id))
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        for id in (3, 5):
            _send(raw, id, "/test.Unknown/Call")
        async with it.server._turn:
            await raw.flush()
            assert isinstance(await _ended(raw, 3), StreamEnded)
            assert not any(getattr(each, "stream_id", 0) == 5 for each in raw.events)
        assert isinstance(await _ended(raw, 5), StreamEnded)
        assert resets == []


async def test_only_faults_of_the_program_are_reported() -> None:
    reported: list[tuple[str, str]] = []
    async with served(report=lambda path, error: reported.append((path, str(error)))) as it, connected(it.where) as raw:
        await _first(raw)
        _send(raw, 3, ECHO, size=7)
        _send(raw, 5, ECHO, timeout="0S")
        _send(raw, 7, FAIL, "known")
        _send(raw, 9, FAIL, "b")
        it.services.add(Admitted(error=GRPCError(Status.ABORTED, "too late")))
        _send(raw, 11, ADMITTED)
        await raw.flush()
        for id in range(3, 13, 2):
            await _ended(raw, id)
            assert _status(raw, id) != "0"
    assert reported == [(FAIL, "a secret of the server")]


@pytest.mark.parametrize("waits", [False, True])
def test_interrupt_reaches_a_whole_call(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised in a handler that computes for long, or in Trio when the task that reads has begun to wait."""
    follow = SocketTransport._follow

    def interrupted(transport: SocketTransport) -> None:
        signal.raise_signal(signal.SIGINT)
        follow(transport)

    class Busy:
        def __mapping__(self) -> dict[str, Handler]:
            async def answer(_: Call, request: Text) -> Text:
                signal.raise_signal(signal.SIGINT)
                return request

            return {ADMITTED: Handler(answer, Cardinality.UNARY_UNARY, Text, Text)}

    async def main() -> None:
        async with served() as it, connected(it.where) as raw:
            it.services.add(Busy())
            await _first(raw)
            _send(raw, 3, WAIT if waits else ADMITTED)
            await raw.flush()
            try:
                await trio.sleep(20)
            finally:
                it.echo.release.set()
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()

    if waits:
        monkeypatch.setattr(SocketTransport, "_follow", interrupted)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # or a group of one
        trio.run(main)
    error = caught.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, KeyboardInterrupt)


async def test_small_limit_of_messages_holds_for_whole_calls(opened: list[int]) -> None:
    async with served(limits=rpc.Limits(message_size=100)) as it, connected(it.where) as raw:
        await _first(raw)
        # Two bytes before the text.
        _send(raw, 3, text="x" * 98)
        _send(raw, 5, text="x" * 99)
        await raw.flush()
        assert await _text(raw, 3) == "x" * 98
        await _ended(raw, 5)
        assert (_status(raw, 5), opened) == (str(Status.RESOURCE_EXHAUSTED.value), [])


async def test_call_behind_one_that_waits_does_not_wait_for_the_turns_of_others() -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw)
        _send(raw, 3, WAIT)
        _send(raw, 5, text="b")
        async with it.server._turn:
            await raw.flush()
            with trio.fail_after(5):
                assert await _text(raw, 5) == "b"
