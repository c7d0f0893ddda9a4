"""A standard output that cannot be written ends the command, without a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import IO, Any, NoReturn

import click
from typing_extensions import override


class OutputFailed(click.ClickException):
    """Standard output cannot be written."""

    exit_code = 74  # EX_IOERR

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror}")


class OutputClosed(click.ClickException):
    """The reader of standard output has left. Nothing is said, as by a program that SIGPIPE ends."""

    exit_code = 141

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        pass


def check_output() -> None:
    """Let writes to standard output raise OutputFailed or OutputClosed."""
    if sys.stdout is None:
        # It was closed when the process began. What a command prints is dropped.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the end of the process
    elif type(sys.stdout) is io.TextIOWrapper:
        given = sys.stdout
        sys.stdout = _Checked(
            given.buffer,
            encoding=given.encoding,
            errors=given.errors,
            line_buffering=given.line_buffering,
            write_through=given.write_through,
        )


class _Checked(io.TextIOWrapper):
    @override
    def write(self, text: str, /) -> int:
        given: object = text
        if given == "":
            # Click tries what a stream accepts, and ignores the error.
            return 0
        try:
            return super().write(text)
        except OSError as error:
            self._end(error)

    @override
    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        # What is left of the output, and what is written while the command ends, goes nowhere.
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, self.fileno())
        os.close(null)
        raise (OutputClosed("") if error.errno == errno.EPIPE else OutputFailed(error)) from None
