"""A note that a partition or a namespace does not exist, where a command finds nothing in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import click

from headway.base import plain
from headway.client import Client
from headway.errors import HeadwayError, NotFound
from headway.resource import DEFAULT_UNIT, NAMESPACE, PARTITION, did_you_mean


@asynccontextmanager
async def naming_units(client: Client, partition: str, namespace: str) -> AsyncIterator[None]:
    """If the block raises NotFound, print a note first if the resource's partition or namespace does not exist."""
    try:
        yield
    except NotFound:
        await note_missing_unit(client, partition, namespace)
        raise


async def note_missing_unit(client: Client, partition: str, namespace: str) -> None:
    """Print a note if a partition or a namespace of it does not exist. ``*`` and an empty text mean any.

    A caller who may not read them gets none.
    """
    with suppress(HeadwayError):
        known = {DEFAULT_UNIT, *(each.name for each in await client.list(PARTITION))}
        if partition not in ("*", "", *known):
            _note(f"partition {partition!r} not found{did_you_mean(partition, known)}")
            return
        inside = await client.list(NAMESPACE, partition=partition or "*")
        known = {DEFAULT_UNIT, *(each.name for each in inside)}
        if namespace not in ("*", "", *known):
            where = "" if partition in ("*", "") else f" in partition {partition!r}"
            _note(f"namespace {namespace!r} not found{where}{did_you_mean(namespace, known)}")


def _note(text: str) -> None:
    click.echo(plain(f"Note: {text}"), err=True)
