"""Byte streams that no honest client sends: mutations of a real client's stream, and frames with one error each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    AltSvcFrame,
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from headway.rpc import framed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
READ = "/headway.resource.v1.ResourceService/Read"
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", READ),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
_HEADER = 9
_MOST = (1 << 31) - 1


def frames(data: bytes) -> list[bytes]:
    """Split a client's stream into its frames, without the preface."""
    assert data.startswith(PREFACE)
    found, begin = [], len(PREFACE)
    while begin < len(data):
        end = begin + _HEADER + int.from_bytes(data[begin : begin + 3], "big")
        found.append(data[begin:end])
        begin = end
    return found


def raw_frame(length: int, kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Return a frame with an arbitrary header."""
    header = length.to_bytes(3, "big") + bytes([kind & 255, flags & 255]) + (stream & 0xFFFFFFFF).to_bytes(4, "big")
    return header + body


def request(stream: int, body: bytes = b"", *, headers: Sequence[tuple[str, str]] = REQUEST) -> bytes:
    """Return the HEADERS of a request, and its DATA if it has a body."""
    flags = ["END_HEADERS"] if body else ["END_HEADERS", "END_STREAM"]
    begin = HeadersFrame(stream, Encoder().encode(headers), flags=flags).serialize()
    return begin + (DataFrame(stream, body, flags=["END_STREAM"]).serialize() if body else b"")


def header_bomb(references: int) -> bytes:
    """Return a long header for the compression table and many references to it of one byte each."""
    encoder = Encoder()
    block = encoder.encode([*REQUEST, ("x-bomb", "y" * 3000)])
    # 0xBE is an index: the entry that was added last.
    return HeadersFrame(1, block + b"\xbe" * references, flags=["END_HEADERS", "END_STREAM"]).serialize()


def _flag_names(frame: HeadersFrame | PushPromiseFrame, *names: str) -> bytes:
    for name in names:
        frame.flags.add(name)
    return frame.serialize()


def _settings(code: int, value: int) -> bytes:
    return SettingsFrame(0, settings={code: value}).serialize()


def _priority_loop() -> bytes:
    return b"".join(
        PriorityFrame(one, depends_on=3 if one == 1 else 1).serialize() for one in (1, 3) for _ in range(20)
    )


WRONG: dict[str, Callable[[], bytes]] = {
    "continuation without headers": lambda: ContinuationFrame(1, b"abc", flags=["END_HEADERS"]).serialize(),
    "headers interrupted by another frame": lambda: HeadersFrame(1, b"").serialize() + PingFrame(0).serialize(),
    "headers bomb": lambda: header_bomb(12_000),
    "header table resized beyond its limit": lambda: raw_frame(6, 1, 5, 1, b"\x3f\xff\xff\xff\xff\x0f"),
    "header index without an entry": lambda: raw_frame(2, 1, 5, 1, b"\xff\x7f"),
    "header value that is not text": lambda: raw_frame(11, 1, 5, 1, b"\x83\x86\x00\x03x-a\x03\xff\xfe\x80"),
    "header name that is not text": lambda: raw_frame(9, 1, 5, 1, b"\x83\x86\x00\x03\xff\xfe\x80\x01a"),
    "path that is not text": lambda: raw_frame(7, 1, 5, 1, b"\x83\x86\x04\x03\xff\xfe\x80"),
    "huffman without end": lambda: raw_frame(8, 1, 5, 1, b"\x00\x83\xff\xff\xff\x83\xff\xff"),
    "headers on an even stream": lambda: request(2),
    "headers on stream zero": lambda: raw_frame(0, 1, 5, 0, b""),
    "headers twice": lambda: request(1) + request(1),
    "headers on a lower stream": lambda: request(9) + request(3),
    "headers padded beyond their end": lambda: raw_frame(2, 1, 0xD, 1, b"\xff\x82"),
    "highest stream id": lambda: request(_MOST) + request(1),
    "data on an idle stream": lambda: DataFrame(7, b"abc").serialize(),
    "data on stream zero": lambda: raw_frame(3, 0, 0, 0, b"abc"),
    "data on a closed stream": lambda: request(1, framed(b"")) + DataFrame(1, b"abc").serialize() * 3,
    "data after a reset": lambda: request(1) + RstStreamFrame(1).serialize() + DataFrame(1, b"abc").serialize(),
    "data padded beyond its end": lambda: raw_frame(2, 0, 8, 1, b"\xff\x00"),
    "window update of zero": lambda: request(1) + raw_frame(4, 8, 0, 1, b"\0" * 4),
    "connection window update of zero": lambda: raw_frame(4, 8, 0, 0, b"\0" * 4),
    "window overflow": lambda: request(1) + WindowUpdateFrame(1, window_increment=_MOST).serialize() * 2,
    "connection window overflow": lambda: WindowUpdateFrame(0, window_increment=_MOST).serialize() * 2,
    "window update of an idle stream": lambda: WindowUpdateFrame(9, window_increment=1).serialize(),
    "settings beyond window": lambda: _settings(SettingCodes.INITIAL_WINDOW_SIZE, 0xFFFFFFFF),
    "settings with no window": lambda: _settings(SettingCodes.INITIAL_WINDOW_SIZE, 0) + request(1, framed(b"")),
    "settings with tiny frames": lambda: _settings(SettingCodes.MAX_FRAME_SIZE, 1),
    "settings with huge frames": lambda: _settings(SettingCodes.MAX_FRAME_SIZE, 0xFFFFFFFF),
    "settings with a huge table": lambda: _settings(SettingCodes.HEADER_TABLE_SIZE, 0xFFFFFFFF) + request(1),
    "settings with no table": lambda: _settings(SettingCodes.HEADER_TABLE_SIZE, 0) + request(1),
    "settings with push": lambda: _settings(SettingCodes.ENABLE_PUSH, 77),
    "settings without streams": lambda: _settings(SettingCodes.MAX_CONCURRENT_STREAMS, 0) + request(1),
    "settings without headers": lambda: _settings(SettingCodes.MAX_HEADER_LIST_SIZE, 0) + request(1),
    "unknown settings": lambda: _settings(0xFFFF, 0xFFFFFFFF) + request(1),
    "settings with half an entry": lambda: raw_frame(3, 4, 0, 0, b"abc"),
    "settings on a stream": lambda: raw_frame(0, 4, 0, 1, b""),
    "unrequested settings acknowledgment": lambda: raw_frame(0, 4, 1, 0, b"") * 5,
    "settings acknowledgment with content": lambda: raw_frame(6, 4, 1, 0, b"abcdef"),
    "ping of seven bytes": lambda: raw_frame(7, 6, 0, 0, b"1234567"),
    "ping on a stream": lambda: raw_frame(8, 6, 0, 1, b"12345678"),
    "unrequested ping answer": lambda: PingFrame(0, opaque_data=b"12345678", flags=["ACK"]).serialize(),
    "priority that depends on itself": lambda: PriorityFrame(1, depends_on=1).serialize(),
    "priority loop": _priority_loop,
    "priority of four bytes": lambda: raw_frame(4, 2, 0, 1, b"\0" * 4),
    "reset of an idle stream": lambda: RstStreamFrame(99).serialize(),
    "reset of stream zero": lambda: raw_frame(4, 3, 0, 0, b"\0" * 4),
    "reset with an unknown reason": lambda: request(1) + RstStreamFrame(1, error_code=0xFFFFFFFF).serialize(),
    "push by a client": lambda: _flag_names(PushPromiseFrame(1, 2, b""), "END_HEADERS"),
    "request after GOAWAY with an error": lambda: (
        GoAwayFrame(0, last_stream_id=_MOST, error_code=0xDEAD).serialize() + request(1)
    ),
    "requests after GOAWAY without an error": lambda: (
        (request(1) + GoAwayFrame(0, last_stream_id=0).serialize()) * 2 + request(3)
    ),
    "GOAWAY repeated 2000 times": lambda: GoAwayFrame(0, last_stream_id=_MOST).serialize() * 2000,
    "GOAWAY on a stream": lambda: raw_frame(8, 7, 0, 1, bytes(8)),
    "GOAWAY of four bytes": lambda: raw_frame(4, 7, 0, 0, bytes(4)),
    "alternative service": lambda: AltSvcFrame(0, b"x", b"y").serialize() + request(1),
    "frame of an unknown type": lambda: raw_frame(3, 0xEE, 0xFF, 5, b"abc") + request(1),
    "frame of 16 MiB announced": lambda: raw_frame(0xFFFFFF, 0, 0, 1, b"abc"),
    "reserved bit": lambda: raw_frame(0, 1, 5, 0x80000001, b""),
    "trailers without end": lambda: request(1)[:4] + b"\x04" + request(1)[5:] + HeadersFrame(1, b"\x82").serialize(),
    "CONNECT": lambda: request(1, headers=[(":method", "CONNECT"), (":authority", "x")]),
    "no headers at all": lambda: request(1, headers=[]),
    "pseudo header last": lambda: request(1, headers=[*REQUEST[1:], REQUEST[0]]),
    "pseudo header twice": lambda: request(1, headers=[*REQUEST, *REQUEST]),
    "content length that is not a number": lambda: request(
        1, framed(b""), headers=[*REQUEST, ("content-length", "many")]
    ),
    "wrong content length": lambda: request(1, framed(b""), headers=[*REQUEST, ("content-length", "7")]),
    "negative content length": lambda: request(1, framed(b""), headers=[*REQUEST, ("content-length", "-7")]),
    "content length in other digits": lambda: request(1, framed(b""), headers=[*REQUEST, ("content-length", "٣²")]),
    "upgrade": lambda: request(1, headers=[*REQUEST, ("connection", "upgrade"), ("upgrade", "h2c")]),
}


def _flip(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(pieces))
    piece = bytearray(pieces[at])
    for _ in range(chance.randint(1, 4)):
        piece[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
    return [*pieces[:at], bytes(piece), *pieces[at + 1 :]]


def _truncate(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    whole = b"".join(pieces)
    return [whole[: chance.randrange(1, len(whole))]]


def _duplicate(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(pieces))
    return [*pieces[:at], *[pieces[at]] * chance.randint(2, 20), *pieces[at + 1 :]]


def _reorder(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    return chance.sample(pieces, len(pieces))


def _drop(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(pieces))
    return [*pieces[:at], *pieces[at + 1 :]] or pieces


def _rewrite_header(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    """Return the same body with another length, type, flags or stream id."""
    at = chance.randrange(len(pieces))
    piece = pieces[at].ljust(_HEADER, b"\0")
    length, kind, flags = int.from_bytes(piece[:3], "big"), piece[3], piece[4]
    stream = int.from_bytes(piece[5:_HEADER], "big")
    match chance.randrange(4):
        case 0:
            length = chance.choice((0, 1, max(length - 1, 0), length + 1, 16_385, 0xFFFFFF))
        case 1:
            kind = chance.randrange(16)
        case 2:
            flags = chance.randrange(256)
        case _:
            stream = chance.choice((0, 1, 2, 3, stream + 2, _MOST, 0xFFFFFFFF))
    return [*pieces[:at], raw_frame(length, kind, flags, stream, piece[_HEADER:]), *pieces[at + 1 :]]


def _insert_wrong(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(pieces) + 1)
    return [*pieces[:at], WRONG[chance.choice(sorted(WRONG))](), *pieces[at:]]


def _insert_noise(pieces: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(pieces) + 1)
    return [*pieces[:at], chance.randbytes(chance.randint(1, 200)), *pieces[at:]]


_MUTATIONS = (_flip, _truncate, _duplicate, _reorder, _drop, _rewrite_header, _insert_wrong, _insert_noise)


def mutated(honest: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield the honest stream, each time with one to three mutations. Most keep the preface."""
    pieces = frames(honest)
    for _ in range(count):
        changed = pieces
        for _ in range(chance.randint(1, 3)):
            changed = chance.choice(_MUTATIONS)(changed, chance)
        preface = PREFACE if chance.random() < 0.97 else PREFACE[: chance.randrange(len(PREFACE))]
        yield preface + b"".join(changed)


def noise(chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield random bytes, with and without a valid beginning."""
    for _ in range(count):
        begin = chance.choice((b"", PREFACE, PREFACE + SettingsFrame(0).serialize()))
        yield begin + chance.randbytes(chance.randint(1, 400))
