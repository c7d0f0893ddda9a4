"""The deletion of partitions and namespaces: their content is deleted first, with its progress in their status.

Nothing can be created in a unit that is marked for deletion, because the creation's own commit checks that. The content
can therefore only shrink, and an empty unit stays empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import trio

from headway.builtin._reaper import look_again, sweep
from headway.controller import App
from headway.queue import Backoff
from headway.reconcile import Request, RequeueAfter, Runtime
from headway.resource import (
    DEFAULT_UNIT,
    EMPTIED_FINALIZER,
    NAMESPACE,
    PARTITION,
    Condition,
    ConditionState,
    Resource,
    ResourceType,
    Scope,
)

EMPTIED = "Emptied"
"""The condition's type. Its status key has the name of the finalizer."""

LOOK_AGAIN = 1.0
"""The delay, in seconds, before another attempt while finalizers hold resources."""

LOOK_AGAIN_RARELY = 30.0
"""The delay, in seconds, before another attempt if only another program or an operator can remove the rest."""

_Reconciler = Callable[[Runtime, Request], Awaitable[RequeueAfter | None]]

Unregistered = Callable[[str, str], Awaitable[Counter[str]]]
"""A function that counts the resources of each unregistered type in a (partition, namespace)."""


async def nothing_unregistered(partition: str, namespace: str) -> Counter[str]:  # noqa: ARG001  # an `Unregistered`
    """Return an empty count."""
    return Counter()


def add_tenancy(app: App, types: Iterable[ResourceType[Any]], unregistered: Unregistered) -> None:
    """Declare the controllers. ``types`` are all types that the engine knows; ``unregistered`` counts the others."""
    known = list(types)
    namespaced = [type for type in known if type.scope is Scope.NAMESPACE]
    partitioned = [type for type in known if type.scope is Scope.PARTITION]

    def emptied_namespaces(type: ResourceType[Any]) -> _Reconciler:
        async def namespaces(rt: Runtime, request: Request) -> RequeueAfter | None:
            async def tenants() -> list[Resource[Any]]:
                return await _listed(rt, namespaced, request.id.partition, request.id.name)

            async def strangers() -> Counter[str]:
                return await unregistered(request.id.partition, request.id.name)

            return await _reconcile(rt, rt.cache.get(type, request.id), tenants, strangers)

        return namespaces

    def emptied_partitions(type: ResourceType[Any]) -> _Reconciler:
        async def partitions(rt: Runtime, request: Request) -> RequeueAfter | None:
            async def tenants() -> list[Resource[Any]]:
                # This includes its namespaces. Their own deletion empties them.
                found = await _listed(rt, partitioned, request.id.name, "*")
                return found + await _listed(rt, namespaced, request.id.name, DEFAULT_UNIT)

            async def strangers() -> Counter[str]:
                return await unregistered(request.id.name, "") + await unregistered(request.id.name, DEFAULT_UNIT)

            return await _reconcile(rt, rt.cache.get(type, request.id), tenants, strangers)

        return partitions

    backoff = Backoff(0.05, 30.0)
    for unit, emptied in ((NAMESPACE, emptied_namespaces), (PARTITION, emptied_partitions)):
        # If a program declares another version, a watch of the built-in version does not deliver its resources.
        for type in [unit, *(each for each in known if each.kind == unit.kind and each.name != unit.name)]:
            if type.name not in app.registry:
                app.registry.register(type)
            name = f"{unit.name.kind.lower()}s" + ("" if type is unit else f"-{type.name.version}")
            app.controller(manages=type, concurrency=4, backoff=backoff, name=name)(emptied(type))


async def _listed(
    rt: Runtime, types: Sequence[ResourceType[Any]], partition: str, namespace: str
) -> list[Resource[Any]]:
    found: list[Resource[Any]] = []
    for type in types:
        found += await rt.client.list(type, partition=partition, namespace=namespace)
    return found


async def _reconcile(
    rt: Runtime,
    unit: Resource[Any] | None,
    tenants: Callable[[], Awaitable[list[Resource[Any]]]],
    strangers: Callable[[], Awaitable[Counter[str]]],
) -> RequeueAfter | None:
    if unit is None or not unit.is_deleting:
        return None
    if EMPTIED_FINALIZER in unit.finalizers:
        try:
            await sweep(rt.client, await tenants())
        finally:
            began = trio.current_time()
            left, unknown = await tenants(), await strangers()
            if left or unknown:
                await rt.client.write_status(unit, EMPTIED_FINALIZER, [_in_progress(left, unknown)])
        if left or unknown:
            return look_again(LOOK_AGAIN if left else LOOK_AGAIN_RARELY, began)
        unit.finalizers = unit.finalizers - {EMPTIED_FINALIZER}
        unit = await rt.client.write(unit)
    if not unit.finalizers:
        await rt.client.delete(unit)
    return None


def _in_progress(left: Sequence[Resource[Any]], unknown: Counter[str]) -> Condition:
    counts = Counter(str(each.type.name) for each in left) + unknown
    held = Counter(finalizer for each in left for finalizer in each.finalizers)
    text = "left: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if held:
        text += "; finalizers: " + ", ".join(f"{count} {name}" for name, count in sorted(held.items()))
    if unknown:
        text += (
            f"; not registered here, and so not deleted: {', '.join(sorted(unknown))}: run a program that declares "
            f"them, or remove finalizer {EMPTIED_FINALIZER} to let the unit go without them"
        )
    return Condition(type=EMPTIED, state=ConditionState.FALSE, reason="DeletionInProgress", message=text)
