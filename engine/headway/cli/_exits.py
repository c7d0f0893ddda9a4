"""Exit codes, and error messages on stderr."""

from __future__ import annotations

import enum
import sys
from typing import NoReturn

import click

from headway.cli._text import plain
from headway.errors import HeadwayError, ManifestError, NotFound, RemoteError


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
    click.echo("\n".join(plain(line) for line in message.split("\n")), err=True)
    sys.exit(code)


def fail_by(error: HeadwayError) -> NoReturn:
    """Print an error to stderr, and exit with its code."""
    if isinstance(error, ManifestError):
        # Without a prefix: every line starts with its place, like the messages of compilers.
        fail(Exit.MANIFEST, str(error))
    fail(code_of(error), f"Error: {error}")


def code_of(error: HeadwayError) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, NotFound):
        return Exit.NOT_FOUND
    return Exit.UNREACHABLE if isinstance(error, RemoteError) else Exit.REFUSED
