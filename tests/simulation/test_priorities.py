"""Programs with priorities: their functions run as they are, and a program that takes an order for granted is refuted.

A door opens for everyone on its list. Guests of honor come first by their priority.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Plan, Setting, run


@headway.message
class Guest:
    honor: bool = field(1)
    seat: str = field(2)


def seats(*, takes_order_for_granted: bool = False, priority: bool = True) -> Callable[..., headway.App]:
    """Return a program in which each guest gets a seat. Without the flag, the seat depends on the guest alone."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("hall")
        guest = app.type("hall", "v1", "Guest", Guest)
        by = (lambda each: 10 * each.data.honor) if priority else None

        @app.controller(manages=guest, priority=by)
        async def usher(rt: headway.Runtime, request: headway.Request[Guest]) -> None:
            found = rt.resource(request)
            if found is None or found.data.seat:
                return
            await trio.sleep(1)
            honored = {each.data.seat for each in rt.cache.list(guest) if each.data.honor} - {""}
            found.data.seat = f"beside {sorted(honored)}" if takes_order_for_granted else f"{found.name}'s"
            await rt.client.write(found)

        return app

    return make


async def guests_come(world: simulation.World) -> None:
    guest = world.type("Guest")
    for name in ("ada", "bob", "eve", "joan"):
        await world.client.apply(guest.new(name, Guest(honor=name in ("eve", "joan"))))
    await world.wait_idle()


@pytest.mark.parametrize(("priority", "order"), [(True, "eve joan ada bob"), (False, "ada bob eve joan")])
def test_keys_are_reconciled_by_priority_in_a_simulation(priority: bool, order: str) -> None:
    result = run(Setting(app=seats(priority=priority), scenario=guests_come, quiet=60.0), Plan())
    assert result.findings == ()
    first = dict.fromkeys(call.key[2] for call in result.trace.reconciles)
    assert " ".join(first) == order


def test_program_with_priorities_ends_like_one_without() -> None:
    ends = [
        run(Setting(app=seats(priority=each), scenario=guests_come, quiet=60.0), Plan()).end for each in (True, False)
    ]
    assert ends[0] == ends[1]


def test_program_that_takes_the_order_of_priorities_for_granted_is_refuted() -> None:
    """If the write of a guest of honor fails, the others come before the next attempt."""
    with pytest.raises(simulation.Refuted, match="Guest"):
        simulation.explore(seats(takes_order_for_granted=True), guests_come, seconds=40)


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_program_with_priorities_is_right_under_every_plan() -> None:
    tried = simulation.explore(seats(), guests_come, seconds=200)
    assert tried.runs
