"""The clock of a simulation, which jumps while no task can run, and the quiet time that needs less of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting
from headway.testing.simulation.world import Clock, JumpingClock


async def _wakes() -> list[tuple[str, float]]:
    """Return which task woke up at which time."""
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await trio.sleep(nap)
            woken.append((name, round(trio.current_time() - began, 6)))

    async def watcher() -> None:
        await wait_all_tasks_blocked()
        woken.append(("watcher", round(trio.current_time() - began, 6)))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper, "a", 1.5, 1.5, 3600)
        nursery.start_soon(sleeper, "b", 2.0, 0.0, 0.25)
        nursery.start_soon(watcher)
    with trio.move_on_after(7):
        await trio.sleep_forever()
    woken.append(("end", round(trio.current_time() - began, 6)))
    return woken


def test_it_wakes_tasks_at_the_times_of_trios_mock_clock() -> None:
    clocks: list[Clock] = [JumpingClock(), MockClock(autojump_threshold=0)]
    mine, trios = (trio.run(_wakes, clock=clock) for clock in clocks)
    assert mine == trios
    # A task that waits until all others are blocked goes on before any time passes.
    assert mine[0] == ("watcher", 0.0)
    assert mine[-1] == ("end", 3610.0)


def test_it_jumps_forward_only() -> None:
    clock = JumpingClock()
    clock.jump(5)
    assert clock.current_time() == 5
    with pytest.raises(ValueError, match="time never goes back"):
        clock.jump(-1)


@headway.message
class Team:
    name: str = field(1)


types = headway.App("staff")
TEAM = types.type("staff", "v1", "Team", Team)


def program(*, waits: bool) -> headway.App:
    app = headway.App("staff")
    app.registry = types.registry

    @app.controller(manages=TEAM)
    async def teams(_rt: headway.Runtime, _request: headway.Request[Team]) -> headway.RequeueAfter | None:
        return headway.requeue_after(100) if waits else None

    return app


async def scenario(world: simulation.World) -> None:
    await world.client.apply(TEAM.new("core", Team(name="core")))
    await world.wait_idle()


@pytest.mark.parametrize(("waits", "seconds"), [(False, 10.0), (True, 120.0)])
def test_quiet_time_is_short_if_the_program_waits_for_nothing(waits: bool, seconds: float) -> None:
    setting = Setting(app=program(waits=waits), scenario=scenario, quiet=120.0)
    entries = simulation.run(setting, simulation.Plan()).trace.entries
    over = next(each.at for each in entries if str(each).startswith("the scenario is over"))
    killed = next(each.at for each in entries if "is killed" in str(each))
    assert killed - over == pytest.approx(seconds, abs=1.0)
