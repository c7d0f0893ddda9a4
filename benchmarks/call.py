"""`call_read`, `call_update`: a call over loopback TCP after the other, by the processor time of the server's process.

Measured: the processor time of a process that serves a memory store, for each Read, and for each Write with the version
that the reply before has named. One client sends a call in one write, as gRPC clients do, each with another timeout. It
reads the whole reply before the next call. The time includes the kernel's work for the process. The least of batches
counts, because between two calls other programs take the processor's caches.

Against: a process with a bare Trio echo, which reads as many bytes as such a call has, and starts a task that sends as
many bytes as its reply has.

The resources are those of `_message.py`: one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import NamedTuple

import trio
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

from benchmarks._harness import NotHere, Row, Scenario, interleaved
from benchmarks._message import texts
from headway.protobuf import decode, encode
from headway.resource import AnyMessage, pb

BOUNDS = {"read": 11.0, "update": 14.0}
RESOURCES = 1_000
BATCH = 100
_SERVICE = "/headway.resource.v1.ResourceService"
# Linux makes the number of the clock of a process's time of the number of the process.
_OF_PROCESS = 2


class Client:
    """A client that makes one call after the other, and counts the bytes of the last one."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self.close = self._socket.close
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._h2 = H2Connection()
        self._h2.initiate_connection()
        self._id = 1
        self._authority = address
        self.sent = self.received = 0

    def call(self, method: str, body: bytes) -> bytes:
        """Make a call and return the body of its reply."""
        id, self._id = self._id, self._id + 2
        fixed = {":method": "POST", ":scheme": "http", ":path": f"{_SERVICE}/{method}", ":authority": self._authority}
        more = {"te": "trailers", "content-type": "application/grpc", "grpc-timeout": f"{90_000_000 - id}u"}
        self._h2.send_headers(id, list((fixed | more).items()))
        self._h2.send_data(id, len(body).to_bytes(5, "big") + body, end_stream=True)
        data = self._h2.data_to_send()
        self._socket.sendall(data)
        self.sent, self.received = len(data), 0
        reply = b""
        while True:
            data = self._socket.recv(1 << 16)
            assert data, "the server has closed the connection"
            self.received += len(data)
            for event in self._h2.receive_data(data):
                if isinstance(event, DataReceived):
                    reply += event.data
                    self._h2.acknowledge_received_data(event.flow_controlled_length, id)
                elif isinstance(event, StreamEnded):
                    return reply[5:]

    def read(self, number: int) -> pb.Resource:
        """Read a resource."""
        reply = decode(pb.ReadResponse, self.call("Read", encode(pb.ReadRequest(id=_id(number)))))
        assert reply.resource is not None
        return reply.resource

    def update(self, number: int, seen: pb.Resource) -> pb.Resource:
        """Write a resource with the version that has been seen."""
        assert seen.data is not None
        last = seen.data.value[-1:]
        data = AnyMessage(type_url=seen.data.type_url, value=seen.data.value[:-1] + (b"b" if last == b"a" else b"a"))
        changed = pb.Resource(id=_id(number), version=seen.version, metadata=seen.metadata, data=data)
        reply = decode(pb.WriteResponse, self.call("Write", encode(pb.WriteRequest(resource=changed))))
        assert reply.resource is not None
        return reply.resource


def _id(number: int) -> pb.Id:
    tenancy = pb.Tenancy(partition="default", namespace="default")
    return pb.Id(name=texts(number).name, type=pb.Type(group="bench", group_version="v1", kind="Note"), tenancy=tenancy)


class Server(NamedTuple):
    """A server's process."""

    address: str
    pid: int

    def seconds(self) -> float:
        """Return the processor time that it has taken so far."""
        return time.clock_gettime(~self.pid << 3 | _OF_PROCESS)


@contextmanager
def _started(module: str, *arguments: int) -> Iterator[Server]:
    """Start a server. It prints its address, and ends when its standard input does."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), process.pid)
        process.stdin.close()


def _ours(server: Server, client: Client, work: str, size: int) -> float:
    seen = client.read(0)

    def call() -> None:
        nonlocal seen
        seen = client.read(0) if work == "read" else client.update(0, seen)

    return _least(server, call, size)


def _against(server: Server, client: Client, size: int) -> float:
    request, reply = bytes(client.sent), client.received
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(reply.to_bytes(4, "big"))

        def call() -> None:
            connection.sendall(request)
            left = reply
            while left:
                left -= len(connection.recv(left))

        return _least(server, call, size)


def _least(server: Server, call: Callable[[], None], size: int) -> float:
    """Return the seconds of a call, the least of the batches of ``size`` calls."""
    found = []
    for _ in range(max(size // BATCH, 1)):
        before = server.seconds()
        for _ in range(BATCH):
            call()
        found.append((server.seconds() - before) / BATCH)
    return min(found)


def measure(work: str, size: int, rounds: int) -> Row:
    """Make ``size`` calls to both."""
    if not sys.platform.startswith("linux"):
        raise NotHere("the clock of another process is Linux's: run this there")
    with ExitStack() as stack:
        ours = stack.enter_context(_started("benchmarks.peers._served", RESOURCES))
        against = stack.enter_context(_started("benchmarks.call"))
        client = stack.enter_context(closing(Client(ours.address)))
        _ours(ours, client, work, size // 10)
        mine, other = interleaved(
            lambda: _ours(ours, client, work, size), lambda: _against(against, client, size), rounds
        )
    return Row(f"call_{work}", mine * 1e6, other * 1e6, "us", BOUNDS[work])


async def _echo() -> None:
    """Answer each read with as many bytes as the connection's first four say, from a task of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)

    async def answer(connection: socket.socket, reply: bytes) -> None:
        connection.send(reply)

    async def serve(connection: socket.socket) -> None:
        with connection:
            await trio.lowlevel.wait_readable(connection)
            reply = bytes(int.from_bytes(connection.recv(4), "big"))
            while True:
                await trio.lowlevel.wait_readable(connection)
                if not connection.recv(1 << 16):
                    return
                nursery.start_soon(answer, connection, reply)

    async def end() -> None:
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        os._exit(0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        while True:
            await trio.lowlevel.wait_readable(listener)
            connection, _ = listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nursery.start_soon(serve, connection)


ROWS = tuple(
    Scenario(f"call_{work}", bound, partial(measure, work), size=5_000, rounds=5, quick=1_000)
    for work, bound in BOUNDS.items()
)

if __name__ == "__main__":
    trio.run(_echo)
