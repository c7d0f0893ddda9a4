"""Standard error, for what has nobody else to hear it: a write that neither waits nor fails."""

from __future__ import annotations

import contextlib
import os
import select
import sys

# Bytes for which a pipe that is ready has room.
_AT_ONCE = 4096
_STDERR = 2
"""The file itself: `sys.stderr` may be None, closed or something that isn't a file."""


def say(text: str) -> None:
    """Write to standard error as long as something reads it, from any thread."""
    if sys.__stderr__ is None:
        # It was closed when the process began: a store may have that number now.
        return
    ready = select.poll()
    ready.register(_STDERR, select.POLLOUT)
    left = text.encode(errors="replace")
    with contextlib.suppress(OSError):
        while left and ready.poll(0):
            left = left[os.write(_STDERR, left[:_AT_ONCE]) :]
