"""The command `headway status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from headway.cli._connection import Connection, connected
from headway.cli._options import one_of_a_name
from headway.cli._output import Output, output_option, show_object
from headway.cli._text import table
from headway.cli._type_names import find_id, find_type
from headway.resource import Resource, readable_time

_HEADS = ("BY", "CONDITION", "STATE", "SEEN", "WRITTEN", "REASON", "MESSAGE")


@click.command()
@one_of_a_name
@output_option("json and yaml have one object per condition.")
@connected
async def status(connection: Connection, type: str, name: str, partition: str, namespace: str, output: Output) -> None:
    """Show the conditions of a resource, by writer.

    SEEN is `current` if the writer had observed the current generation of the resource, else `older`. WRITTEN is the
    time of the write, in UTC.
    """
    found = find_type(type, connection.registry)
    id = find_id(type, name, partition, namespace, connection.registry)
    resource = await connection.client.read(found, id)
    rows = list(_rows(resource))
    if output != "table":
        show_object([dict(zip(map(str.lower, _HEADS), row, strict=True)) for row in rows], output)
    elif rows:
        click.echo(table(_HEADS, rows))
    else:
        click.echo(f"{resource.id} has no conditions", err=True)


def _rows(resource: Resource[Any]) -> Iterator[tuple[str, ...]]:
    for key, said in sorted(resource.status.items()):
        seen = "current" if said.observed_generation == resource.generation else "older"
        written = "" if said.updated_at is None else readable_time(said.updated_at)
        for each in said.conditions:
            yield key, each.type, each.state.name or str(int(each.state)), seen, written, each.reason, each.message
