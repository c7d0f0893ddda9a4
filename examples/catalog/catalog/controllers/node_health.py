"""The controller of the health of nodes: the worst result of a node's checks."""

from __future__ import annotations

import headway
from catalog.application import app
from catalog.messages import Health, Node
from catalog.statuses import NODE_HEALTH, content_or_status, healthy_condition, worst, write_status
from catalog.types import NODE, NODE_HEALTH_STATUS

_PASSING = "All node health checks are passing"
_FAILING = "One or more node health checks are not passing"


@app.controller(
    manages=NODE,
    when=content_or_status(NODE_HEALTH),
    watches=[
        headway.watch(NODE_HEALTH_STATUS, headway.mappers.owner(), when=headway.predicates.data_changed()),
    ],
    writes=[NODE],
    concurrency=8,
)
async def node_health(rt: headway.Runtime, request: headway.Request[Node]) -> None:
    """Write the health of a node into its status. Without checks, it passes."""
    node = rt.resource(request)
    if node is None:
        return
    # `owned` compares uids, so the checks of an earlier node of this name do not count.
    health = worst(check.data.status for check in rt.cache.owned(NODE_HEALTH_STATUS, node))
    message = _PASSING if health is Health.HEALTH_PASSING else _FAILING
    await write_status(rt, node, NODE_HEALTH, [healthy_condition(health, message)])
