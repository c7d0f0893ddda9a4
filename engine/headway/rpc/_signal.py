"""An event for Trio tasks with the interface of asyncio.Event."""

from __future__ import annotations

import trio


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
