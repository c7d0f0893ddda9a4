"""A request that is not gRPC is rejected with an HTTP status when it has ended, or after a short time."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, ResponseReceived, StreamEnded, StreamReset

from headway.rpc import Limits, Rate, WireLimits
from headway.rpc.server import CALL_SIZE, _calls
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import served

GET = [(name, "GET" if name == ":method" else value) for name, value in HEADERS]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the end of every rejected request, however long it takes."""
    monkeypatch.setattr(_calls, "_REJECTION_DELAY", math.inf)


async def _until_handled(raw: Raw) -> None:
    """Wait until the server has handled everything that was sent before."""
    raw.events = [event for event in raw.events if not isinstance(event, PingAckReceived)]
    raw.h2.ping(b"12345678")
    await raw.flush()
    assert await raw.until(lambda event: isinstance(event, PingAckReceived))
    await trio.testing.wait_all_tasks_blocked()


def _statuses(raw: Raw) -> list[bytes]:
    return [dict(event.headers)[b":status"] for event in raw.events if isinstance(event, ResponseReceived)]


@pytest.mark.usefixtures("patient")
async def test_request_is_rejected_when_it_has_ended() -> None:
    """Its content is discarded, and the answer needs no reset."""
    async with served() as it, connected(it.where) as raw:
        with trio.fail_after(30):
            raw.h2.send_headers(1, GET)
            raw.h2.send_data(1, b"content")
            await _until_handled(raw)
            assert _statuses(raw) == []
            raw.h2.end_stream(1)
            await raw.flush()
            assert await raw.until(lambda event: isinstance(event, StreamEnded))
            await _until_handled(raw)
    assert _statuses(raw) == [b"405"]
    assert not any(isinstance(event, StreamReset) for event in raw.events)


async def test_request_that_does_not_end_is_rejected_after_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks the client to stop sending."""
    monkeypatch.setattr(_calls, "_REJECTION_DELAY", 0.05)
    async with served() as it, connected(it.where) as raw:
        with trio.fail_after(30):
            raw.h2.send_headers(1, GET)
            await raw.flush()
            reset = await raw.until(lambda event: isinstance(event, StreamReset))
    assert _statuses(raw) == [b"405"]
    assert reset.error_code == ErrorCodes.NO_ERROR


@pytest.mark.usefixtures("patient")
async def test_error_in_the_rest_of_the_request_takes_precedence() -> None:
    """It is answered as in a request that is gRPC."""
    async with served() as it, connected(it.where) as raw:
        with trio.fail_after(30):
            raw.h2.send_headers(1, [*GET, ("content-length", "1")])
            await _until_handled(raw)
            raw.h2.send_data(1, b"more", end_stream=True)
            await raw.flush()
            reset = await raw.until(lambda event: isinstance(event, StreamReset))
    assert reset.error_code == ErrorCodes.PROTOCOL_ERROR
    assert _statuses(raw) == []


@pytest.mark.usefixtures("patient")
async def test_requests_that_wait_for_their_end_are_bounded() -> None:
    """They count as incomplete requests. If there are too many, the oldest are rejected at once."""
    limits = Limits(message_size=1024, wire=WireLimits(requests_size=20 * CALL_SIZE))
    async with served(limits=limits) as it, connected(it.where) as raw:
        with trio.fail_after(30):
            for id in range(1, 61, 2):
                raw.h2.send_headers(id, GET)
            await raw.flush()
            await raw.until(lambda _: len(_statuses(raw)) >= 10)
            await _until_handled(raw)
        assert _statuses(raw) == [b"405"] * 10
        assert it.server._budget.taken == 20 * CALL_SIZE
        assert it.server._budget.holders == 20


@pytest.mark.usefixtures("patient")
async def test_content_of_a_rejected_request_earns_nothing_and_opens_no_window() -> None:
    """So it cannot pay for a flood of frames, and the client may send one window of it at most."""
    limits = Limits(wire=WireLimits(stream_window=1 << 16, others=Rate(100, 0)))
    async with served(limits=limits) as it, connected(it.where) as raw:
        with trio.fail_after(30):
            raw.h2.send_headers(1, GET)
            await _until_handled(raw)
            (protocol,) = it.server._connections
            before = protocol._account._others._left
            raw.h2.send_data(1, bytes(1 << 14))
            await _until_handled(raw)
            assert protocol._account._others._left == before - 1
            assert raw.h2.local_flow_control_window(1) == (1 << 16) - (1 << 14)


@pytest.mark.usefixtures("patient")
async def test_stopping_server_rejects_requests_that_wait_for_their_end() -> None:
    """They get their answer when the grace period ends."""
    seen: list[bytes] = []

    async def ask(where: str, task_status: trio.TaskStatus[None]) -> None:
        async with connected(where) as raw:
            raw.h2.send_headers(1, GET)
            await _until_handled(raw)
            task_status.started()
            await raw.until(lambda event: isinstance(event, ResponseReceived))
            seen.extend(_statuses(raw))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery, served(grace=0.0) as it:
            await nursery.start(ask, it.where)
    assert seen == [b"405"]


@pytest.mark.usefixtures("patient")
async def test_client_that_leaves_before_its_rejection_is_no_failure() -> None:
    failed: list[BaseException] = []
    async with served(report=lambda _, error: failed.append(error)) as it:
        async with connected(it.where) as raw:
            raw.h2.send_headers(1, GET)
            raw.h2.send_headers(3, GET)
            await _until_handled(raw)
            raw.h2.reset_stream(1)
            await _until_handled(raw)
        await trio.testing.wait_all_tasks_blocked()
    assert failed == []
