"""Standard streams that may fail while a server runs: closed, without a reader, or with a reader that doesn't read."""

from __future__ import annotations

import os
import sys
from typing import Any

from headway._standard_error import Output

# Characters per write: in UTF-8 at most 4,096 bytes, for which a pipe that is ready has room.
_AT_ONCE = 1024


def keep_standard_streams() -> None:
    """Make writes to standard output and standard error succeed without blocking, for the life of the process.

    Output that cannot be written is dropped. A closed descriptor is opened on the null device. Otherwise a file of the
    store would get its number, and stray output would be written to that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # This opens the lowest free number, which is this one: the lower ones are open.
            os.open(os.devnull, os.O_RDWR)
        if name != "stdin":
            stream = getattr(sys, name) or open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for good
            setattr(sys, name, Lasting(stream, number))


class Lasting:
    """A text stream that never blocks its writer.

    After an error it is redirected to the null device. While its reader does not read, output is dropped; the next line
    that can be written reports how many lines were lost.

    Args:
        stream: the stream of a descriptor.
        number: the descriptor.
    """

    def __init__(self, stream: Any, number: int) -> None:
        self._stream = stream
        self._number = number
        self._lost = 0
        self._output = Output(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        given: object = text
        if not isinstance(given, str):
            # Click tests whether a stream accepts bytes.
            raise TypeError(f"expected str, got {type(given).__name__}")
        try:
            for at in range(0, len(text), _AT_ONCE):
                if not (self._tells_lost() and self._takes(text[at : at + _AT_ONCE])):
                    self._lost += max(text.count("\n", at), 1)
                    break
        except OSError:
            self._lose()
        return len(text)

    def _tells_lost(self) -> bool:
        if self._lost and self._takes(f"{self._lost} lines of output were lost, because nothing read them\n"):
            self._lost = 0
        return not self._lost

    def _takes(self, text: str) -> bool:
        return self._output.write(text.encode(self._stream.encoding or "utf-8", "replace"))

    def flush(self) -> None:
        """Do nothing: every write is flushed immediately."""

    def _lose(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._number)
        os.close(null)
        self._output.close()
        self._output = Output(self._number)
