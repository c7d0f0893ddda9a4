"""Output that never blocks its writer, and `say`, which writes to standard error in that way."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys

_AT_ONCE = 4096
"""The number of bytes that a pipe accepts either completely or not at all."""
_STDERR = 2
"""The file descriptor. `sys.stderr` may be None, closed, or not a file."""


class Output:
    """An output to a file descriptor that never waits for its reader.

    A pipe is opened a second time, because non-blocking mode applies to every process that shares a descriptor.
    Checking first whether the pipe has room is not enough, because another writer may fill it in between.

    Args:
        number: the descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._own = _opened_again(number)
        self._room = select.poll()
        self._room.register(number, select.POLLOUT)

    def write(self, data: bytes) -> int:
        """Write at most 4,096 bytes. Return how many fitted; a pipe takes all or none. Raises OSError."""
        if self._own is None:
            # The descriptor is a terminal, a file or a socket.
            return os.write(self._number, data) if self._room.poll(0) else 0
        try:
            return os.write(self._own, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the second descriptor of a pipe. The given descriptor stays open."""
        if self._own is not None:
            os.close(self._own)
            self._own = None


def say(text: str) -> None:
    """Write to standard error, from any thread, as long as something reads it."""
    if sys.__stderr__ is None:
        # It was closed when the process began, so its number may now belong to a store.
        return
    with contextlib.suppress(OSError), contextlib.closing(Output(_STDERR)) as output:
        left = text.encode(errors="replace")
        while left and output.write(left[:_AT_ONCE]):
            left = left[_AT_ONCE:]


def _opened_again(number: int) -> int | None:
    with contextlib.suppress(OSError):
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return None
