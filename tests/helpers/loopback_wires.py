"""A TCP proxy before each port, so that a test can cut the connections between processes on loopback.

A cut wire delivers nothing and refuses nothing. Both ends see only silence, as in a partition. Data in flight arrives
when the wire is mended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

import trio

OUTSIDE = "outside"


class Wires:
    """The proxies of named processes, and the pairs that are cut.

    Args:
        processes: returns the process id of each name.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._cut: set[frozenset[str]] = set()
        self._mended = trio.Event()
        self._open: set[trio.CancelScope] = set()
        self._breaks: tuple[bytes, bool] | None = None
        self.broken = trio.Event()
        self.held_back = 0

    def cut(self, one: str, other: str) -> None:
        """Cut the connection between the two. `OUTSIDE` stands for every process without a name."""
        self._cut.add(frozenset((one, other)))

    def mend(self) -> None:
        """Mend every wire."""
        self._cut.clear()
        self._mended.set()
        self._mended = trio.Event()

    def reset(self) -> None:
        """Close every connection."""
        for each in self._open:
            each.cancel()

    def break_at(self, text: bytes, *, delivered: bool) -> None:
        """Close every connection, and set `broken`, when somebody sends a text: after or before it is delivered."""
        self._breaks, self.broken = (text, delivered), trio.Event()

    async def serve(self, port: int, name: str, target: int, *, task_status: trio.TaskStatus[object]) -> None:
        """Listen on ``port`` for ``name``, which listens itself on ``target``."""
        handle = partial(self._connection, port, name, target)
        await trio.serve_tcp(handle, port, host="127.0.0.1", task_status=task_status)

    async def _connection(self, port: int, name: str, target: int, stream: trio.SocketStream) -> None:
        wire = frozenset((name, self._peer_of(stream.socket.getpeername()[1], port)))
        try:
            async with stream, await trio.open_tcp_stream("127.0.0.1", target) as inner, trio.open_nursery() as nursery:
                self._open.add(nursery.cancel_scope)
                nursery.start_soon(self._pump, wire, stream, inner)
                nursery.start_soon(self._pump, wire, inner, stream)
            self._open.discard(nursery.cancel_scope)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            # One end is closed. Leaving the block closes the other one.
            pass

    async def _pump(self, wire: frozenset[str], source: trio.SocketStream, sink: trio.SocketStream) -> None:
        async for piece in source:
            while wire in self._cut:
                self.held_back += 1
                await self._mended.wait()
            if self._breaks is not None and self._breaks[0] in piece:
                (_, delivered), self._breaks = self._breaks, None
                self._cut.add(wire)
                if delivered:
                    await sink.send_all(piece)
                self._cut.discard(wire)
                self.broken.set()
                self.reset()
            await sink.send_all(piece)
        await sink.send_eof()

    def _peer_of(self, port: int, to: int) -> str:
        """Return the name of the process that connects from a port. No other process has that socket."""
        socket = f"socket:[{_inode(port, to)}]"
        for name, process in self._processes().items():
            folder = f"/proc/{process}/fd"
            try:
                if any(_link(f"{folder}/{each}") == socket for each in os.listdir(folder)):
                    return name
            except FileNotFoundError:
                continue
        return OUTSIDE


def _inode(port: int, to: int) -> str:
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table.readlines()[1:]]
    wanted = (f"{port:04X}", f"{to:04X}")
    return next((row[9] for row in rows if (row[1][-4:], row[2][-4:]) == wanted), "")


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
