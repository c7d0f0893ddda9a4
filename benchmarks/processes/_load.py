"""A client that costs little: it sends prepared frames of HTTP/2, and only counts what comes back.

Run as ``python -m benchmarks.processes._load reads|watches HOST:PORT CONNECTIONS ...``. On a small machine, an ordinary
client would take more of the processor than the server that is measured.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable

from hpack import Encoder, NeverIndexedHeaderTuple

from headway.protobuf import encode
from headway.resource import TypeName, pb

TYPE = TypeName("bench", "v1", "Thing")
SERVICE = "/headway.resource.v1.ResourceService"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 4, 6, 7, 8
_MOST = (1 << 31) - 1
_AT_ONCE = 1 << 18


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Connection:
    """A connection that makes one kind of call.

    Attributes:
        ended: the number of calls that have ended.
        pieces: the number of times that something has arrived.
        messages: the number of messages that have arrived.
    """

    def __init__(self, address: str, method: str, request: pb.ReadRequest | pb.WatchListRequest) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = self.messages = self.pieces = 0
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"{SERVICE}/{method}",
            ":authority": address,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        # Without the table of the connection, the same bytes serve for each call.
        self._block = Encoder().encode([NeverIndexedHeaderTuple(*each) for each in headers.items()], huffman=False)
        body = encode(request)
        self._body = struct.pack(">BI", 0, len(body)) + body
        self._stream = -1
        self._rest = self._message = b""
        settings = struct.pack(">HI", 4, _MOST)
        window = struct.pack(">I", _MOST - 65_535)
        self.socket.sendall(_PREFACE + frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, window))

    def call(self) -> None:
        """Begin a call."""
        self._stream += 2
        request = frame(_HEADERS, 4, self._stream, self._block) + frame(_DATA, 1, self._stream, self._body)
        self.socket.sendall(request)

    def receive(self) -> None:
        """Count what has arrived."""
        received = self.socket.recv(_AT_ONCE)
        if not received:
            raise ConnectionError("the server has closed the connection")
        self.pieces += 1
        data, at = self._rest + received, 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3])
            if len(data) - at - 9 < size:
                break
            kind, flags, body = data[at + 3], data[at + 4], data[at + 9 : at + 9 + size]
            at += 9 + size
            if kind == _DATA:
                self._count(body)
            if kind in (_DATA, _HEADERS) and flags & 1:
                self.ended += 1
            elif kind in (_SETTINGS, _PING) and not flags & 1:
                self.socket.sendall(frame(kind, 1, 0, body if kind == _PING else b""))
            elif kind == _GOAWAY:
                raise ConnectionError("the server has sent GOAWAY")
        self._rest = data[at:]

    def _count(self, body: bytes) -> None:
        data, at = self._message + body, 0
        while len(data) - at >= 5 and len(data) - at - 5 >= (size := int.from_bytes(data[at + 1 : at + 5])):
            at += 5 + size
            self.messages += 1
        self._message = data[at:]


def _until(connections: list[Connection], done: Callable[[Connection], bool], ends: float) -> None:
    """Receive on all connections until ``done`` was true once for each, or the time is over."""
    selector = selectors.DefaultSelector()
    for each in connections:
        selector.register(each.socket, selectors.EVENT_READ, each)
    left = {*connections}
    while left and (remaining := ends - time.monotonic()) > 0:
        for key, _ in selector.select(remaining):
            key.data.receive()
            if done(key.data):
                left.discard(key.data)
    selector.close()


def reads(address: str, connections: int, seconds: float, name: str) -> None:
    """Read one resource on each connection, one call after the other."""
    wanted = pb.ReadRequest(id=pb.Id(name=name, type=TYPE.message(), tenancy=pb.Tenancy()))
    opened = [Connection(address, "Read", wanted) for _ in range(connections)]

    def next_one(connection: Connection) -> bool:
        if connection.ended == (connection._stream + 1) // 2:
            connection.call()
        return False

    began = time.process_time()
    for each in opened:
        each.call()
    _until(opened, next_one, time.monotonic() + seconds)
    assert all(each.messages >= each.ended - 1 for each in opened), "some reads have failed"
    print(sum(each.ended for each in opened), time.process_time() - began, flush=True)


def watches(address: str, connections: int, snapshot: int, events: int) -> None:
    """Watch on each connection. Print a line after snapshots of this size, and another one after this many events."""
    wanted = pb.WatchListRequest(type=TYPE.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
    opened = [Connection(address, "WatchList", wanted) for _ in range(connections)]
    for each in opened:
        each.call()
    _until(opened, lambda each: each.messages > snapshot, time.monotonic() + 60)
    before, began = {each: each.messages for each in opened}, time.process_time()
    pieces = sum(each.pieces for each in opened)
    print("watching", flush=True)
    _until(opened, lambda each: each.messages - before[each] >= events, time.monotonic() + 120)
    got = sum(each.messages - before[each] for each in opened)
    pieces = sum(each.pieces for each in opened) - pieces
    print(got, time.process_time() - began, got / pieces, flush=True)


if __name__ == "__main__":
    what, where, count, *rest = sys.argv[1:]
    if what == "reads":
        reads(where, int(count), float(rest[0]), rest[1])
    else:
        watches(where, int(count), int(rest[0]), int(rest[1]))
