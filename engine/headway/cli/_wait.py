"""The command `headway wait`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import trio

from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._options import one_of_a_name
from headway.cli._type_names import find_id, find_type
from headway.client import has_condition, until
from headway.resource import ConditionState, Resource

_STATES = ("true", "false", "unknown")


@dataclass(frozen=True)
class Wanted:
    """The state to wait for: a condition in a state, or the absence of the resource."""

    key: str
    condition: str
    state: ConditionState

    def holds(self, resource: Resource[Any] | None) -> bool:
        """Return True if the state is reached. A condition counts only if it observed the current generation."""
        if resource is None or not self.condition:
            return resource is None and not self.condition
        return has_condition(resource, self.condition, self.state, self.key)

    def now(self, resource: Resource[Any] | None) -> str:
        """Describe the current state instead."""
        if resource is None:
            return "it does not exist"
        if not self.condition:
            return "it is marked for deletion" if resource.is_deleting else "it exists"
        said = [
            f"{key} says {each.type}={each.state.name or int(each.state)}"
            + ("" if status.observed_generation == resource.generation else " of an older generation")
            + (f" ({each.message})" if each.message else "")
            for key, status in sorted(resource.status.items())
            for each in status.conditions
            if each.type == self.condition and self.key in ("", key)
        ]
        return ", ".join(said) or "it has not been reported yet"


@click.command()
@one_of_a_name
@click.option(
    "--for",
    "wanted",
    required=True,
    metavar="CONDITION",
    help="A condition that must be true, such as Ready. Ready=false waits for another state, teams/Ready for a "
    "certain writer, 'deleted' for the deletion.",
)
@click.option("--within", type=click.FloatRange(min=0), help="Timeout in seconds. By default it waits forever.")
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
    """Wait until a condition of a resource holds; the resource needn't exist yet."""
    found = find_type(type, connection.registry)
    id = find_id(type, name, partition, namespace, connection.registry)
    asked = _wanted(wanted)
    seen: list[Resource[Any] | None] = []

    def holds(resource: Resource[Any] | None) -> bool:
        seen[:] = [resource]
        return asked.holds(resource)

    with trio.move_on_after(float("inf") if within is None else within) as scope:
        await until(connection.client, found, id, holds)
    if scope.cancelled_caught:
        now = f": {asked.now(seen[0])}" if seen else ""
        fail(Exit.WAITED, f"Error: {id}: {wanted} does not hold after {within:g} s{now}")
    click.echo(f"{id}: {wanted}")


def _wanted(text: str) -> Wanted:
    if text == "deleted":
        return Wanted("", "", ConditionState.UNKNOWN)
    name, _, state = text.partition("=")
    key, _, condition = name.rpartition("/")
    state = state.lower() or "true"
    if not condition or state not in _STATES:
        raise Usage(f"--for {text}: write a condition, such as Ready, Ready=false or teams/Ready, or 'deleted'")
    return Wanted(key, condition, ConditionState[state.upper()])
