"""The buffer for data that has arrived on one stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from grpclib import GRPCError
from grpclib.const import Status

from headway.rpc._budget import Budget
from headway.rpc._signal import Signal

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
        "_beside",
        "_budget",
        "_chunks",
        "_dropped",
        "_ended",
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
        self._beside = 0
        # The part of the window taken by discarded data. It is not reopened, so that the sender stops.
        self._dropped = 0
        self._open = True
        self._ended = False
        self._arrived = Signal()
        # Called by `refuse`, so that the reader frees the parts of the request that it has taken.
        self.refused: Callable[[GRPCError], None] | None = None

    def add(self, data: bytes, ack_size: int) -> None:
        """Add the data of a DATA frame, which took ``ack_size`` of the window including its padding."""
        if not self._open:
            self._dropped += ack_size
            return
        size = len(data)
        if self._chunks and len(self._chunks[-1][0]) < _SMALL:
            before, held = self._chunks.pop()
            data, ack_size = before + data, held + ack_size
        self._chunks.append((data, ack_size))
        self._arrived.set()
        self._hold(self._held + size, self._beside)

    @property
    def open(self) -> bool:
        """True if arriving data is kept for a reader."""
        return self._open

    @property
    def ready(self) -> bool:
        """True if `take` would return or raise without waiting."""
        return self._ended or bool(self._chunks)

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

    def count(self, beside: int) -> None:
        """Charge ``beside`` additional bytes to the budget until the request is complete."""
        self._hold(self._held, beside)

    def done(self, size: int) -> None:
        """Release ``size`` bytes of the taken data from the budget, because they have become complete messages."""
        # `close` may have set what is held to 0 in between.
        self._hold(max(self._held - size, 0), 0 if self.finished else self._beside)

    def close(self) -> None:
        """Discard all data, now and in the future."""
        self._open = False
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

    def _hold(self, size: int, beside: int) -> None:
        before = self._held + self._beside
        self._held, self._beside = size, beside
        if self._budget is not None:
            self._budget.held(self, before, size + beside)

    def unacked_size(self) -> int:
        """Discard all data and return how much of the window it took."""
        self.close()
        size, self._dropped = self._dropped, 0
        return size

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
