"""Times in results are compared by being times."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest

import headway
from headway.testing import simulation
from headway.testing.simulation.oracles import Aligner
from tests.helpers.corpus.programs import program
from tests.helpers.corpus.staff import Account, Cloud, Team

START = 1_772_619_630.0
RUN = Aligner((START, START + 120), (START, START + 160))


def moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(START + seconds, datetime.UTC)


@pytest.mark.parametrize(
    "shown",
    [
        lambda late: START + late,
        lambda late: int(START + late + 3600),
        lambda late: int((START + late) * 1000),
        lambda late: int((START + late) * 1e6),
        lambda late: int((START + late) * 1e9),
        lambda late: f"due at {moment(late + 86_400).isoformat()}, or so",
        lambda late: f"{moment(late):%Y%m%dT%H%M%SZ}",
        lambda late: f"at={moment(late)!r}",
        lambda late: f"since {moment(late):%H:%M:%S}",
        lambda late: f"at {START + late} s",
        moment,
        lambda late: {"runs": [moment(late).isoformat(), START + late]},
        lambda late: {moment(late).isoformat(): "there"},
        lambda late: {START, START + 30 + late},
    ],
)
def test_two_times_of_the_runs_are_the_same(shown: Any) -> None:
    assert RUN.aligned(shown(61.5), shown(1.0)) == shown(1.0)
    assert RUN.aligned(shown(5000), shown(1.0)) != shown(1.0)


@pytest.mark.parametrize(
    ("got", "right"),
    [
        (4, 3),
        ("port 8001", "port 8000"),
        (START + 1, None),
        ("", f"{START}"),
        ("due 2026-05-01", "due 2026-04-01"),
        ([START], [START, START + 1]),
        (True, False),
        ("-599.9", "0.1"),
        # A full hour occurs twice: something was done twice.
        (["2026-03-04T11:00:00Z"] * 2, ["2026-03-04T11:00:00Z", "2026-03-04T11:01:00Z"]),
        ("2026-03-04T11:00:00Z 2026-03-04T11:00:00Z", "2026-03-04T11:00:00Z 2026-03-04T11:02:00Z"),
    ],
)
def test_other_differences_stay(got: Any, right: Any) -> None:
    assert RUN.aligned(got, right) == got


def test_number_counts_as_a_time_if_a_slower_clock_changes_it() -> None:
    assert RUN.aligned("took 5.02 s on port 8000", "took 0.01 s on port 8000", "took 1.7 s on port 8000") == (
        "took 0.01 s on port 8000"
    )
    assert RUN.aligned({"took": 5.0, "port": 1}, {"took": 0.1, "port": 2}, {"took": 1.7, "port": 2}) == {
        "took": 0.1,
        "port": 1,
    }


# --- through whole explorations ---


async def expires(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> Any:
    """Give each team an account until its stored expiry time, as a correct program does."""
    team = rt.resource(request)
    if team is None:
        return None
    made = rt.cache.get(account, "lease")
    if made is None:
        until = int(time.time()) + 300
        await rt.apply(account.new("lease", Account(login=f"until {moment(0)}", count=until), owner=team))
        return None
    left = made.data.count - time.time()
    if left > 0:
        return headway.requeue_after(left)
    if made.data.login != "expired":
        made.data.login = "expired"
        await rt.client.write(made)
    return None


async def until_after_expiry(world: simulation.World) -> None:
    await world.client.apply(world.type("Team").new("core", Team(members=["ada"])))
    await world.wait_idle()
    await world.sleep(400)


PLANS = [
    "wall_jump(2, -600.0)",
    "wall_jump(2, 3600.0)",
    "crash_after(1)",
    "clock_jump(1, 600.0)",
    "answer_late(1, 5.0)",
]


@pytest.mark.wide
@pytest.mark.parametrize("plan", PLANS)
def test_correct_expiry_passes(plan: str) -> None:
    explored = simulation.explore(program(expires), until_after_expiry, plan=plan)
    assert [str(each) for each in explored.struck] == [plan]


async def short(world: simulation.World) -> None:
    await world.client.apply(world.type("Team").new("core", Team(members=["ada"])))
    await world.wait_idle()


@pytest.mark.parametrize("plan", ["clock_jump(1, 600.0)", pytest.param("wall_jump(2, 3600.0)", marks=pytest.mark.wide)])
def test_result_counts_as_right_if_only_more_time_has_passed(plan: str) -> None:
    """The scenario ends before the expiry, and the fault lets the time pass."""
    explored = simulation.explore(program(expires), short, plan=plan, quiet=None)
    assert [str(each) for each in explored.struck] == [plan]


@pytest.mark.parametrize("right", [pytest.param(True, marks=pytest.mark.wide), False])
def test_timer_that_fires_again_after_a_jump_back_is_found(right: bool) -> None:
    async def every_five_minutes(
        rt: headway.Runtime, request: headway.Request[Team], account: Any, process: Any
    ) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is None:
            return None
        now = int(time.time())
        slot, last = now // 300, rt.cache.get(account, "last")
        if last is None:
            await rt.apply(account.new("last", Account(count=slot), owner=team))
        elif slot > last.data.count or (not right and slot != last.data.count):
            # A key for each run, so that a repeated call does nothing.
            await process.outside.put(f"run after {last.version}", str(slot * 300))
            last.data.count = slot
            await rt.client.write(last)
        return headway.requeue_after(300 * (slot + 1) - now)

    async def one_slot(world: simulation.World) -> None:
        await short(world)
        await world.sleep(340)

    jump = "wall_jump(4, -200.0)"
    if right:
        assert simulation.explore(program(every_five_minutes), one_slot, outside=Cloud, plan=jump, quiet=None).struck
        return
    with pytest.raises(simulation.Refuted):
        simulation.explore(program(every_five_minutes), one_slot, outside=Cloud, plan=jump, quiet=None)
