"""The pure parts of a connection: splitting bytes into frames, charging for them, and checking headers."""

from __future__ import annotations

import sys

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from headway.rpc import Flooded, Rate, WireLimits
from headway.rpc.http2 import (
    FrameAccount,
    FrameCutter,
    FrameTooLarge,
    malformed_request,
    malformed_response,
    malformed_trailers,
)
from tests.rpc.hostile_bytes import PREFACE, REQUEST, raw_frame

LIMITS = WireLimits(resets=Rate(20, 1), pings=Rate(20, 1), settings=Rate(20, 1), others=Rate(40, 1))


@pytest.mark.parametrize("step", [1, 5, 9, 24, 1000])
def test_frames_are_whole_however_they_are_split(step: int) -> None:
    """The preface and the frames arrive in pieces of any size."""
    frames = [PingFrame(0, opaque_data=b"12345678").serialize(), DataFrame(1, b"x" * 300).serialize()] * 3
    sent = PREFACE + b"".join(frames)
    cutter = FrameCutter(1000, preface=True)
    preface, cut = b"", []
    for begin in range(0, len(sent), step):
        cutter.feed(sent[begin : begin + step])
        preface += cutter.preface()
        while (frame := cutter.next()) is not None:
            cut.append(frame)
    assert (preface, cut, cutter.left) == (PREFACE, frames, 0)


def test_returned_frames_are_not_held() -> None:
    """Otherwise a silent connection would keep all of its last read, 64 KiB."""
    frames = [PingFrame(0, opaque_data=b"12345678").serialize()] * 3
    sent = b"".join(frames)
    cutter = FrameCutter(1000, preface=False)
    held = sys.getrefcount(sent)
    cutter.feed(sent)
    assert sys.getrefcount(sent) == held + 1
    assert [cutter.next() for _ in range(4)] == [*frames, None]
    assert sys.getrefcount(sent) == held


def test_oversized_frame_is_refused_by_its_header() -> None:
    """It is refused before any of its body has arrived."""
    cutter = FrameCutter(1000, preface=False)
    cutter.feed((1001).to_bytes(3, "big") + bytes(6))
    with pytest.raises(FrameTooLarge, match="frame of 1001 bytes; at most 1000"):
        cutter.next()


IDLE: dict[str, Frame] = {
    "pings": PingFrame(0),
    "settings": SettingsFrame(0),
    "acknowledged settings": SettingsFrame(0, flags=["ACK"]),
    "answered pings": PingFrame(0, flags=["ACK"]),
    "resets": RstStreamFrame(1),
    "windows": WindowUpdateFrame(0, window_increment=1),
    "priorities": PriorityFrame(1, depends_on=3),
    "empty data": DataFrame(1, b""),
    "headers": HeadersFrame(1, b"", flags=["END_HEADERS"]),
    "continuations": ContinuationFrame(1, b""),
}


@pytest.mark.parametrize("client_side", [False, True])
@pytest.mark.parametrize("kind", IDLE)
def test_frames_without_traffic_exhaust_their_allowance(kind: str, client_side: bool) -> None:
    """On either end, the allowance is a burst and an amount per second."""
    account = FrameAccount(LIMITS, 0.0, client_side=client_side)
    frame = IDLE[kind].serialize()
    for _ in range(20 if kind in ("pings", "settings") else 40):
        account.receive(frame, 1.0)
    with pytest.raises(Flooded):
        account.receive(frame, 1.0)


@pytest.mark.parametrize("traffic", ["headers", "data"])
@pytest.mark.parametrize("kind", [kind for kind in IDLE if kind not in ("settings", "continuations")])
def test_traffic_pays_for_frames(kind: str, traffic: str) -> None:
    """A connection that carries calls exhausts no allowance, even if no time passes."""
    account = FrameAccount(LIMITS, 0.0, client_side=False)
    frame = IDLE[kind].serialize()
    for _ in range(1000):
        for _ in range(4):
            account.receive(frame, 0.0)
        if traffic == "headers":
            account.sent_headers()
        else:
            account.sent_data(100)


def test_resets_of_unanswered_streams_exhaust_their_allowance() -> None:
    """Resetting answered streams costs nothing."""
    answered, unanswered = (FrameAccount(LIMITS, 0.0, client_side=False) for _ in range(2))
    for _ in range(1000):
        answered.sent_headers()
        answered.reset(0.0)
    for _ in range(20):
        unanswered.reset(0.0)
    with pytest.raises(Flooded, match="too many resets"):
        unanswered.reset(0.0)


