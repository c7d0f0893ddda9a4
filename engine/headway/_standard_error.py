"""Output that never blocks its writer, and `say`, which writes to standard error in that way."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys

_AT_ONCE = 4096
"""Bytes that a pipe takes whole or not at all."""
_STDERR = 2
"""The file itself: `sys.stderr` may be None, closed or something that isn't a file."""


class Output:
    """Writes to a descriptor without waiting for its reader.

    A pipe is opened a second time, because a descriptor that does not block shares that with every process that has it.
    To ask first whether the pipe has room is not enough: another writer may take the room in between.

    Args:
        number: the descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._own = _opened_again(number)
        self._room = select.poll()
        self._room.register(number, select.POLLOUT)

    def write(self, data: bytes) -> bool:
        """Write at most 4,096 bytes. Return False if there is no room for them now. Raises OSError."""
        if self._own is None:
            # A terminal, a file or a socket.
            return bool(self._room.poll(0)) and bool(os.write(self._number, data))
        try:
            return bool(os.write(self._own, data))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close what was opened again. The descriptor itself stays open."""
        if self._own is not None:
            os.close(self._own)
            self._own = None


def say(text: str) -> None:
    """Write to standard error as long as something reads it, from any thread."""
    if sys.__stderr__ is None:
        # It was closed when the process began: a store may have that number now.
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
