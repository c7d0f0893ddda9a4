"""How far an exploration is, on one line of a terminal."""

from __future__ import annotations

import os
import sys
import time

_PACE = 0.1
"""The seconds between two updates, so that the terminal does not take longer than the runs."""


class Progress:
    """Shows how many runs are done, while the block is open and standard error is a terminal: with ``pytest -s``."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0.0
        # A test runner replaces sys.stderr.
        stream = sys.__stderr__
        shows = stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", None)
        self._stream = stream if shows else None

    def __enter__(self) -> Progress:
        return self

    def show(self, done: int, plan: object) -> None:
        """Show that as many runs are done, and which plan is next."""
        if self._stream is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PACE
            # Without a wrap, one return goes back to the beginning of the line.
            width = os.get_terminal_size(self._stream.fileno()).columns - 1
            self._stream.write(f"\r\x1b[K{f'{done} of {self._total} runs, now {plan}'[:width]}")
            self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
