"""The controller of endpoints under every single fault, alone and behind the controllers of health."""

from __future__ import annotations

import pytest

from catalog.messages import HealthStatus, ServiceEndpoints
from catalog.types import HEALTH_STATUS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.testing import simulation
from tests.helpers.catalogs import CRITICAL, service, with_controllers, workload

ALONE = with_controllers("endpoint-manager")
WHOLE = with_controllers("node-health", "workload-health", "endpoint-manager")


async def selector_comes_and_goes(world: simulation.World) -> None:
    await world.client.apply(service("api"))
    await world.client.apply(workload("api-1", identity="foo"))
    await world.wait_idle()
    await world.client.apply(service("api", prefixes=["api-"]))
    await world.wait_idle()
    await world.client.apply(service("api"))
    await world.wait_idle()


async def service_comes_back(world: simulation.World) -> None:
    """W-13: the endpoints of the earlier service are deleted in the background."""
    await world.client.apply(service("api", names=["api-1"]))
    await world.wait_idle()
    await world.client.delete(SERVICE.id("api"))
    await world.client.apply(workload("api-1"))
    await world.client.apply(service("api", names=["api-1"], metadata={"again": "yes"}))
    await world.wait_idle()


async def user_writes_the_endpoints(world: simulation.World) -> None:
    """W-12 and W-14: they stay without a selector, and are replaced with one."""
    await world.client.apply(service("api"))
    await world.client.apply(SERVICE_ENDPOINTS.new("api", ServiceEndpoints(), owner=SERVICE.id("api")))
    await world.wait_idle()
    await world.client.apply(service("api", names=["api-1"]))
    await world.wait_idle()


async def workload_is_ill(world: simulation.World) -> None:
    await world.client.apply(service("api", prefixes=["api-"]))
    await world.client.apply(workload("api-1"))
    await world.wait_idle()
    ill = HealthStatus(type="http", status=CRITICAL)
    await world.client.apply(HEALTH_STATUS.new("http", ill, owner=WORKLOAD.id("api-1")))
    await world.wait_idle()


async def workload_comes_back(world: simulation.World) -> None:
    await world.client.apply(service("api", prefixes=["api-"], filter="metadata.color == red"))
    await world.client.apply(workload("api-1", metadata={"color": "red"}))
    await world.wait_idle()
    await world.client.delete(WORKLOAD.id("api-1"))
    await world.client.apply(workload("api-1", metadata={"color": "red"}, identity="foo"))
    await world.wait_idle()


async def workload_is_changed(world: simulation.World) -> None:
    """W-26: its health is outdated for a moment."""
    await world.client.apply(service("api", prefixes=["api-"]))
    await world.client.apply(workload("api-1", identity="foo"))
    await world.wait_idle()
    await world.client.apply(workload("api-1", identity="bar"))
    await world.wait_idle()


SCENARIOS = [
    (ALONE, selector_comes_and_goes),
    (ALONE, service_comes_back),
    (ALONE, user_writes_the_endpoints),
    (WHOLE, workload_is_ill),
    (WHOLE, workload_comes_back),
    (WHOLE, workload_is_changed),
]


@pytest.mark.wide
def test_order_and_pace_leave_no_trace() -> None:
    simulation.explore(ALONE, service_comes_back, plan="none")


@pytest.mark.parametrize(
    ("app", "scenario"),
    [
        # Each takes up to half a minute of processor time.
        pytest.param(
            *each, id=each[1].__name__, marks=pytest.mark.wide if each[1] is service_comes_back else pytest.mark.deep
        )
        for each in SCENARIOS
    ],
)
def test_every_fault_leaves_no_trace(app: simulation.MakeApp, scenario: simulation.Scenario) -> None:
    # By the wall clock, as all budgets. A busy machine takes longer than the default minute.
    simulation.explored(app, processes=2, seconds=600)(scenario)()
