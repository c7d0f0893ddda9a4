"""Writes to standard error that neither block nor fail, for messages without another destination."""

from __future__ import annotations

import contextlib
import os
import select
import sys

# The number of bytes that always fit into a pipe that is ready.
_AT_ONCE = 4096
_STDERR = 2
"""The file descriptor. `sys.stderr` may be None, closed, or not a file."""


def say(text: str) -> None:
    """Write to standard error, from any thread, as long as something reads it."""
    if sys.__stderr__ is None:
        # It was closed when the process began, so its number may now belong to a store.
        return
    ready = select.poll()
    ready.register(_STDERR, select.POLLOUT)
    left = text.encode(errors="replace")
    with contextlib.suppress(OSError):
        while left and ready.poll(0):
            left = left[os.write(_STDERR, left[:_AT_ONCE]) :]
