"""The command `headway describe`: what a server knows of one resource, in one answer for people."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import click

from headway import manifest
from headway.base import plain
from headway.cli._arguments import one_of_a_name
from headway.cli._connection import Connection, connected
from headway.cli._events import events_table
from headway.cli._missing import naming_units
from headway.cli._names import find_named
from headway.cli._output import age, table
from headway.cli._resources import STATUS_HEADS, status_rows
from headway.cli._why import ask_why
from headway.errors import PermissionDenied
from headway.resource import EVENT, Resource, ResourceId, created_at, event_id, readable_time, redacted_resource
from headway.why import sentences

OWNED = 20
"""The number of owned resources that are shown."""


@click.command()
@one_of_a_name
@connected
async def describe(connection: Connection, type: str, name: str, partition: str, namespace: str) -> None:
    """Show one resource: its content, owners, conditions, events, and why it is, or is not, done.

    A part that you may not see says so.
    """
    found, id = find_named(type, name, partition, namespace, connection.registry)
    client = connection.client
    async with naming_units(client, id.partition, id.namespace):
        resource = await client.read(found, id)
    for line in _about(resource):
        click.echo(plain(line))
    _show("Manifest", manifest.dump(redacted_resource(resource)).splitlines())
    rows = list(status_rows(resource))
    _show("Conditions", table(STATUS_HEADS, rows).splitlines() if rows else ["none"])
    for title, part in (("Owns", _owned), ("Events", _events), ("Why", _why)):
        try:
            lines = await part(connection, resource)
        except PermissionDenied as error:
            lines = [f"not shown: {error}"]
        _show(title, lines)


def _show(title: str, lines: Iterable[str]) -> None:
    click.echo(f"\n{title}:")
    click.echo(textwrap.indent("\n".join(map(plain, lines)), "  "))


def _about(resource: Resource[Any]) -> Iterator[str]:
    yield _full(resource.id)
    created = created_at(resource.uid)
    if created:
        yield f"Created: {readable_time(datetime.datetime.fromtimestamp(created, datetime.UTC))}, {age(resource)} ago"
    yield f"Stored:  version {resource.version}, generation {resource.generation}, uid {resource.uid}"
    if resource.owner is not None:
        yield f"Owner:   {_full(resource.owner)}, with which it is deleted"


def _full(id: ResourceId) -> str:
    return f"{id.type} {'/'.join(filter(None, (id.partition, id.namespace, id.name)))}"


async def _owned(connection: Connection, resource: Resource[Any]) -> list[str]:
    found = [each for each in await connection.client.list_by_owner(resource) if each.type.kind != EVENT.kind]
    more = [f"and {len(found) - OWNED} more"] if len(found) > OWNED else []
    return [_full(each.id) for each in found[:OWNED]] + more or ["nothing"]


async def _events(connection: Connection, resource: Resource[Any]) -> list[str]:
    found = await connection.client.get(EVENT, event_id(resource.id))
    return ["none"] if found is None else events_table([found]).splitlines()


async def _why(connection: Connection, resource: Resource[Any]) -> list[str]:
    # The first line names the resource, and the events stand above.
    answer = await ask_why(connection, resource.id, events=False)
    return sentences(answer)[1:]
