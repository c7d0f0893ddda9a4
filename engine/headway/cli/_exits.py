"""How a command ends: the exit codes, and what is said on stderr for an error."""

from __future__ import annotations

import enum
import sys
from typing import NoReturn

import click

from headway.cli._text import plain
from headway.errors import HeadwayError, ManifestError, NotFound, RemoteError


class Exit(enum.IntEnum):
    """The exit codes. docs/guides/command-line.md has them too."""

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
    """What was asked for can't be meant: an unknown type, an address that is none."""

    exit_code = Exit.USAGE


def fail(code: Exit, message: str) -> NoReturn:
    """Say why, and end with the code."""
    click.echo("\n".join(plain(line) for line in message.split("\n")), err=True)
    sys.exit(code)


def fail_by(error: HeadwayError) -> NoReturn:
    """End as the error wants it."""
    if isinstance(error, ManifestError):
        # Every line begins with its place, as compilers have it.
        fail(Exit.MANIFEST, str(error))
    fail(code_of(error), f"Error: {error}")


def code_of(error: HeadwayError) -> Exit:
    """The exit code for an error."""
    if isinstance(error, NotFound):
        return Exit.NOT_FOUND
    return Exit.UNREACHABLE if isinstance(error, RemoteError) else Exit.REFUSED
