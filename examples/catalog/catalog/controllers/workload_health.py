"""The controller of the health of workloads: the worst result of a workload's own checks and of its node's."""

from __future__ import annotations

from typing import Final

import headway
from catalog.application import app
from catalog.messages import Health, Node, Workload
from catalog.statuses import (
    NODE_HEALTH,
    WORKLOAD_HEALTH,
    content_or_status,
    find_healthy,
    healthy_condition,
    named_health,
    worst,
    write_status,
)
from catalog.types import HEALTH_STATUS, NODE, WORKLOAD

_PASSING: Final = Health.HEALTH_PASSING
_MESSAGES = {
    (True, None): "All workload health checks are passing",
    (False, None): "One or more workload health checks are not passing",
    (True, True): "All workload and associated node health checks are passing",
    (True, False): "One or more node health checks are not passing",
    (False, True): "One or more workload health checks are not passing",
    (False, False): "One or more workload and node health checks are not passing",
}
"""The message by whether the workload passes, and whether its node does; None without a node."""


def node_of(workload: headway.Resource[Workload]) -> headway.ResourceId | None:
    """Return the id of the node that a workload runs on, or None if it names none."""
    name = workload.data.node_name
    return NODE.id(name, partition=workload.id.partition) if name else None


def condition_changed(old: headway.Resource[Node] | None, new: headway.Resource[Node] | None) -> bool:
    """Pass the changes of a node that its workloads can see: its existence, and its condition `healthy`."""
    if old is None or new is None:
        return True
    return find_healthy(old.status.get(NODE_HEALTH)) != find_healthy(new.status.get(NODE_HEALTH))


WORKLOADS_BY_NODE = headway.indexes.by_reference(WORKLOAD, "node", node_of)


@app.controller(
    manages=WORKLOAD,
    when=content_or_status(WORKLOAD_HEALTH),
    watches=[
        headway.watch(HEALTH_STATUS, headway.mappers.owner(), when=headway.predicates.data_changed()),
        headway.watch(NODE, headway.mappers.index(WORKLOADS_BY_NODE), when=condition_changed),
    ],
    indexes=[WORKLOADS_BY_NODE],
    writes=[WORKLOAD],
    concurrency=64,
)
async def workload_health(rt: headway.Runtime, request: headway.Request[Workload]) -> None:
    """Write the health of a workload into its status.

    While the health of its node is not known yet, the status stays as it was: the change that makes it known
    reconciles the workload again.
    """
    workload = rt.resource(request)
    if workload is None:
        return
    own = worst(check.data.status for check in rt.cache.owned(HEALTH_STATUS, workload))
    node = node_of(workload)
    if node is None:
        condition = healthy_condition(own, _MESSAGES[own is _PASSING, None])
    else:
        of_node = health_of_node(rt.cache.get(NODE, node))
        if of_node is None:
            return
        condition = healthy_condition(max(own, of_node), _MESSAGES[own is _PASSING, of_node is _PASSING])
    await write_status(rt, workload, WORKLOAD_HEALTH, [condition])


def health_of_node(node: headway.Resource[Node] | None) -> Health | None:
    """Return the health in a node's status, or None if it has no status yet. A missing node is critical.

    Raises:
        PermanentFailure: the status has no known health.
    """
    if node is None:
        return Health.HEALTH_CRITICAL
    status = node.status.get(NODE_HEALTH)
    if status is None:
        return None
    condition = find_healthy(status)
    if condition is None:
        raise headway.PermanentFailure(f"{node.id} has no condition 'healthy' in its status {NODE_HEALTH}")
    if condition.state == headway.ConditionState.TRUE:
        return _PASSING
    health = named_health(condition.reason)
    if health is None:
        raise headway.PermanentFailure(
            f"{node.id} has the unknown health {condition.reason!r} in its status {NODE_HEALTH}"
        )
    return health
