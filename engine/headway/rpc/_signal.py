"""asyncio.Event's face for Trio's tasks: grpclib's coroutines wait on it and become Trio's."""

from __future__ import annotations

import trio


class Signal:
    """Set and cleared any number of times; `fail` ends every wait, present and future, with an error.

    grpclib's HTTP/2 streams wait on nothing but events and queues. Given these instead, they run in Trio's tasks
    as they are, with no asyncio task beside them.
    """

    __slots__ = ("_failure", "_lot", "_set")

    def __init__(self, *, is_set: bool = False) -> None:
        self._set = is_set
        self._failure: Exception | None = None
        # Made when somebody waits, which most never do: a call has four signals, and Python's garbage collector looks
        # through all that an open call keeps.
        self._lot: trio.lowlevel.ParkingLot | None = None

    @property
    def failure(self) -> Exception | None:
        """What `fail` was called with."""
        return self._failure

    def is_set(self) -> bool:
        """Whether `wait` would return at once."""
        return self._set

    def set(self) -> None:
        """Let everyone go who waits."""
        self._set = True
        self._wake()

    def clear(self) -> None:
        """Let them wait from now on."""
        self._set = False

    def fail(self, error: Exception) -> None:
        """Raise ``error`` from every wait, from now on. The first one stays."""
        if self._failure is None:
            self._failure = error
        self._wake()

    async def wait(self) -> None:
        """Until set. Not a checkpoint when there is nothing to wait for."""
        while True:
            if self._failure is not None:
                # Each waiter needs an error of its own: a traceback is written into it.
                raise type(self._failure)(*self._failure.args)
            if self._set:
                return
            if self._lot is None:
                self._lot = trio.lowlevel.ParkingLot()
            await self._lot.park()

    def _wake(self) -> None:
        if self._lot is not None:
            self._lot.unpark_all()
