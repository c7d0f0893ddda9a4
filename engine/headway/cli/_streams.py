"""Standard streams that a server can lose: closed by whoever started it, or a pipe whose reader has gone."""

from __future__ import annotations

import os
import sys
from typing import Any


def keep_standard_streams() -> None:
    """Let writes to standard output and standard error succeed for as long as the process lives.

    Output that cannot be written is thrown away. A closed descriptor is opened on the null device: otherwise a file of
    the store would get its number, and anything printed by mistake would be written into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: those before it are open.
            os.open(os.devnull, os.O_RDWR)
        if name != "stdin":
            stream = getattr(sys, name) or open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for good
            setattr(sys, name, Lasting(stream, number))


class Lasting:
    """A text stream that goes to the null device once it can't be written to.

    Args:
        stream: the stream of a descriptor.
        number: the descriptor.
    """

    def __init__(self, stream: Any, number: int) -> None:
        self._stream = stream
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or lose what is written."""
        try:
            return int(self._stream.write(text))
        except OSError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        """Flush, or lose what was written."""
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        # The stream still holds some text. It is flushed to the null device when the process ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._number)
        os.close(null)
