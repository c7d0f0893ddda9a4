"""The controllers of health under every single fault."""

from __future__ import annotations

import pytest

from catalog.messages import HealthStatus, NodeHealthStatus
from catalog.types import HEALTH_STATUS, NODE, NODE_HEALTH_STATUS, WORKLOAD
from headway.testing import simulation
from tests.helpers.catalogs import CRITICAL, PASSING, WARNING, node, with_controllers, workload

OF_NODES = with_controllers("node-health")
OF_BOTH = with_controllers("node-health", "workload-health")

NODE_WARNS = NODE_HEALTH_STATUS.new("disk", NodeHealthStatus(type="disk", status=WARNING), owner=NODE.id("node-1"))
NODE_PASSES = NODE_HEALTH_STATUS.new("disk", NodeHealthStatus(type="disk", status=PASSING), owner=NODE.id("node-1"))
CRITICAL_CHECK = HEALTH_STATUS.new("http", HealthStatus(type="http", status=CRITICAL), owner=WORKLOAD.id("api"))


async def node_recovers(world: simulation.World) -> None:
    await world.client.apply(node("node-1"))
    await world.client.apply(NODE_WARNS)
    await world.wait_idle()
    await world.client.apply(NODE_PASSES)
    await world.wait_idle()


async def node_comes_back(world: simulation.World) -> None:
    await world.client.apply(node("node-1"))
    await world.client.apply(NODE_WARNS)
    await world.wait_idle()
    await world.client.delete(NODE.id("node-1"))
    await world.client.apply(node("node-1", metadata={"rack": "7"}))
    await world.wait_idle()


async def workload_moves(world: simulation.World) -> None:
    await world.client.apply(node("node-1"))
    await world.client.apply(workload("api"))
    await world.client.apply(NODE_WARNS)
    await world.wait_idle()
    await world.client.apply(workload("api", node="node-1"))
    await world.wait_idle()
    await world.client.delete(NODE.id("node-1"))
    await world.wait_idle()


async def check_comes_and_goes(world: simulation.World) -> None:
    await world.client.apply(workload("api"))
    await world.client.apply(CRITICAL_CHECK)
    await world.wait_idle()
    await world.client.delete(HEALTH_STATUS.id("http"))
    await world.wait_idle()


async def node_gets_its_health_later(world: simulation.World) -> None:
    """W-8: the workload exists before its node, and before the node has a health."""
    await world.client.apply(workload("api", node="node-1"))
    await world.wait_idle()
    await world.client.apply(node("node-1"))
    await world.client.apply(NODE_WARNS)


SCENARIOS = [
    (OF_NODES, node_recovers),
    (OF_NODES, node_comes_back),
    (OF_BOTH, workload_moves),
    (OF_BOTH, check_comes_and_goes),
    (OF_BOTH, node_gets_its_health_later),
]


@pytest.mark.wide
def test_order_and_pace_leave_no_trace() -> None:
    simulation.explore(OF_BOTH, workload_moves, plan="none")


@pytest.mark.parametrize(
    ("app", "scenario"),
    [
        # Each takes up to half a minute of processor time.
        pytest.param(
            *each, id=each[1].__name__, marks=pytest.mark.wide if each[1] is node_recovers else pytest.mark.deep
        )
        for each in SCENARIOS
    ],
)
def test_every_fault_leaves_no_trace(app: simulation.MakeApp, scenario: simulation.Scenario) -> None:
    simulation.explored(app, processes=2, seconds=600)(scenario)()
