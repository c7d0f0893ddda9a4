"""Waiting for a resource to be as one wants it, by a watch of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headway._functions import answer_problem, check_plain
from headway.client._client import Client
from headway.client._watch import SnapshotEnd, Upserted
from headway.errors import DeclarationError, HistoryCompacted, Unavailable
from headway.resource import ConditionState, Payload, Resource, ResourceId, ResourceType

T = TypeVar("T", bound=Payload)


async def until(
    client: Client,
    type: ResourceType[T],
    id: str | ResourceId,
    holds: Callable[[Resource[T] | None], bool],
    *,
    partition: str = "",
    namespace: str = "",
) -> Resource[T] | None:
    """Wait until ``holds(resource)`` is true, and return the resource for which it was (None: there is none).

    ``holds`` is asked of what is there first, and then of every change; it must not wait. Put it under a deadline:
    ``with trio.fail_after(10): await headway.until(client, TEAM, "core", ...)``. Raises Unavailable when the server
    goes away.
    """
    check_plain("until", holds, 1, "a resource", "headway.until(client, TEAM, 'core', lambda team: team is not None)")
    wanted = type.id(id, partition=partition, namespace=namespace) if isinstance(id, str) else id
    while True:
        try:
            return await _watched(client, type, wanted, holds)
        except HistoryCompacted:
            # Too slow for the changes; what is there now says it as well.
            continue


async def until_gone(
    client: Client, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
) -> None:
    """Wait until there is no such resource; with a uid in the id, until that incarnation is gone."""
    uid = "" if isinstance(id, str) else id.uid
    await until(
        client,
        type,
        id,
        lambda resource: resource is None or bool(uid and resource.uid != uid),
        partition=partition,
        namespace=namespace,
    )


async def until_condition(
    client: Client,
    type: ResourceType[T],
    id: str | ResourceId,
    condition: str,
    *,
    state: ConditionState = ConditionState.TRUE,
    key: str = "",
    partition: str = "",
    namespace: str = "",
) -> Resource[T]:
    """Wait until the resource has a condition of this type in this state, written for its present generation.

    ``key`` is whose status it must be in (by custom a controller's name); anybody's unless given.
    """
    found = await until(
        client,
        type,
        id,
        lambda resource: resource is not None and has_condition(resource, condition, state, key),
        partition=partition,
        namespace=namespace,
    )
    assert found is not None
    return found


def has_condition(resource: Resource[T], condition: str, state: ConditionState, key: str = "") -> bool:
    """Whether a condition was written for the resource as it is now."""
    return any(
        each.type == condition and each.state == state
        for written_by, status in resource.status.items()
        if status.observed_generation == resource.generation and key in ("", written_by)
        for each in status.conditions
    )


def _holds(holds: Callable[[Resource[T] | None], bool], current: Resource[T] | None) -> bool:
    answer = holds(current)
    given: object = answer
    problem = None if isinstance(given, bool) else answer_problem(given)
    if problem:
        # It would be true at once, whatever the resource is like.
        raise DeclarationError(f"until: {problem}")
    return answer


async def _watched(
    client: Client, type: ResourceType[T], id: ResourceId, holds: Callable[[Resource[T] | None], bool]
) -> Resource[T] | None:
    current: Resource[T] | None = None
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
            if complete and _holds(holds, current):
                return current
    raise Unavailable(f"the watch of {id} has ended")
