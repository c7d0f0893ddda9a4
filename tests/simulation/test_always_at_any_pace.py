"""What must hold at all times also holds if users don't wait, unless the users break it themselves."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Order:
    watts: int = field(1)


@headway.message
class Grant:
    watts: int = field(1)


class Catalogue:
    """Its answer takes a moment, as every answer from outside does."""

    async def watts(self, order: Order) -> int:
        return order.watts


def supply(*, concurrency: int) -> simulation.MakeApp:
    """Return a program that grants 1,000 W at most, if one order is reconciled after the other."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("power")
        order = app.type("power", "v1", "Order", Order)
        grant = app.type("power", "v1", "Grant", Grant)

        @app.controller(
            manages=order,
            watches=[headway.watch(grant, lambda _, cache: [each.id for each in cache.list(order)])],
            concurrency=concurrency,
        )
        async def decide(rt: headway.Runtime, request: headway.Request[Order]) -> None:
            found = rt.resource(request)
            if found is None or rt.cache.owned(grant, found):
                return
            used = sum(each.data.watts for each in rt.cache.list(grant))
            watts = await process.outside.watts(found.data)
            if used + watts <= 1000:
                async with rt.outputs(grant, owner=found) as wanted:
                    await wanted.apply(found.name, Grant(watts=watts))

        return app

    return make


async def one_after_the_other(world: simulation.World) -> None:
    for name in ("a", "b"):
        await world.client.apply(world.type("Order").new(name, Order(watts=600)))
        await world.wait_idle()


def within_the_supply(stored: simulation.Stored) -> None:
    assert sum(each.data.watts for each in stored.list("Grant")) <= 1000, "the supply is overloaded"


FIRST_WINS = ["names(Grant)", "Grant.owner"]


def test_program_that_breaks_it_when_users_do_not_wait_is_refuted() -> None:
    with pytest.raises(simulation.Refuted, match=r"^within_the_supply: .* the supply is overloaded") as caught:
        simulation.explore(
            supply(concurrency=2),
            one_after_the_other,
            outside=Catalogue,
            always=[within_the_supply],
            may_differ=FIRST_WINS,
            seconds=0.0,
        )
    assert str(caught.value.plan) == "hurried()"


def test_program_is_not_refuted_if_users_break_it_themselves() -> None:
    """They make room, wait for it, and only then order more. Without the wait, the second order is too much."""

    async def makes_room_first(world: simulation.World) -> None:
        order = world.type("Order")
        await world.client.apply(order.new("a", Order(watts=600)))
        await world.sleep(1)
        await world.client.delete(order.id("a"))
        await world.wait_idle()
        await world.client.apply(order.new("b", Order(watts=600)))

    def one_at_a_time(stored: simulation.Stored) -> None:
        names = {each.name for kind in ("Order", "Grant") for each in stored.list(kind)}
        assert len(names) <= 1, "an order comes before its room is free"

    tried = simulation.explore(
        supply(concurrency=1), makes_room_first, outside=Catalogue, always=[one_at_a_time], seconds=0.0
    )
    assert "the scenario must wait: otherwise one_at_a_time does not hold" in tried.left_out
