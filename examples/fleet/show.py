"""What a person sees of the fleet: priming, a line for each change, and the state as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

import headway
from examples.fleet.declared import (
    APP,
    ENDPOINTS,
    INSTANCE,
    RUNNING,
    Endpoints,
    Instance,
    condition,
    is_healthy,
    is_running,
)
from headway import events


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


def report(event: object) -> None:
    """The engine's report: priming type by type, runs, and whatever goes wrong."""
    if isinstance(event, events.Primed):
        say(f"primed    {event.controller}: {event.type.kind}, {event.count} at revision {event.revision}")
    elif isinstance(event, events.RunStarted):
        say(f"running   {event.controller}: term {event.term}, {event.queued} to reconcile")
    elif isinstance(event, events.Reconciled) and event.error is not None:
        say(f"failed    {event.controller}: {event.id}: {event.error}")
    elif isinstance(event, events.RunEnded) and event.error is not None:
        say(f"ended     {event.controller}: {event.error!r}, again in {event.delay:.1f} s")
    elif isinstance(event, events.MappingFailed | events.IndexFailed | events.WriteUnknown | events.DeletionsUnknown):
        print(f"warning   {event}", file=sys.stderr, flush=True)


async def show_instances(client: headway.Client) -> None:
    """A line for each Instance that starts, stops, or changes its health; for ever."""
    seen: dict[str, str] = {}
    async with client.watch(INSTANCE) as changes:
        async for change in changes:
            if isinstance(change, headway.client.Deleted):
                seen.pop(change.resource.uid, None)
                say(f"instance  {change.resource.name}: gone")
            elif isinstance(change, headway.client.Upserted):
                line = _instance_line(change.resource)
                if seen.get(change.resource.uid) != line:
                    seen[change.resource.uid] = line
                    say(f"instance  {change.resource.name}: {line}")


def _instance_line(instance: headway.Resource[Instance]) -> str:
    state = _state(instance)
    return f"{state}, on port {instance.data.port}" if state == "wanted" or is_running(instance) else state


def _state(instance: headway.Resource[Instance]) -> str:
    if instance.is_deleting:
        return "stopping"
    running = condition(instance, RUNNING)
    if running is None:
        return "wanted"
    if not is_running(instance):
        return f"down: {running.message}"
    return f"{running.message}, {'healthy' if is_healthy(instance) else 'not healthy yet'}"


async def show_endpoints(client: headway.Client) -> None:
    """A line for each change of what an app's clients may connect to; for ever."""
    async with client.watch(ENDPOINTS) as changes:
        async for change in changes:
            if isinstance(change, headway.client.Deleted):
                say(f"endpoints {change.resource.name}: gone")
            elif isinstance(change, headway.client.Upserted):
                say(f"endpoints {change.resource.name}: {_addresses(change.resource)}")


def _addresses(endpoints: headway.Resource[Endpoints]) -> str:
    return ", ".join(endpoints.data.addresses) or "none"


async def table(client: headway.Client) -> str:
    """The state of the fleet."""
    endpoints = {each.name: each.data.addresses for each in await client.list(ENDPOINTS)}
    instances = await client.list(INSTANCE)
    rows: list[tuple[str, ...]] = [("APP", "WANTED", "INSTANCE", "PORT", "STATE", "ENDPOINTS")]
    for declared in await client.list(APP):
        own = [instance for instance in instances if instance.data.app == declared.name]
        listed = str(len(endpoints.get(declared.name, [])))
        for number, instance in enumerate(own or [None]):
            first = (declared.name, str(declared.data.replicas)) if number == 0 else ("", "")
            middle = ("-", "-", "-")
            if instance is not None:
                middle = (instance.name, str(instance.data.port), _state(instance))
            rows.append((*first, *middle, listed if number == 0 else ""))
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


async def is_as_declared(client: headway.Client) -> bool:
    """Whether every App has as many healthy Instances, all of them in its Endpoints, as it wants replicas."""
    await trio.lowlevel.checkpoint()
    endpoints = {each.name: each.data.addresses for each in await client.list(ENDPOINTS)}
    instances = await client.list(INSTANCE)
    for declared in await client.list(APP):
        own = [instance for instance in instances if instance.data.app == declared.name]
        healthy = [instance for instance in own if is_healthy(instance) and not instance.is_deleting]
        if not len(own) == len(healthy) == declared.data.replicas == len(endpoints.get(declared.name, [])):
            return False
    return True
