"""A transport for an accepted socket, on Trio, which sends what was written in one turn of the loop at once.

It has the interface of asyncio's transports, as far as the protocols of this package use it. asyncio's own sends with
each write, and under trio-asyncio a read takes three switches of tasks.
"""

from __future__ import annotations

import contextlib
import socket
from asyncio import BufferedProtocol
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from headway.base import silence_in_forked_child
from headway.rpc._channel import Report

# This many bytes are sent at once. Fewer wait until the other tasks of this turn have written too.
_AT_ONCE = 32 << 10
# The protocol is asked to pause above the first number of unsent bytes, and to resume at the second. As in asyncio.
_HIGH, _LOW = 64 << 10, 16 << 10


class Outbox:
    """The transports of a server that have something to send. They send when the tasks of this turn have run.

    So the replies of several calls, and the answers to the frames that came with them, are one write. A write takes
    longer than anything else in a short call, because it wakes the peer.
    """

    def __init__(self) -> None:
        self._full: list[SocketTransport] = []
        self._waiting: trio.lowlevel.Task | None = None

    def add(self, transport: SocketTransport) -> None:
        """Flush the transport soon."""
        self._full.append(transport)
        if self._waiting is not None:
            task, self._waiting = self._waiting, None
            trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        """Flush the transports, until canceled."""
        while True:
            if not self._full:
                self._waiting = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._canceled)
            full, self._full = self._full, []
            while full:
                full.pop().flush()

    def _canceled(self, _: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED


class SocketTransport:
    """A transport for one accepted connection.

    Args:
        protocol: asyncio's kind of protocol, with or without a buffer of its own.
        peer: the address of the peer.
        nursery: runs the task that sends what the socket does not accept at once.
        report: called with an error of the protocol. It ends only this connection.
        read_at_once: the bytes to read at once.
        lead: awaited with a function that reads once and returns False at the end, and with one that starts another
            task that reads. It returns when this task shall not read any more.
    """

    def __init__(
        self,
        connection: socket.socket,
        protocol: Any,
        peer: object,
        outbox: Outbox,
        nursery: trio.Nursery,
        report: Report,
        *,
        read_at_once: int,
        lead: Callable[[Callable[[], Awaitable[bool]], Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._socket = connection
        silence_in_forked_child(connection)
        self._protocol: Any = protocol
        self._peer = peer
        self._outbox = outbox
        self._nursery = nursery
        self._report = report
        self._read_at_once = read_at_once
        self._lead = lead
        self._buffered = isinstance(protocol, BufferedProtocol)
        # The scope of the task that reads.
        self._reading = trio.CancelScope()
        # True while what has been read is handled. What is written then is sent afterwards.
        self._handling = False
        self._closing = False
        self._lost = False
        # Why the connection was lost, for the protocol.
        self._error: BaseException | None = None
        # Set while reading is paused.
        self._resumed: trio.Event | None = None
        self._unsent = bytearray()
        # True if the outbox will flush this transport.
        self._queued = False
        # True while a task waits until the socket accepts more.
        self._blocked = False
        # True while the protocol is asked not to write.
        self._too_much = False
        self._eof = False

    async def run(self) -> None:
        """Read until the connection is lost. Calls that wait keep their task, and another one reads."""
        try:
            if self._socket.family != getattr(socket, "AF_UNIX", None):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._protocol.connection_made(self)
        except Exception as error:  # noqa: BLE001  # a peer must not end more than its own connection
            self._fail(error)
            self._end()
        else:
            await self._read_on(self._reading)

    async def _read_on(self, reading: trio.CancelScope) -> None:
        try:
            # The error: the socket was closed while it waited.
            with reading, contextlib.suppress(trio.ClosedResourceError):
                await self._lead(self._read, self._follow)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)
        finally:
            if self._reading is reading:
                self._end()

    def _follow(self) -> None:
        """Let another task read."""
        self._handled()
        self._reading = trio.CancelScope()
        self._nursery.start_soon(self._read_on, self._reading, name="rpc socket")

    def _fail(self, error: Exception) -> None:
        self._report("HTTP/2", error)
        self._error = error

    def _end(self) -> None:
        """Tell the protocol, and free the connection at once.

        It is a method because the traceback of the error refers to the frame of `run`. A variable in `run` that refers
        to the error would be a cycle, and keep the connection until Python's garbage collector runs.
        """
        self._closing = self._lost = True
        self._unsent.clear()
        self._close_socket()
        protocol, self._protocol = self._protocol, None
        error, self._error = self._error, None
        protocol.connection_lost(error)

    async def _read(self) -> bool:
        """Read once, when something has arrived. Return False if the connection is lost."""
        self._handled()
        protocol, connection = self._protocol, self._socket
        data: Any
        while not self._lost:
            await trio.lowlevel.wait_readable(connection)
            if self._closing:
                # Only sending is left.
                await trio.sleep_forever()
            if self._resumed is not None:
                await self._resumed.wait()
                continue
            try:
                if self._buffered:
                    data = connection.recv_into(protocol.get_buffer(-1))
                else:
                    data = connection.recv(self._read_at_once)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                self._lose(error)
                break
            self._handling = True
            if not data:
                protocol.eof_received()
                self.close()
            elif self._buffered:
                protocol.buffer_updated(data)
            else:
                protocol.data_received(data)
            return True
        return False

    def _handled(self) -> None:
        """Send what the calls of the last read have written."""
        if self._handling:
            self._handling = False
            self.flush()

    def write(self, data: bytes) -> None:
        """Send the data, soon or when the socket accepts it. It is dropped if the connection is lost."""
        if self._lost or self._eof:
            return
        if len(data) >= _AT_ONCE and not self._unsent and not self._blocked:
            data = data[self._send(data) :]
            if not data or self._lost:
                return
        self._unsent += data
        if self._blocked:
            self._pause_if_too_much()
        elif len(self._unsent) >= _AT_ONCE:
            self.flush()
        elif not (self._queued or self._handling):
            self._queued = True
            self._outbox.add(self)

    def flush(self) -> None:
        """Send what is unsent, as far as the socket accepts it."""
        self._queued = False
        if not self._unsent or self._blocked:
            return
        del self._unsent[: self._send(self._unsent)]
        if self._unsent and not self._lost:
            self._blocked = True
            self._nursery.start_soon(self._drain, name="rpc sender")
            self._pause_if_too_much()

    def _send(self, data: bytes | bytearray) -> int:
        """Return the number of bytes that the socket has accepted."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._lose(error)
            return 0

    async def _drain(self) -> None:
        """Send what is unsent when the socket accepts it."""
        with contextlib.suppress(trio.ClosedResourceError):
            while self._unsent and not self._lost:
                await trio.lowlevel.wait_writable(self._socket)
                del self._unsent[: self._send(self._unsent)]
                if self._too_much and len(self._unsent) <= _LOW and not self._lost:
                    self._too_much = False
                    self._protocol.resume_writing()
        self._blocked = False
        if not self._lost:
            self._all_sent()

    def _all_sent(self) -> None:
        if self._closing:
            self._reading.cancel()
        elif self._eof:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _pause_if_too_much(self) -> None:
        if len(self._unsent) > _HIGH and not self._too_much and not self._lost:
            self._too_much = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        """Return True: a socket has two halves."""
        return True

    def write_eof(self) -> None:
        """Close our half when everything has been sent."""
        if self._closing or self._eof:
            return
        self.flush()
        self._eof = True
        if not self._unsent and not self._lost:
            self._all_sent()

    def close(self) -> None:
        """Close the connection when everything has been sent. Nothing more is read."""
        if self._closing:
            return
        self.flush()
        self._closing = True
        if not self._unsent and not self._lost:
            self._all_sent()

    def abort(self) -> None:
        """Close the connection at once, but first try to send the data that was written in this turn."""
        if not self._lost:
            self.flush()
            self._lose(None)

    def _force_close(self, error: BaseException | None) -> None:  # asyncio's name
        # TLS calls this if its peer breaks off. The data that was written in this turn must still be sent.
        if not self._lost:
            self.flush()
            self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        # The frames of its traceback refer to this connection, and in asyncio's handshake also to the error itself.
        self._error = error.with_traceback(None) if isinstance(error, OSError) else error
        self._unsent.clear()
        # Free the descriptor at once, because a new connection may need it.
        self._close_socket()
        self._reading.cancel()

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def is_closing(self) -> bool:
        """Return True if the connection is closed or will be."""
        return self._closing

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if self._resumed is None:
            self._resumed = trio.Event()

    def resume_reading(self) -> None:
        """Continue to read."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the address of the peer for "peername", the socket for "socket", and otherwise the default."""
        return {"peername": self._peer, "socket": self._socket}.get(name, default)
