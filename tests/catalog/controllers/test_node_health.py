"""The controller of node health: the facts NH-1 to NH-5 and the weakness W-7."""

from __future__ import annotations

import pytest

import catalog
import headway.testing
from catalog.messages import Health
from catalog.types import NODE, NODE_HEALTH_STATUS
from tests.helpers.catalogs import (
    CRITICAL,
    MAINTENANCE,
    PASSING,
    WARNING,
    conditions,
    node,
    node_check,
)

KEY = "consul.io/node-health"
PASSES = ("healthy", "TRUE", "HEALTH_PASSING", "All node health checks are passing")


def fails(health: Health) -> tuple[str, str, str, str]:
    return ("healthy", "FALSE", health.name, "One or more node health checks are not passing")


async def test_nh1_change_of_a_check_concerns_its_owner_alone() -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        first, _ = await shot.given(node("first"), node("second"))
        await shot.requests()
        await shot.given(node_check(first, WARNING))
        assert [request.id.name for request in await shot.requests()] == ["first"]


async def test_nh2_missing_node_is_left_alone() -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        assert (await shot.reconcile("nobody")).written == ()


@pytest.mark.parametrize(
    ("checks", "worst"),
    [
        ([], PASSING),
        ([PASSING], PASSING),
        ([PASSING, WARNING], WARNING),
        ([CRITICAL, WARNING, PASSING], CRITICAL),
        ([PASSING, MAINTENANCE, CRITICAL], MAINTENANCE),
    ],
)
async def test_nh3_nh4_worst_check_is_the_health(checks: list[Health], worst: Health) -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        stored, other = await shot.given(node("one"), node("other"))
        await shot.given(*(node_check(stored, health, f"check-{n}") for n, health in enumerate(checks)))
        await shot.given(node_check(other, MAINTENANCE))
        await shot.reconcile("one")
        found = await shot.client.read(NODE, "one")
        assert conditions(found, KEY) == [PASSES if worst is PASSING else fails(worst)]


async def test_nh4_condition_of_another_writer_is_replaced() -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        (stored,) = await shot.given(node("one"))
        await shot.client.write_status(stored, KEY, [headway.Condition(type="other")])
        assert [request.id.name for request in await shot.requests()][-1] == "one"
        await shot.reconcile("one")
        assert conditions(await shot.client.read(NODE, "one"), KEY) == [PASSES]


async def test_nh5_second_reconcile_writes_nothing_until_the_node_is_written() -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        await shot.given(node("one"))
        assert [each.what for each in (await shot.reconcile("one")).written] == ["status"]
        await shot.requests()
        assert (await shot.reconcile("one")).written == ()
        await shot.given(node("one", metadata={"rack": "7"}))
        assert [request.id.name for request in await shot.requests()] == ["one"]
        assert [each.what for each in (await shot.reconcile("one")).written] == ["status"]
        assert conditions(await shot.client.read(NODE, "one"), KEY) == [PASSES]


async def test_w7_checks_of_an_earlier_node_do_not_count() -> None:
    async with headway.testing.one_shot(catalog.app, "node-health") as shot:
        (stored,) = await shot.given(node("one"))
        await shot.given(node_check(stored, CRITICAL))
        # A check that waits for a finalizer outlives its node for as long as it likes.
        held = await shot.client.read(NODE_HEALTH_STATUS, "one-check")
        held.finalizers |= {"held"}
        await shot.client.write(held)
        await shot.client.delete(stored)
        await shot.given(node("one"))
        assert await shot.client.get(NODE_HEALTH_STATUS, "one-check") is not None
        await shot.reconcile("one")
        assert conditions(await shot.client.read(NODE, "one"), KEY) == [PASSES]
