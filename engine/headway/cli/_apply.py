"""`headway apply`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from headway.cli._connection import Connection, connected
from headway.cli._exits import code_of, fail
from headway.cli._files import files_option, load_all
from headway.client import Client
from headway.errors import HeadwayError
from headway.resource import Resource


@click.command()
@files_option
@connected
async def apply(connection: Connection, files: Sequence[str]) -> None:
    """Store what manifests say, where it differs from what is stored.

    All documents of all files are checked before the first is stored. They are stored in their order; the first one
    that the server refuses ends the command.
    """
    resources = load_all(files, connection.registry)
    for number, resource in enumerate(resources):
        try:
            done = await _apply_one(connection.client, resource)
        except HeadwayError as error:
            left = len(resources) - number - 1
            rest = f" ({left} more not applied)" if left else ""
            fail(code_of(error), f"Error: {resource.id}: {error}{rest}")
        click.echo(f"{resource.id} {done}")


async def _apply_one(client: Client, resource: Resource[Any]) -> str:
    before = await client.get(resource.type, resource.id)
    stored = await client.apply(resource)
    if before is None:
        return "created"
    return "unchanged" if before.version == stored.version else "changed"
