"""Floods of HTTP/2 frames, each from several connections: ``python -m tests.rpc.floods KIND HOST:PORT SECONDS``.

The flood runs in a process of its own, so that sending it takes no processor time from the server. A connection that
the server ends is opened again at once. The process prints a line when it has begun. At the end it prints the numbers
of opened connections and of sent bytes.
"""

from __future__ import annotations

import itertools
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import framed
from tests.rpc.hostile_bytes import PREFACE, REQUEST, header_bomb, raw_frame
from tests.rpc.tls_records import TlsPeer

CONNECTIONS = 8
_BATCH = 200
_BLOCK = Encoder().encode(REQUEST)
_GET = Encoder().encode([(name, "GET" if name == ":method" else value) for name, value in REQUEST])
_THINGS = pb.ListRequest(
    type=pb.Type(group="test", group_version="v1", kind="Thing"), tenancy=pb.Tenancy(partition="*", namespace="*")
)
_NO_WINDOW = SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 0}).serialize()


class Flood(NamedTuple):
    """The first bytes of a connection, and the frames or empty TLS records that it then repeats."""

    begin: bytes
    then: Callable[[], Iterator[bytes]]
    record: Callable[[TlsPeer], bytes] | None = None


def _headers(stream: int, block: bytes = _BLOCK, *, end: bool = True) -> bytes:
    return raw_frame(len(block), 1, 5 if end else 4, stream, block)


