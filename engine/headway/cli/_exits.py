"""The exit codes of commands, and the ends that need nothing of Headway's: wrong usage, a message, a signal."""

from __future__ import annotations

import enum
import os
import signal
import sys
from typing import NoReturn

import click


class Exit(enum.IntEnum):
    """The exit codes. They are documented in docs/guides/command-line.md."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    MANIFEST = 4
    UNREACHABLE = 5
    WAITED = 6
    DIFFERENT = 7
    INTERRUPTED = 130


class Usage(click.UsageError):
    """The command was used wrongly, such as with an unknown type or an invalid address."""

    exit_code = Exit.USAGE


def fail(code: Exit, message: str) -> NoReturn:
    """Print a message to stderr, and exit with the code."""
    # Imported here, because `headway --version` and completion need none of it.
    from headway.base import plain

    click.echo("\n".join(plain(line) for line in message.split("\n")), err=True)
    sys.exit(code)


def end_at_signals() -> None:
    """Let SIGTERM end the first process of a container, such as during the import of an app, as it ends any other."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
