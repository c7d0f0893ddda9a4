"""Flow control on a connection: signals, the data received on a stream, and the queue of streams that want to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio
from grpclib import GRPCError
from grpclib.const import Status
from h2.connection import H2Connection

from headway.rpc._limits import Budget


class Signal:
    """An event that can be set, cleared, and failed. After `fail`, every current and future wait raises the error.

    grpclib's HTTP/2 streams wait only on events and queues. With these replaced, their coroutines run unchanged in Trio
    tasks, without any asyncio task.
    """

    __slots__ = ("_failure", "_lot", "_set")

    def __init__(self, *, is_set: bool = False) -> None:
        self._set = is_set
        self._failure: Exception | None = None
        # Created on the first wait, because most signals are never waited for. A call has four signals, and Python's
        # garbage collector traverses everything that an open call holds.
        self._lot: trio.lowlevel.ParkingLot | None = None

    @property
    def failure(self) -> Exception | None:
        """The error passed to `fail`, or None."""
        return self._failure

    def is_set(self) -> bool:
        """Return True if the signal is set, so that `wait` would not block."""
        return self._set

    def set(self) -> None:
        """Set the signal and wake all waiting tasks."""
        self._set = True
        self._wake()

    def clear(self) -> None:
        """Clear the signal, so that `wait` blocks."""
        self._set = False

    def fail(self, error: Exception) -> None:
        """Make every current and future wait raise ``error``. Only the first call has an effect."""
        if self._failure is None:
            self._failure = error
        self._wake()

    async def wait(self) -> None:
        """Wait until the signal is set. It is not a checkpoint if the signal is already set."""
        while True:
            if self._failure is not None:
                # Each waiter needs its own error, because raising stores a traceback in it.
                raise type(self._failure)(*self._failure.args)
            if self._set:
                return
            if self._lot is None:
                self._lot = trio.lowlevel.ParkingLot()
            await self._lot.park()

    def _wake(self) -> None:
        if self._lot is not None:
            self._lot.unpark_all()


# The bytes that one `take` returns, approximately. Decoding more at once would block other tasks for too long.
_TAKEN_AT_ONCE = 64 << 10
# A piece smaller than this is joined with the next one. Many one-byte pieces would take a hundred times their size.
_SMALL = 1 << 10


class Inbox:
    """The data that has arrived on a stream and has not been taken. The stream's window limits its size.

    It replaces grpclib's `Buffer`, and reopens the window as data is taken. Data counts as held, and is charged to the
    budget, from its arrival until `done` says that it has become complete messages.
    """

    __slots__ = (
        "_acknowledge",
        "_arrived",
        "_budget",
        "_chunks",
        "_dropped",
        "_ended",
        "_extra",
        "_held",
        "_open",
        "refused",
    )

    def __init__(self, acknowledge: Callable[[int], None], budget: Budget | None = None) -> None:
        self._acknowledge = acknowledge
        self._budget = budget
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._held = 0
        # The memory of the call in addition to the bytes of its request.
        self._extra = 0
        # The part of the window taken by discarded data. It is not reopened, so that the sender stops.
        self._dropped = 0
        self._open = True
        self._ended = False
        self._arrived = Signal()
        # Called by `refuse`, so that the reader frees the parts of the request that it has taken.
        self.refused: Callable[[GRPCError], None] | None = None

    def add(self, data: bytes, ack_size: int, *, last: bool = False) -> None:
        """Add the data of a DATA frame, which took ``ack_size`` of the window including its padding.

        A small piece that is all of a request, and has its end with it, is not charged: the call runs in this turn.
        """
        if not self._open:
            self._dropped += ack_size
            return
        size = len(data)
        if last and size < _SMALL and not self._chunks and not self._held:
            self._chunks.append((data, ack_size))
            self._arrived.set()
            return
        if self._chunks and len(self._chunks[-1][0]) < _SMALL:
            before, held = self._chunks.pop()
            data, ack_size = before + data, held + ack_size
        self._chunks.append((data, ack_size))
        self._arrived.set()
        self._hold(self._held + size, self._extra)

    @property
    def open(self) -> bool:
        """True if arriving data is kept for a reader."""
        return self._open

    @property
    def ready(self) -> bool:
        """True if `take` would return or raise without waiting."""
        return self._ended or bool(self._chunks)

    @property
    def ended(self) -> bool:
        """True if the peer has sent everything. Some of it may not be taken yet."""
        return self._ended

    @property
    def finished(self) -> bool:
        """True if the peer has sent everything and it has all been taken."""
        return self._ended and not self._chunks and self._arrived.failure is None

    def eof(self) -> None:
        """Mark the end of the data."""
        self._ended = True
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """End the data with an error. Data that has arrived can still be taken."""
        if not self._ended:
            self._arrived.fail(error)

    def count(self, extra: int) -> None:
        """Charge ``extra`` additional bytes to the budget until the request is complete."""
        self._hold(self._held, extra)

    def done(self, size: int) -> None:
        """Release ``size`` bytes of the taken data from the budget, because they have become complete messages."""
        # `close` may have set what is held to 0 in between.
        self._hold(max(self._held - size, 0), 0 if self.finished else self._extra)

    def close(self) -> None:
        """Discard all data, now and in the future."""
        self._open = False
        if self._chunks:
            self._dropped += sum(size for _, size in self._chunks)
            self._chunks.clear()
        self._hold(0, 0)

    def refuse(self) -> None:
        """Discard the request, and make its reader fail, to free memory for other requests."""
        held = self._held
        self.close()
        text = f"incomplete requests take too much memory: {held} bytes of this one were discarded"
        error = GRPCError(Status.RESOURCE_EXHAUSTED, f"{text}; try again later")
        self._arrived.fail(error)
        if self.refused is not None:
            self.refused(error)

    def _hold(self, size: int, extra: int) -> None:
        before, now = self._held + self._extra, size + extra
        self._held, self._extra = size, extra
        if now != before and self._budget is not None:
            self._budget.held(self, before, now)

    def unacked_size(self) -> int:
        """Discard all data and return how much of the window it took."""
        self.close()
        size, self._dropped = self._dropped, 0
        return size

    async def wait_end(self) -> None:
        """Wait for the end of the data."""
        while not self._ended:
            self._arrived.clear()
            await self._arrived.wait()

    async def take(self) -> bytes:
        """Wait for data and return some of it, or ``b""`` at the end."""
        while not self._chunks:
            if self._ended and self._arrived.failure is None:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        chunks, freed, size = [], 0, 0
        while self._chunks and size < _TAKEN_AT_ONCE:
            data, ack_size = self._chunks.popleft()
            chunks.append(data)
            size += len(data)
            freed += ack_size
        self._acknowledge(freed)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


# The number of streams that an opened window wakes at once. Each passes the rest on to the next ones.
_WOKEN_AT_ONCE = 16


class WindowQueue:
    """A FIFO queue of the streams that wait for the connection's window to open.

    Opening the window wakes only a few streams. Otherwise a peer could wake a thousand tasks with each window of one
    byte. A stream that has sent its data, or was canceled, passes the rest of the window on.
    """

    __slots__ = ("_h2", "_waiting")

    def __init__(self, h2: H2Connection) -> None:
        self._h2 = h2
        self._waiting: dict[Signal, None] = {}

    async def wait(self, updated: Signal) -> None:
        """Wait until the stream may be able to send. The caller must check again.

        ``updated`` is the stream's signal, which is also set when its own window opens.
        """
        updated.clear()
        if self._h2.outbound_flow_control_window > 0:
            # Only the stream's own window is closed. Leave the connection's window to others.
            self.pass_on()
            await updated.wait()
            return
        self._waiting[updated] = None
        try:
            await updated.wait()
        finally:
            del self._waiting[updated]

    def pass_on(self) -> None:
        """Wake the next streams if the window is open."""
        if not self._waiting or self._h2.outbound_flow_control_window <= 0:
            return
        for _, updated in zip(range(_WOKEN_AT_ONCE), self._waiting, strict=False):
            updated.set()
