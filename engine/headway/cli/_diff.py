"""The command `headway diff`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence

import click

from headway import manifest
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit
from headway.cli._files import files_option, load_all
from headway.cli._preview import Preview, previews


@click.command()
@files_option
@connected
async def diff(connection: Connection, files: Sequence[str]) -> None:
    """Show what `apply` would change, without storing anything.

    The output is a unified diff of manifests, which includes the defaults that the server would fill in. Exits with 7
    if there is a difference.
    """
    different = False
    async for preview in previews(connection.client, load_all(files, connection.registry)):
        if preview.differs:
            different = True
            for line in _difference(preview):
                click.echo(line)
    if different:
        sys.exit(Exit.DIFFERENT)


def _difference(preview: Preview) -> Iterator[str]:
    before = "" if preview.stored is None else manifest.dump(preview.stored)
    name = str(preview.wanted.id)
    return difflib.unified_diff(
        before.splitlines(),
        manifest.dump(preview.wanted).splitlines(),
        fromfile=f"stored: {name}" if preview.stored is not None else "stored: nothing",
        tofile=f"given: {name}",
        lineterm="",
    )
