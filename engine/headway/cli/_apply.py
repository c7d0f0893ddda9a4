"""The command `headway apply`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, code_of, fail
from headway.cli._files import files_option, load_all
from headway.cli._output import Output, output_option, show_all
from headway.cli._preview import preview_over, previews
from headway.client import Client
from headway.errors import AlreadyExists, HeadwayError
from headway.resource import Resource


@click.command()
@files_option
@click.option("--dry-run", is_flag=True, help="Only show what would be stored. Exits with 7 if anything would.")
@click.option("--create-only", is_flag=True, help="Only create resources. Fail if a name already exists.")
@output_option("yaml and json show the resources as stored, or with --dry-run as they would be stored.")
@connected
async def apply(connection: Connection, files: Sequence[str], dry_run: bool, create_only: bool, output: Output) -> None:
    """Create or update the resources in manifests.

    A resource that is stored already and does not differ is left alone. All documents of all files are checked before
    the first is stored. They are stored in order, and the command stops at the first one that the server rejects.
    """
    if dry_run and create_only:
        raise Usage("--create-only and --dry-run exclude each other: only a write can find out whether a name exists")
    resources = load_all(files, connection.registry)
    if dry_run:
        await _dry_run(connection.client, resources, output)
        return
    stored: list[Resource[Any]] = []
    for number, resource in enumerate(resources):
        try:
            after, done = await _apply_one(connection.client, resource, create_only=create_only)
        except HeadwayError as error:
            show_all(stored, output)
            left = len(resources) - number - 1
            rest = f" ({left} more not applied)" if left else ""
            fail(code_of(error), f"Error: {resource.id}: {error}{rest}")
        if output == "table":
            click.echo(f"{resource.id} {done}")
        stored.append(after)
    show_all(stored, output)


async def _apply_one(client: Client, resource: Resource[Any], *, create_only: bool) -> tuple[Resource[Any], str]:
    if create_only:
        try:
            return await client.create(resource), "created"
        except AlreadyExists as error:
            raise AlreadyExists("it already exists; leave --create-only out to replace it") from error
    before = await client.get(resource.type, resource.id)
    if before is None:
        return await client.apply(resource), "created"
    # Only the server can decide whether a resource differs, since this program doesn't know the hooks of its types.
    if not (await preview_over(client, before, resource)).differs:
        return before, "unchanged"
    stored = await client.apply(resource)
    return stored, "unchanged" if before.version == stored.version else "changed"


async def _dry_run(client: Client, resources: Sequence[Resource[Any]], output: Output) -> None:
    wanted: list[Resource[Any]] = []
    different = False
    async for preview in previews(client, resources):
        if output == "table":
            click.echo(f"{preview.wanted.id} {preview.outcome}")
        wanted.append(preview.wanted)
        different |= preview.differs
    show_all(wanted, output)
    if different:
        sys.exit(Exit.DIFFERENT)
