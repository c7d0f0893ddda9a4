"""What has arrived on one stream of a connection, until somebody takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from grpclib import GRPCError
from grpclib.const import Status

from headway.rpc._budget import Budget
from headway.rpc._signal import Signal

# So much is taken from a stream at once: decoding more would hold up everybody else.
_TAKEN_AT_ONCE = 64 << 10
# A piece smaller than this is joined to the next: many of a byte each would take a hundred times their size.
_SMALL = 1 << 10


class Inbox:
    """What has arrived on a stream and nobody has taken. Its size is bounded by the stream's window.

    It stands where grpclib has a `Buffer`, and hands the window back as it is emptied. What has been taken and is not
    a whole message yet counts as held until `done` says otherwise, and what is held is bounded by the budget.
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
        # What the call takes beside the bytes of its request.
        self._beside = 0
        # How much of the window is taken by what was thrown away: its sender is not asked for more.
        self._dropped = 0
        self._open = True
        self._ended = False
        self._arrived = Signal()
        # Called by `refuse`, so that whoever has taken parts of the request frees them at once.
        self.refused: Callable[[GRPCError], None] | None = None

    def add(self, data: bytes, ack_size: int) -> None:
        """A DATA frame has come; with its padding it took ``ack_size`` of the window."""
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
        """Whether what comes is kept for somebody."""
        return self._open

    @property
    def ready(self) -> bool:
        """Whether `take` would return, or raise, at once."""
        return self._ended or bool(self._chunks)

    @property
    def finished(self) -> bool:
        """Whether all that was sent has been taken."""
        return self._ended and not self._chunks and self._arrived.failure is None

    def eof(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        """Nothing more will come, and that is an error; what has come can still be taken."""
        if not self._ended:
            self._arrived.fail(error)

    def count(self, beside: int) -> None:
        """Count ``beside`` bytes against the budget until the request is whole."""
        self._hold(self._held, beside)

    def done(self, size: int) -> None:
        """So much of what was taken has become whole messages."""
        # Nothing is held of what has been thrown away meanwhile.
        self._hold(max(self._held - size, 0), 0 if self.finished else self._beside)

    def close(self) -> None:
        """Nobody will take anything more: what is there, and what comes, is thrown away."""
        self._open = False
        self._dropped += sum(size for _, size in self._chunks)
        self._chunks.clear()
        self._hold(0, 0)

    def refuse(self) -> None:
        """See `Holder`: whoever waits for the rest of the request is told."""
        held = self._held
        self.close()
        text = f"too much of requests that are not whole is held here: {held} bytes of this one have been thrown away"
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
        """Forget what nobody will take; how much of the window it held."""
        self.close()
        size, self._dropped = self._dropped, 0
        return size

    async def take(self) -> bytes:
        """Some of what there is, as soon as there is any; empty at the end."""
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
