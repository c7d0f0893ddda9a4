"""Functions that wait until a resource meets a condition, by watching its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headway.base import answer_problem, check_plain, check_text, repr_text
from headway.client._arguments import id_of
from headway.client._client import Client
from headway.client._watch import SnapshotEnd, Upserted
from headway.errors import DeclarationError, HistoryCompacted, InvalidArgument, NotFound, Unavailable
from headway.protobuf import Payload
from headway.resource import ConditionState, Resource, ResourceId, ResourceType

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
    """Wait until ``holds(resource)`` returns True, and return that resource (None if it does not exist)::

        with trio.fail_after(10):
            await headway.until(client, TEAM, "core", lambda team: team is not None)

    ``holds`` is a synchronous function. It is called with the current state, and again after every change. If the
    resource does not exist, its argument is None. The wait has no timeout, so use `trio.fail_after`.

    With a uid in the id, only that incarnation counts, as in `Client.get`.

    Raises:
        NotFound: the id has a uid, and that incarnation no longer exists. ``holds(None)`` has returned False, and would
            do so forever.
        Unavailable: the connection to the server was lost.
    """
    check_plain("until", holds, 1, "a resource", "headway.until(client, TEAM, 'core', lambda team: team is not None)")
    wanted = id_of(type, id, partition, namespace)
    while True:
        try:
            return await _watched(client, type, wanted, holds)
        except HistoryCompacted:
            # This reader fell too far behind. Start again from the current state.
            continue


async def until_gone(
    client: Client, type: ResourceType[T], id: str | ResourceId, *, partition: str = "", namespace: str = ""
) -> None:
    """Wait until the resource does not exist. With a uid in the id, wait until that incarnation is deleted."""
    await until(client, type, id, lambda resource: resource is None, partition=partition, namespace=namespace)


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
    """Wait until the resource has this condition in this state, observed at its current generation, and return it.

    ``key`` names the status that must have the condition, usually a controller's name. By default any status may.

    Raises:
        NotFound: the id has a uid, and that incarnation no longer exists.
        Unavailable: the connection to the server was lost.
    """
    # None of these would ever hold.
    check_text("condition", condition, "'Ready'")
    check_text("key", key, "'staff/teams'")
    given: object = state
    if not condition:
        raise InvalidArgument("condition '' must be the type of a condition, such as 'Ready'")
    if not isinstance(given, ConditionState):
        raise InvalidArgument(f"state must be a headway.ConditionState, such as FALSE, not {repr_text(given)}")
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
    """Return True if the resource has this condition in this state, observed at its current generation."""
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
        # Such an answer would count as true whatever the state of the resource.
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
                if current is not None and id.uid not in ("", current.uid):
                    current = None
            if not complete:
                continue
            if _holds(holds, current):
                return current
            # A watch may lag behind the store, which alone knows that an incarnation is gone.
            if id.uid and current is None and await client.get(type, id) is None:
                raise NotFound(
                    f"{id} no longer exists, so it can't meet the condition: to wait for a later resource of this "
                    "name, pass the id without its uid, such as team.id.without_uid()"
                )
    raise Unavailable(f"the server ended the watch of {id}")
