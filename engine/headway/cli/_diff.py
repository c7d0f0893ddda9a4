"""`headway diff`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from headway import manifest
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit
from headway.cli._files import files_option, load_all
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, Resource


@click.command()
@files_option
@connected
async def diff(connection: Connection, files: Sequence[str]) -> None:
    """Show what `apply` of the same files would change, and store nothing.

    What is shown is a unified diff of manifests. It ends with 7 when there is a difference. What the server itself would fill in is not foreseen.
    """
    different = False
    for resource in load_all(files, connection.registry):
        stored = await connection.client.get(resource.type, resource.id)
        for line in _difference(stored, resource):
            different = True
            click.echo(line)
    if different:
        sys.exit(Exit.DIFFERENT)


def _difference(stored: Resource[Any] | None, wanted: Resource[Any]) -> Iterator[str]:
    before = ""
    if stored is not None:
        before = manifest.dump(stored)
        wanted = _as_applied(stored, wanted)
    after = manifest.dump(wanted)
    name = str(wanted.id)
    return difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        fromfile=f"stored: {name}" if stored is not None else "stored: nothing",
        tofile=f"given: {name}",
        lineterm="",
    )


def _as_applied(stored: Resource[Any], wanted: Resource[Any]) -> Resource[Any]:
    """As `Client.apply` leaves it: marks, finalizers and the owner stay unless others are given."""
    message = wanted.message()
    for reserved in (FINALIZERS, DELETION_TIMESTAMP):
        if reserved in stored.metadata:
            message.metadata.setdefault(reserved, stored.metadata[reserved])
    if message.owner is None:
        message.owner = stored.message().owner
    return wanted.type.view(message)
