"""Requests with contradictory parts: each is refused alone, by a server and behind a shared forwarder."""

from __future__ import annotations

import pytest
import trio
from h2.errors import ErrorCodes
from h2.events import ResponseReceived, StreamReset, TrailersReceived
from hpack import Encoder

from headway import rpc
from tests.rpc.hostile_bytes import raw_frame
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import ECHO, WAIT, Text, served

BODY = rpc.framed(b"\x0a\x01a")
SIZE = str(len(BODY))
_CALL = [(name, ECHO if name == ":path" else value) for name, value in HEADERS]


async def _send(raw: Raw, id: int, lengths: list[str], body: bytes, trailers: bool) -> None:
    """Send a call by hand, because h2 refuses to send these."""
    block = Encoder().encode([*_CALL, *(("content-length", length) for length in lengths)])
    frames = raw_frame(len(block), 1, 4 if body else 5, id, block)
    if body:
        frames += raw_frame(len(body), 0, 0 if trailers else 1, id, body)
    if trailers:
        end = Encoder().encode([("x", "y")])
        frames += raw_frame(len(end), 1, 5, id, end)
    await raw.stream.send_all(frames)


WRONG = {
    "two lengths": ([SIZE, "1"], BODY, False),
    "too small": (["1"], BODY, False),
    "too large": (["100"], BODY, False),
    "too large, with trailers": (["100"], BODY, True),
    "a sign": (["+" + SIZE], BODY, False),
    "no number": (["x"], BODY, False),
    "no content": (["5"], b"", False),
}


@pytest.mark.parametrize("forwarded", [False, True])
@pytest.mark.parametrize("kind", WRONG)
async def test_wrong_content_length_ends_only_its_own_stream(kind: str, forwarded: bool) -> None:
    """Another call on the connection continues, as does one that shares the forwarder's connection."""
    async with (
        served() as it,
        rpc.open_forwarder(it.where, ["127.0.0.1:0"], grace=0) as forwarder,
        connected(forwarder.addresses[0] if forwarded else it.where) as raw,
        rpc.open_channel(forwarder.addresses[0]) as neighbor,
        trio.open_nursery() as nursery,
    ):
        received: list[str] = []

        async def wait() -> None:
            received.append((await neighbor.unary(WAIT, Text(text="late"), Text)).text)

        with trio.fail_after(20):
            nursery.start_soon(wait)
            await it.echo.until_waiting(1)
            raw.h2.send_headers(1, [(name, WAIT if name == ":path" else value) for name, value in HEADERS])
            raw.h2.send_data(1, rpc.framed(b"\x0a\x01b"), end_stream=True)
            await raw.flush()
            await it.echo.until_waiting(2)
            # h2 did not send the request, so it is made to expect the answer here.
            raw.h2.send_headers(3, HEADERS)
            raw.h2.data_to_send()
            await _send(raw, 3, *WRONG[kind])
            reset = await raw.until(lambda event: isinstance(event, StreamReset))
            assert (reset.stream_id, reset.error_code) == (3, ErrorCodes.PROTOCOL_ERROR)
            it.echo.release.set()
            assert await raw.until(lambda event: isinstance(event, TrailersReceived) and event.stream_id == 1)
        nursery.cancel_scope.deadline = trio.current_time() + 20
    assert received == ["late"]


@pytest.mark.parametrize("lengths", [[SIZE], [SIZE, SIZE]])
async def test_correct_content_length_is_served(lengths: list[str]) -> None:
    """It may have trailers. A forwarder does not pass the length on, because it may split the content differently."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.send_headers(1, HEADERS)
        raw.h2.data_to_send()
        await _send(raw, 1, lengths, BODY, trailers=True)
        with trio.fail_after(20):
            answer = await raw.until(lambda event: isinstance(event, TrailersReceived | ResponseReceived))
        assert dict(answer.headers)[b":status"] == b"200"
