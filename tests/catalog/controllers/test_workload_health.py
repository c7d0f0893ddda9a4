"""The controller of workload health: the facts WH-1 to WH-5 and the weaknesses W-7, W-8 and W-15."""

from __future__ import annotations

import pytest

import catalog
import headway.testing
from catalog.messages import Health
from catalog.types import HEALTH_STATUS, NODE, WORKLOAD
from tests.helpers.catalogs import (
    CRITICAL,
    MAINTENANCE,
    PASSING,
    WARNING,
    check,
    conditions,
    node,
    workload,
)

KEY = "consul.io/workload-health"
OF_NODE = "consul.io/node-health"

ALONE_PASSES = "All workload health checks are passing"
ALONE_FAILS = "One or more workload health checks are not passing"
BOTH_PASS = "All workload and associated node health checks are passing"
NODE_FAILS = "One or more node health checks are not passing"
OWN_FAILS = "One or more workload health checks are not passing"
BOTH_FAIL = "One or more workload and node health checks are not passing"


def healthy(health: Health, message: str) -> list[tuple[str, str, str, str]]:
    return [("healthy", "TRUE" if health is PASSING else "FALSE", health.name, message)]


async def set_node_health(shot: headway.testing.OneShot, name: str, *given: headway.Condition) -> None:
    """Write a status of a node, as the controller of node health does."""
    stored = await shot.client.read(NODE, name)
    await shot.client.write_status(stored, OF_NODE, list(given))


def condition_of(health: Health) -> headway.Condition:
    state = headway.ConditionState.TRUE if health is PASSING else headway.ConditionState.FALSE
    return headway.Condition(type="healthy", state=state, reason=health.name)


@pytest.mark.parametrize(
    ("own", "of_node", "worse", "message"),
    [
        (PASSING, None, PASSING, ALONE_PASSES),
        (WARNING, None, WARNING, ALONE_FAILS),
        (CRITICAL, None, CRITICAL, ALONE_FAILS),
        (MAINTENANCE, None, MAINTENANCE, ALONE_FAILS),
        (PASSING, PASSING, PASSING, BOTH_PASS),
        (PASSING, WARNING, WARNING, NODE_FAILS),
        (WARNING, PASSING, WARNING, OWN_FAILS),
        (WARNING, CRITICAL, CRITICAL, BOTH_FAIL),
        (MAINTENANCE, WARNING, MAINTENANCE, BOTH_FAIL),
        (CRITICAL, CRITICAL, CRITICAL, BOTH_FAIL),
        (None, None, PASSING, ALONE_PASSES),
        (None, MAINTENANCE, MAINTENANCE, NODE_FAILS),
    ],
)
async def test_wh2_wh4_worse_health_with_its_message(
    own: Health | None, of_node: Health | None, worse: Health, message: str
) -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        if of_node is not None:
            await shot.given(node("node-1"))
            await set_node_health(shot, "node-1", condition_of(of_node))
        stored, other = await shot.given(
            workload("api", node="node-1" if of_node is not None else ""), workload("other")
        )
        await shot.given(check(other, MAINTENANCE))
        if own is not None:
            await shot.given(check(stored, own), check(stored, PASSING, "another-check"))
        await shot.reconcile("api")
        assert conditions(await shot.client.read(WORKLOAD, "api"), KEY) == healthy(worse, message)


async def test_wh1_changes_that_concern_a_workload() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        first, *_ = await shot.given(
            workload("first", node="node-1"), workload("second", node="node-2"), workload("third")
        )
        await shot.requests()
        await shot.given(check(first, WARNING))
        assert [request.id.name for request in await shot.requests()] == ["first"]
        await shot.given(node("node-2"))
        assert [request.id.name for request in await shot.requests()] == ["second"]
        await set_node_health(shot, "node-2", condition_of(WARNING))
        assert [request.id.name for request in await shot.requests()] == ["second"]
        await shot.client.delete(NODE.id("node-2"))
        assert [request.id.name for request in await shot.requests()] == ["second"]


async def test_wh1_node_of_another_partition_does_not_count() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(headway.PARTITION.new("west"), workload("api", node="node-1"))
        await shot.given(node("node-1", partition="west"))
        await shot.reconcile("api")
        assert conditions(await shot.client.read(WORKLOAD, "api"), KEY) == healthy(CRITICAL, NODE_FAILS)


async def test_w15_node_change_that_no_workload_can_see_concerns_none() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(node("node-1"), workload("api", node="node-1"))
        await set_node_health(shot, "node-1", condition_of(WARNING))
        await shot.requests()
        await shot.given(node("node-1", metadata={"rack": "7"}))
        stored = await shot.client.read(NODE, "node-1")
        await shot.client.write_status(stored, "another", [headway.Condition(type="Ready")])
        await set_node_health(shot, "node-1", condition_of(WARNING))  # of the new generation
        assert await shot.requests() == []


async def test_wh3_missing_node_is_critical() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(workload("api", node="nowhere"))
        await shot.reconcile("api")
        assert conditions(await shot.client.read(WORKLOAD, "api"), KEY) == healthy(CRITICAL, NODE_FAILS)


async def test_w8_node_without_health_leaves_the_status_as_it_was_without_an_error() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(workload("api"))
        await shot.reconcile("api")
        before = (await shot.client.read(WORKLOAD, "api")).status[KEY]
        await shot.given(node("node-1"), workload("api", node="node-1"))
        done = await shot.reconcile("api")
        assert (done.written, done.requeue_after) == ((), None)
        assert (await shot.client.read(WORKLOAD, "api")).status[KEY] == before
        await shot.requests()
        await set_node_health(shot, "node-1", condition_of(PASSING))
        assert [request.id.name for request in await shot.requests()] == ["api"]
        await shot.reconcile("api")
        assert conditions(await shot.client.read(WORKLOAD, "api"), KEY) == healthy(PASSING, BOTH_PASS)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (headway.Condition(type="other"), "has no condition 'healthy'"),
        (headway.Condition(type="healthy", state=headway.ConditionState.FALSE, reason="ILL"), "unknown health 'ILL'"),
    ],
)
async def test_wh3_wh5_status_without_a_known_health_fails_until_it_changes(
    given: headway.Condition, error: str
) -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(node("node-1"), workload("api", node="node-1"))
        await set_node_health(shot, "node-1", given)
        with pytest.raises(headway.PermanentFailure, match=error):
            await shot.reconcile("api")
        assert (await shot.client.read(WORKLOAD, "api")).status == {}
        await shot.requests()
        await set_node_health(shot, "node-1", condition_of(PASSING))
        assert [request.id.name for request in await shot.requests()] == ["api"]


async def test_wh4_second_reconcile_writes_nothing() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        await shot.given(workload("api"))
        assert [each.what for each in (await shot.reconcile("api")).written] == ["status"]
        assert (await shot.reconcile("api")).written == ()
        assert (await shot.reconcile("nobody")).written == ()


async def test_w7_checks_of_an_earlier_workload_do_not_count() -> None:
    async with headway.testing.one_shot(catalog.app, "workload-health") as shot:
        (stored,) = await shot.given(workload("api"))
        await shot.given(check(stored, CRITICAL))
        held = await shot.client.read(HEALTH_STATUS, "api-check")
        held.finalizers |= {"held"}
        await shot.client.write(held)
        await shot.client.delete(stored)
        await shot.given(workload("api"))
        await shot.reconcile("api")
        assert conditions(await shot.client.read(WORKLOAD, "api"), KEY) == healthy(PASSING, ALONE_PASSES)
