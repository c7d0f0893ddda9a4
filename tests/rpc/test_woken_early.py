"""A call that waits in the task that reads is not woken before that task waits, whatever came in the same read.

Trio takes a task that is woken too early for one that waits, and ends the process if its scope is canceled then.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import SettingsAcknowledged, StreamEnded
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, GoAwayFrame
from trio._core import _run

from headway import rpc
from headway.events import ConnectionEnded
from headway.protobuf import encode
from headway.rpc._limits import Flooded
from headway.rpc.http2 import FrameAccount, Http2Connection
from tests.rpc.raw_kit import HEADERS, Raw, connected, tcp
from tests.rpc.rpc_kit import ECHO, FAIL, WAIT, Served, Text, certificates, served
from tests.rpc.tls_records import TlsPeer

# The bytes of a frame that is not complete. The budget takes it for larger than any incomplete request below.
_UNFINISHED = (16 << 10) + 4


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if the task that runs is woken. Only Trio itself may do that, while it begins to wait."""
    found: list[str] = []
    reschedule = _run.Runner.reschedule

    def recorded(self: _run.Runner, task: trio.lowlevel.Task, *send: Any) -> None:
        by = sys._getframe(1).f_code.co_name
        if getattr(_run.GLOBAL_RUN_CONTEXT, "task", None) is task and by not in ("unrolled_run", "_attempt_abort"):
            found.append("".join(traceback.format_stack(limit=12)))
            raise AssertionError("the task that runs is woken")
        reschedule(self, task, *send)

    monkeypatch.setattr(_run.Runner, "reschedule", recorded)
    yield
    assert not found, found[0]


def _call(h2: H2Connection, id: int, path: str, text: str = "x" * 40) -> bytes:
    h2.send_headers(id, [(name, path if name == ":path" else value) for name, value in HEADERS])
    h2.send_data(id, rpc.framed(encode(Text(text=text))), end_stream=True)
    return h2.data_to_send()


async def _first(raw: Raw, *, window: int = 65535) -> None:
    """Make the first call of a connection, which goes through h2, and set the window of the others."""
    await raw.stream.send_all(_call(raw.h2, 1, ECHO, ""))
    assert await raw.until(lambda event: isinstance(event, StreamEnded))
    raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    await raw.flush()
    assert await raw.until(lambda event: isinstance(event, SettingsAcknowledged))


async def _still_serves(it: Served) -> None:
    async with connected(it.where) as raw:
        await _first(raw)


async def test_call_that_waits_before_an_unfinished_frame_which_ends_the_connection() -> None:
    ended: list[ConnectionEnded] = []
    limits = rpc.Limits(message_size=64 << 10, server_requests_size=150_000)
    async with served(limits=limits, notify=ended.append) as it, connected(it.where) as other:
        for id in range(1, 19, 2):
            other.h2.send_headers(id, HEADERS)
            other.h2.send_data(id, b"\0\0\0\xf0\0" + b"x" * 2995)
        await other.flush()
        async with connected(it.where) as raw:
            await _first(raw, window=0)
            unfinished = DataFrame(3, b"x" * (16 << 10)).serialize()[:_UNFINISHED]
            await raw.stream.send_all(_call(raw.h2, 3, ECHO) + unfinished)
            assert (await raw.goaway()).error_code == ErrorCodes.ENHANCE_YOUR_CALM
        assert [each.why for each in ended] == ["incomplete requests take too much memory"]
        await _still_serves(it)


async def test_call_that_waits_before_too_many_empty_tls_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []

    def flooded(_: FrameAccount, count: int, __: float) -> None:
        charged.append(count)
        raise Flooded("too many TLS records without content")

    monkeypatch.setattr(FrameAccount, "receive_empty_records", flooded)
    ended: list[ConnectionEnded] = []
    told = trio.Event()

    def notify(event: ConnectionEnded) -> None:
        ended.append(event)
        told.set()

    async with served(tls=certificates(tmp_path).server, notify=notify) as it, tcp(it.where) as stream:
        tls = TlsPeer()
        for data in tls.handshake():
            await stream.send_all(data)
            tls.feed(await stream.receive_some())
        h2 = H2Connection()
        h2.initiate_connection()
        await stream.send_all(tls.sent(_call(h2, 1, ECHO, "")))
        h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        await stream.send_all(tls.sent(h2.data_to_send()))
        await trio.testing.wait_all_tasks_blocked(0.05)
        await stream.send_all(tls.sent(_call(h2, 3, ECHO)) + tls.key_update() + tls.key_update())
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not charged, "the call was not parked yet"
        h2.ping(b"12345678")
        await stream.send_all(tls.sent(h2.data_to_send()))
        await told.wait()
        assert charged == [2]
        assert [each.why for each in ended] == ["too many TLS records without content"]


async def test_call_that_tls_has_kept_while_reading_paused_is_begun(tmp_path: Path) -> None:
    """TLS passes it on when a later turn lets reading resume, not in the task that reads."""
    given = certificates(tmp_path)
    given.client.set_alpn_protocols(["h2"])
    async with served(tls=given.server) as it, tcp(it.where) as stream:
        tls = trio.SSLStream(stream, given.client, server_hostname="127.0.0.1")
        raw = Raw(tls)
        await _first(raw)
        # The server reads much at once from then on.
        await tls.send_all(_large(raw.h2, 3, 150_000))
        assert await raw.until(lambda event: isinstance(event, StreamEnded) and event.stream_id == 3)
        many = b"".join(_call(raw.h2, id, ECHO) for id in range(5, 23, 2)) + _large(raw.h2, 23, 40_000)
        async with it.server._turn:
            await tls.send_all(many)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await tls.send_all(_call(raw.h2, 25, ECHO, "last"))
            await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.fail_after(5):
            assert await raw.until(lambda event: isinstance(event, StreamEnded) and event.stream_id == 25)


def _large(h2: H2Connection, id: int, size: int) -> bytes:
    # An error has no content, which would have to be acknowledged.
    h2.send_headers(id, [(name, FAIL if name == ":path" else value) for name, value in HEADERS])
    data = rpc.framed(encode(Text(text="x" * size)))
    for at in range(0, len(data), 16_384):
        h2.send_data(id, data[at : at + 16_384], end_stream=at + 16_384 >= len(data))
    return h2.data_to_send()


async def test_call_that_waits_for_what_the_report_of_its_connection_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[ConnectionEnded] = []

    def notify(event: ConnectionEnded) -> None:
        ended.append(event)
        it.echo.release.set()

    async with served(notify=notify) as it, connected(it.where) as raw:
        await _first(raw)
        monkeypatch.setattr(Http2Connection, "unsent", lambda _: 1 << 30)
        await raw.stream.send_all(_call(raw.h2, 3, WAIT))
        assert await raw.until(lambda _: False) is None
        assert [each.why for each in ended] == ["the peer does not read the data sent to it"]


async def test_call_that_waits_before_frames_that_end_the_connection() -> None:
    async with served() as it, connected(it.where) as raw:
        await _first(raw, window=0)
        await raw.stream.send_all(_call(raw.h2, 3, ECHO) + GoAwayFrame(0, error_code=1).serialize())
        assert await raw.until(lambda _: False) is None
        await _still_serves(it)
