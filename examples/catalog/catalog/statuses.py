"""Writing statuses, and reading the health in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import headway
from catalog.messages import Health

NODE_HEALTH = "consul.io/node-health"
"""The key of the status with the health of a node."""
WORKLOAD_HEALTH = "consul.io/workload-health"
"""The key of the status with the health of a workload."""
ENDPOINT_MANAGER = "consul.io/endpoint-manager"
"""The key of the status of a service, and the mark of the endpoints that its controller writes."""

HEALTHY = "healthy"
"""The type of the condition with the health of a node or a workload. Its reason is the name of the health."""


def content_or_status(key: str) -> headway.predicates.Predicate[Any]:
    """Pass updates of the content, and those of the status under a key that another writer made."""
    by_another = headway.predicates.all_of(headway.predicates.not_own_writes(), headway.predicates.status_changed(key))
    return headway.predicates.any_of(headway.predicates.content_changed(), by_another)


async def write_status(
    rt: headway.Runtime, resource: headway.Resource[Any], key: str, conditions: list[headway.Condition]
) -> None:
    """Replace the status under a key by these conditions, unless it is equal and of the resource's generation."""
    stored = resource.status.get(key)
    if stored is not None and stored.observed_generation == resource.generation and stored.conditions == conditions:
        return
    try:
        await rt.client.write_status(resource, key, conditions)
    except headway.NotFound:
        return  # this incarnation is gone, and its status with it


def worst(healths: Iterable[Health]) -> Health:
    """Return the worst of these healths; without any, the health is passing."""
    return max(healths, default=Health.HEALTH_PASSING)


def healthy_condition(health: Health, message: str) -> headway.Condition:
    """Return the condition of a health."""
    state = headway.ConditionState.TRUE if health is Health.HEALTH_PASSING else headway.ConditionState.FALSE
    return headway.Condition(type=HEALTHY, state=state, reason=health.name, message=message)


def find_healthy(status: headway.Status | None) -> headway.Condition | None:
    """Return the condition `healthy`, or None."""
    return next((each for each in status.conditions if each.type == HEALTHY), None) if status is not None else None


def named_health(name: str) -> Health | None:
    """Return the health of this name, or None."""
    return Health.__members__.get(name)