def test_tiny_data_frames_cost_more_than_they_pay_back() -> None:
    """From sixteen bytes on, the content of a frame pays for it."""
    for size, ends in ((1, True), (16, False), (16_384, False)):
        account = FrameAccount(LIMITS, 0.0, client_side=False)
        frame = DataFrame(1, b"x" * size).serialize()
        for _ in range(42):
            account.receive(frame, 0.0)
            account.received_data(size)
        if ends:
            with pytest.raises(Flooded):
                account.receive(frame, 0.0)
        else:
            account.receive(frame, 0.0)


def test_tiny_window_updates_are_not_traffic() -> None:
    """A sixteenth of the bytes that this end may then send is paid back."""
    account = FrameAccount(LIMITS, 0.0, client_side=False)
    window = WindowUpdateFrame(1, window_increment=1).serialize()
    for _ in range(42):
        account.receive(window, 0.0)
        account.sent_data(1)
    with pytest.raises(Flooded, match="frames without content"):
        account.receive(window, 0.0)


def test_endless_header_block_is_refused() -> None:
    """It is refused when it is longer than any encoding of acceptable headers."""
    account = FrameAccount(WireLimits(header_size=1000), 0.0, client_side=False)
    account.receive(HeadersFrame(1, b"x" * 3000).serialize(), 0.0)
    account.receive(ContinuationFrame(1, b"x" * 1000, flags=["END_HEADERS"]).serialize(), 0.0)
    account.receive(HeadersFrame(3, b"x" * 3000).serialize(), 0.0)
    with pytest.raises(Flooded, match="header block of more than 4000 bytes"):
        account.receive(ContinuationFrame(3, b"x" * 1001).serialize(), 0.0)


def test_well_formed_headers_pass() -> None:
    """These are gRPC's headers, and others that HTTP/2 allows."""
    assert malformed_request(REQUEST) is None
    assert malformed_request([*REQUEST, ("x-any!#$%&'*+-.^_`|~1", "é \t")]) is None
    assert malformed_request([(":method", "CONNECT"), (":authority", "x")]) is None
    assert malformed_response([(":status", "200"), ("content-type", "application/grpc")]) is None
    assert malformed_trailers([("grpc-status", "0")]) is None


@pytest.mark.parametrize(
    "wrong", [("Grpc-Status", "0"), (":status", "200"), ("x", "a\nb"), ("x", "\0"), ("connection", "close"), ("", "x")]
)
def test_malformed_headers_of_answers_are_refused(wrong: tuple[str, str]) -> None:
    """A server's headers and trailers are checked like a client's, because a forwarder passes them on."""
    assert malformed_trailers([("grpc-message", ""), wrong]) is not None
    assert malformed_response([(":status", "200"), ("date", ""), wrong]) is not None
    assert malformed_response([("date", "")]) == ":status is missing or empty"


def test_client_accepts_long_headers_of_answers() -> None:
    """A caller can make the message of a status long, and others share its connection."""
    account = FrameAccount(WireLimits(others=Rate(20, 0)), 0.0, client_side=True)
    for _ in range(100):
        account.sent_headers()
        account.receive(raw_frame(12_000, 1, 5, 1, b"x" * 12_000), 0.0)


def test_client_counts_the_charges_of_its_server() -> None:
    """Answers pay back, so a connection with usual calls never exhausts its allowance."""
    account = FrameAccount(WireLimits(), 0.0, client_side=True)
    for _ in range(10_000):
        account.sent_headers()
        account.charge_self(0.0, 200)
        account.receive(raw_frame(20, 1, 4, 1, b"x" * 20), 0.0)
    assert account.is_solvent(0.0)
    for _ in range(50):
        account.charge_self(0.0, 16_000)
    assert not account.is_solvent(0.0)
    assert account.is_solvent(100.0)


def test_remainder_of_a_read_does_not_keep_the_whole_read() -> None:
    """A read of 64 KiB that ended with the first byte of a frame used to be kept for that byte."""
    frame = raw_frame(1024, 0xEE, 0, 1, bytes(1024))
    cutter = FrameCutter(16 * 1024, preface=False)
    cutter.feed(frame * 60 + frame[:1])
    while cutter.next() is not None:
        pass
    assert (cutter.left, len(cutter._data)) == (1, 1)


def test_content_length_must_consist_of_digits() -> None:
    """HTTP requires it."""
    for length in ("", "-1", "1 ", "٣", "1" * 20):
        assert malformed_request([*REQUEST, ("content-length", length)]) is not None
    assert malformed_request([*REQUEST, ("content-length", "0")]) is None
