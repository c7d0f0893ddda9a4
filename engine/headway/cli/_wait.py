"""`headway wait`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import trio

from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._options import one_of_a_name
from headway.cli._type_names import find_id, find_type
from headway.client import Client, SnapshotEnd, Upserted
from headway.errors import HistoryGone
from headway.resource import Resource, ResourceId, ResourceType

_STATES = ("true", "false", "unknown")


@dataclass(frozen=True)
class Wanted:
    """What is waited for: a condition in a state, or that the resource is gone."""

    key: str
    condition: str
    state: str

    @property
    def gone(self) -> bool:
        """Whether it is waited for the end of the resource."""
        return not self.condition

    def holds(self, resource: Resource[Any] | None) -> bool:
        """Whether it is so; a condition counts when it was written for the resource as it is now."""
        if resource is None or self.gone:
            return resource is None and self.gone
        return any(
            each.type == self.condition and each.state.name.lower() == self.state
            for key, status in resource.status.items()
            if status.observed_generation == resource.generation and self.key in ("", key)
            for each in status.conditions
        )


@click.command()
@one_of_a_name
@click.option(
    "--for",
    "wanted",
    required=True,
    metavar="CONDITION",
    help="A condition that is to be true; Ready=false for another state, teams/Ready for one of a certain writer, "
    "or 'deleted'.",
)
@click.option("--within", type=click.FloatRange(min=0), help="Seconds to wait; for ever unless given.")
@connected
async def wait(
    connection: Connection,
    type: str,
    name: str,
    partition: str,
    namespace: str,
    wanted: str,
    within: float | None,
) -> None:
    """Wait until a condition of a resource holds; the resource needn't be there yet."""
    found = find_type(type, connection.registry)
    id = find_id(type, name, partition, namespace, connection.registry)
    asked = _wanted(wanted)
    with trio.move_on_after(float("inf") if within is None else within) as scope:
        await _until(connection.client, found, id, asked)
    if scope.cancelled_caught:
        fail(Exit.WAITED, f"Error: {id}: {wanted} does not hold after {within:g} s")
    click.echo(f"{id}: {wanted}")


def _wanted(text: str) -> Wanted:
    if text == "deleted":
        return Wanted("", "", "")
    name, _, state = text.partition("=")
    key, _, condition = name.rpartition("/")
    state = state.lower() or "true"
    if not condition or state not in _STATES:
        raise Usage(f"--for {text}: write a condition, such as Ready, Ready=false or teams/Ready, or 'deleted'")
    return Wanted(key, condition, state)


async def _until(client: Client, type: ResourceType[Any], id: ResourceId, wanted: Wanted) -> None:
    while True:
        try:
            if await _watched(client, type, id, wanted):
                return
        except HistoryGone:
            # Too slow for the changes; what is there now says it as well.
            continue


async def _watched(client: Client, type: ResourceType[Any], id: ResourceId, wanted: Wanted) -> bool:
    current: Resource[Any] | None = None
    complete = False
    opened = client.watch(type, partition=id.partition, namespace=id.namespace, name_prefix=id.name)
    async with opened as events:
        async for event in events:
            if isinstance(event, SnapshotEnd):
                complete = True
            elif not hasattr(event, "resource") or event.resource.id.key != id.key:
                continue
            else:
                current = event.resource if isinstance(event, Upserted) else None
            if complete and wanted.holds(current):
                return True
    return False