def _again(frame: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: itertools.repeat(frame * _BATCH)


def _streams(make: Callable[[int], bytes], first: int = 1) -> Callable[[], Iterator[bytes]]:
    """Return batch after batch of new streams, until their numbers run out."""
    step = 2 * _BATCH
    return lambda: (b"".join(map(make, range(at, at + step, 2))) for at in range(first, 1 << 30, step))


def _listed(stream: int) -> bytes:
    path = [(name, value.replace("/Read", "/List")) for name, value in REQUEST]
    body = framed(encode(_THINGS))
    return (
        _headers(stream, Encoder().encode(path), end=False) + DataFrame(stream, body, flags=["END_STREAM"]).serialize()
    )


def _records(flood: Flood, tls: TlsPeer) -> Iterator[bytes]:
    """Return batch after batch of records, each with its own keys or number."""
    assert flood.record is not None
    while True:
        yield b"".join(flood.record(tls) for _ in range(_BATCH))


def _windows_flipped() -> Iterator[bytes]:
    flip = b"".join(SettingsFrame(0, settings={4: size}).serialize() for size in (70_000, 65_535))
    return itertools.repeat(flip * _BATCH)


_WINDOW = WindowUpdateFrame(0, window_increment=1).serialize()
_OVERFLOW = WindowUpdateFrame(1, window_increment=(1 << 31) - 1).serialize()[9:]
_CALL = framed(b"")
_LONG = Encoder().encode([*REQUEST, *((f"x-{number}", "y" * 20) for number in range(200))])

FLOODS: dict[str, Flood] = {
    "PING": Flood(b"", _again(PingFrame(0).serialize())),
    "PING answered unasked": Flood(b"", _again(PingFrame(0, flags=["ACK"]).serialize())),
    "SETTINGS": Flood(b"", _again(SettingsFrame(0, settings={4: 70_000}).serialize())),
    "SETTINGS, with 900 streams open": Flood(
        b"".join(_headers(stream, end=False) for stream in range(1, 1800, 2)), _windows_flipped
    ),
    "SETTINGS acknowledged unasked": Flood(b"", _again(SettingsFrame(0, flags=["ACK"]).serialize())),
    "WINDOW_UPDATE": Flood(b"", _again(_WINDOW)),
    "PRIORITY": Flood(b"", _again(PriorityFrame(5, depends_on=3).serialize())),
    "unknown frames": Flood(b"", _again(raw_frame(0, 0xEE, 0, 5, b""))),
    "GOAWAY": Flood(b"", _again(GoAwayFrame(0).serialize())),
    "empty DATA": Flood(_headers(1, end=False), _again(DataFrame(1, b"").serialize())),
    "DATA of one byte": Flood(_headers(1, end=False), _again(DataFrame(1, b"\0").serialize())),
    "DATA on a closed stream": Flood(
        _headers(1, end=False) + RstStreamFrame(1).serialize(), _again(DataFrame(1, b"x").serialize())
    ),
    "HEADERS on a closed stream": Flood(_headers(1, end=False) + RstStreamFrame(1).serialize(), _again(_headers(1))),
    "HEADERS that the server refuses": Flood(b"", _streams(lambda stream: _headers(stream, end=False))),
    "HEADERS that are malformed": Flood(
        b"", _streams(lambda stream: _headers(stream, _BLOCK + Encoder().encode([("connection", "x")])))
    ),
    "HEADERS of 16 KiB": Flood(b"", _streams(lambda stream: _headers(stream, _LONG))),
    "HPACK bombs": Flood(header_bomb(12_000), _again(PingFrame(0).serialize())),
    "CONTINUATION": Flood(HeadersFrame(1, b"").serialize(), _again(ContinuationFrame(1, b"").serialize())),
    "RST_STREAM (rapid reset)": Flood(
        b"", _streams(lambda stream: _headers(stream, end=False) + RstStreamFrame(stream).serialize())
    ),
    "resets by the server (MadeYouReset)": Flood(
        b"", _streams(lambda stream: _headers(stream, end=False) + raw_frame(4, 8, 0, stream, _OVERFLOW))
    ),
    "windows of one byte": Flood(_NO_WINDOW + _listed(1), _again(WindowUpdateFrame(1, window_increment=1).serialize())),
    "windows of one byte, 100 streams": Flood(
        _NO_WINDOW + b"".join(map(_listed, range(1, 200, 2))),
        lambda: itertools.repeat(
            b"".join(WindowUpdateFrame(stream, window_increment=1).serialize() for stream in range(1, 200, 2))
        ),
    ),
    "requests": Flood(
        b"",
        _streams(
            lambda stream: _headers(stream, end=False) + DataFrame(stream, _CALL, flags=["END_STREAM"]).serialize()
        ),
    ),
    "requests that are rejected, without an end": Flood(
        b"", _streams(lambda stream: _headers(stream, _GET, end=False))
    ),
    "TLS records that change the keys": Flood(b"", lambda: iter(()), TlsPeer.key_update),
    "TLS records without content": Flood(b"", lambda: iter(()), TlsPeer.empty),
    "connections that speak HTTP/1": Flood(b"GET / HTTP/1.1\r\n\r\n", lambda: iter(())),
}


def opening(flood: Flood) -> bytes:
    """Return the first bytes of a connection."""
    return flood.begin if flood.begin.startswith(b"GET") else PREFACE + SettingsFrame(0).serialize() + flood.begin


def following(flood: Flood, tls: TlsPeer | None) -> Iterator[bytes]:
    """Return the bytes that follow. If the flood consists of records, ``tls`` has done its handshake."""
    return flood.then() if tls is None else _records(flood, tls)


def _drain(connection: socket.socket) -> None:
    """Read what has arrived. Raise ConnectionError at the end."""
    try:
        while True:
            if not connection.recv(1 << 20, socket.MSG_DONTWAIT):
                raise ConnectionResetError
    except BlockingIOError:
        return


def _flood(flood: Flood, where: tuple[str, int], until: float, sent: list[int]) -> None:
    while time.monotonic() < until:
        with socket.create_connection(where) as connection:
            # A timeout of Python's socket would make `_drain` wait.
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 1, 0))
            sent[0] += 1
            try:
                tls = None if flood.record is None else _handshaken(connection)
                begin = opening(flood)
                connection.sendall(begin if tls is None else tls.sent(begin))
                for piece in following(flood, tls):
                    connection.sendall(piece)
                    sent[1] += len(piece)
                    _drain(connection)
                    if time.monotonic() > until:
                        return
                while connection.recv(1 << 16):
                    pass
            except (ConnectionError, BlockingIOError):
                # The server has ended the connection, or has not read for a second.
                continue


def _handshaken(connection: socket.socket) -> TlsPeer:
    tls = TlsPeer()
    for data in tls.handshake():
        connection.sendall(data)
        tls.feed(connection.recv(1 << 16))
    return tls


def main(kind: str, address: str, seconds: float) -> None:
    """Flood the address from eight connections at once."""
    host, _, port = address.rpartition(":")
    counted = [[0, 0] for _ in range(CONNECTIONS)]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=_flood, args=(FLOODS[kind], (host, int(port)), until, each)) for each in counted]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    print(sum(opened for opened, _ in counted), sum(size for _, size in counted))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
