"""The command `headway events`: what controllers have recorded of resources, for their users."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from headway.base import plain
from headway.cli._arguments import combined, complete_name, complete_type
from headway.cli._connection import Connection, connected
from headway.cli._exits import Usage
from headway.cli._missing import naming_units, note_missing_unit
from headway.cli._names import find_named, find_type
from headway.cli._output import Details, details_option, json_text, table
from headway.client import Upserted
from headway.resource import EVENT, Entry, Event, Kind, Resource, ResourceId, event_id, readable_time

_HEADS = ("LAST", "COUNT", "RESOURCE", "REASON", "TEXT", "BY")

Wanted = Callable[[ResourceId], bool]
"""A function that returns True if the events of a resource are wanted."""

_arguments = combined(
    click.argument("type", required=False, shell_complete=complete_type),
    click.argument("name", required=False, shell_complete=complete_name),
    click.option(
        "--partition",
        default="",
        help="Only events of resources in this partition. With NAME: the default one if left out.",
    ),
    click.option(
        "--namespace",
        "-n",
        default="",
        help="Only events of resources in this namespace. With NAME: the default one if left out.",
    ),
)


@click.command("events")
@_arguments
@click.option("--warnings", is_flag=True, help="Show only warnings.")
@click.option("--watch", is_flag=True, help="Show the events, and then every new one, until interrupted.")
@details_option
@connected
async def events(
    connection: Connection,
    type: str | None,
    name: str | None,
    partition: str,
    namespace: str,
    warnings: bool,
    watch: bool,
    output: Details,
) -> None:
    """Show what controllers have recorded of resources, for their users.

    Give TYPE and NAME for one resource, TYPE for all of a type, and neither for all resources. The event that happened
    last stands at the end. Equal events are one line, with a count. A warning has an exclamation mark. Times are in
    UTC. In JSON, --watch shows one event a line.
    """
    wanted, id = _wanted(connection, type, name, partition, namespace)
    within = partition or "*", namespace or "*"
    if id is not None:
        # The events of a resource are in its own tenancy, as far as it has one.
        stored = event_id(id)
        within = stored.partition, stored.namespace
    if watch:
        await _watch(connection, wanted, within, output, warnings=warnings)
        return
    if id is None:
        found = await connection.client.list(EVENT, partition=within[0], namespace=within[1])
    else:
        async with naming_units(connection.client, id.partition, id.namespace):
            resource = await connection.client.read(connection.registry.resolve(id.type), id)
        one = await connection.client.get(EVENT, event_id(resource.id))
        found = [] if one is None else [one]
    rows = _sorted(pair for event in found for pair in _entries(event, wanted, warnings=warnings))
    if output == "json":
        click.echo(json_text([_object(of, each) for of, each in rows], indent=2))
    elif rows:
        click.echo(table(_HEADS, [_row(of, each) for of, each in rows]))
    else:
        click.echo("no events found", err=True)
    if id is None and not found:
        await note_missing_unit(connection.client, *within)


def _sorted(entries: Iterable[tuple[ResourceId, Entry]]) -> list[tuple[ResourceId, Entry]]:
    return sorted(entries, key=lambda row: 0.0 if row[1].last is None else row[1].last.timestamp())


def events_table(found: Sequence[Resource[Event]]) -> str:
    """Return a table of events, the last one at the end."""
    rows = _sorted(pair for event in found for pair in _entries(event, lambda _: True, warnings=False))
    return table(_HEADS, [_row(of, each) for of, each in rows])


def _wanted(
    connection: Connection, type: str | None, name: str | None, partition: str, namespace: str
) -> tuple[Wanted, ResourceId | None]:
    """Return which events are wanted, and the id of the only resource, if one is named."""
    if type is None:
        return (lambda _: True), None
    if name is None:
        kind: Kind = find_type(type, connection.registry).kind
        return (lambda of: of.type.unversioned == kind), None
    found, id = find_named(type, name, partition, namespace, connection.registry)
    if found is EVENT:
        raise Usage(f"{type} is the type of events: give the resource that they are about, such as `team core`")
    return (lambda of: of.type.unversioned == id.type.unversioned and of.key == id.key), id


async def _watch(
    connection: Connection, wanted: Wanted, within: tuple[str, str], output: Details, *, warnings: bool
) -> None:
    shown: dict[str, dict[tuple[str, str, str, bool], int]] = {}
    async with connection.client.watch(EVENT, partition=within[0], namespace=within[1]) as changes:
        async for change in changes:
            if not isinstance(change, Upserted):
                if (gone := getattr(change, "resource", None)) is not None:
                    shown.pop(gone.uid, None)
                elif not shown:
                    await note_missing_unit(connection.client, *within)
                continue
            event = change.resource
            before = shown.get(event.uid, {})
            known = shown[event.uid] = {}
            for of, each in _entries(event, wanted, warnings=warnings):
                same = (each.controller, each.reason, each.text, each.warning)
                known[same] = each.count
                if before.get(same) != each.count:
                    click.echo(json_text(_object(of, each)) if output == "json" else _line(of, each))
            sys.stdout.flush()


def _entries(event: Resource[Event], wanted: Wanted, *, warnings: bool) -> Iterator[tuple[ResourceId, Entry]]:
    of = event.owner
    if of is None or not wanted(of):
        return
    for each in event.data.entries:
        if each.warning or not warnings:
            yield of, each


def _row(of: ResourceId, entry: Entry) -> Sequence[str]:
    last = "" if entry.last is None else readable_time(entry.last)
    return last, str(entry.count), str(of), _reason(entry), entry.text, entry.controller


def _reason(entry: Entry) -> str:
    return f"! {entry.reason}" if entry.warning else entry.reason


def _line(of: ResourceId, entry: Entry) -> str:
    # Fixed columns that fit most names, since the widths of later lines are unknown.
    last, count, resource, reason, text, by = map(plain, _row(of, entry))
    return f"{last:19} {count:>5} {resource:28} {reason:20} {text} ({by})"


def _object(of: ResourceId, entry: Entry) -> dict[str, Any]:
    units = {"partition": of.partition, "namespace": of.namespace}
    made = {"type": str(of.type), "name": of.name} | {unit: value for unit, value in units.items() if value}
    times = {
        "first": None if entry.first is None else entry.first.isoformat(),
        "last": None if entry.last is None else entry.last.isoformat(),
    }
    return (
        {"resource": made, "controller": entry.controller, "reason": entry.reason, "text": entry.text}
        | {"warning": entry.warning, "count": entry.count}
        | times
    )
