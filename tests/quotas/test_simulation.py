"""Quotas in a simulation: whatever fault strikes, the store never has more than a quota allows."""

from __future__ import annotations

import pytest

import headway
import tests.helpers.corpus.order  # noqa: F401  # declares the cases
from headway import Condition, ConditionState, field
from headway.errors import QuotaExceeded
from headway.quotas import QUOTA, Quota
from headway.resource import Key
from headway.testing import simulation
from headway.testing.simulation import Committed, Setting, run

ALLOWED = 2


@headway.message
class Order:
    pieces: int = field(1)


@headway.message
class Piece:
    of: str = field(1)


def program(_: simulation.Process) -> headway.App:
    """Return a correct program: it makes the pieces that an order wants, and says so if a quota has no room."""
    app = headway.App("works")
    order, piece = app.type("works", "v1", "Order", Order), app.type("works", "v1", "Piece", Piece)

    @app.controller(manages=order, watches=[headway.watch(piece, headway.mappers.owner())])
    async def orders(rt: headway.Runtime, request: headway.Request[Order]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        state = ConditionState.TRUE
        try:
            async with rt.outputs(piece, owner=found) as wanted:
                for number in range(found.data.pieces):
                    await wanted.apply(f"{found.name}-{number}", Piece(of=found.name))
        except QuotaExceeded:
            state = ConditionState.FALSE
        await rt.client.write_status(found, "orders", [Condition(type="Complete", state=state)])

    return app


async def too_many_pieces(world: simulation.World) -> None:
    await world.client.apply(QUOTA.new("pieces", Quota(group="works", kind="Piece", max_resources=ALLOWED)))
    await world.client.apply(world.type("Order").new("a", Order(pieces=ALLOWED + 1)))
    await world.wait_idle()
    await world.client.apply(world.type("Order").new("a", Order(pieces=1)))
    await world.wait_idle()


@pytest.mark.parametrize(
    "plan",
    [
        "none",
        "crash_after(3)",
        *(pytest.param(plan, marks=pytest.mark.wide) for plan in ("crash_after(2)", "answer_lost(2)", "conflict(3)")),
    ],
)
def test_no_fault_brings_the_store_above_a_quota(plan: str) -> None:
    result = run(Setting(app=program, scenario=too_many_pieces, quiet=None), simulation.Plan.parse(plan))
    assert result.findings == ()
    stored: set[Key] = set()
    most = 0
    for each in result.trace.entries:
        if isinstance(each, Committed) and each.kind == ("works", "Piece"):
            (stored.discard if each.new is None else stored.add)(each.key)
            most = max(most, len(stored))
    assert most == ALLOWED
    assert stored == {("default", "default", "a-0")}
