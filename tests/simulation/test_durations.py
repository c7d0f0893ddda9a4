"""The durations of faults, as a program's own times need them."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest

import headway
from headway.errors import DeclarationError
from headway.testing import simulation
from headway.testing.simulation import Plan, faults
from headway.testing.simulation.plans import checked_durations, lasting
from tests.helpers.corpus.programs import program, puts
from tests.helpers.corpus.staff import Cloud, Team, one_team


@pytest.mark.parametrize(
    ("plan", "longer"),
    [
        ("outage(2, 60.0)", "outage(2, 300.0)"),
        ("clock_jump(1, 600.0)", "clock_jump(1, 7200.0)"),
        ("wall_jump(4, -600.0)", "wall_jump(4, -60.0)"),
        ("wall_jump(4, 3600.0)", "wall_jump(4, 60.0)"),
        ("commit_late(1, 30.0)", "commit_late(1, 45.0)"),
        ("commit_late(1, 0.0)", "commit_late(1, 0.0)"),
        ("spaced(2.0); outage(1, 60.0); seed(2)", "spaced(2.0); outage(1, 300.0); seed(2)"),
        ("west: outage(1, 60.0)", "west: outage(1, 300.0)"),
        ("crash_after(1)", "crash_after(1)"),
    ],
)
def test_fault_lasts_as_long_as_the_test_says(plan: str, longer: str) -> None:
    durations = {"outage": 300, "clock_jump": 7200, "wall_jump": 60, "commit_late": 45}
    assert list(map(str, lasting([Plan.parse(plan)], checked_durations(durations)))) == [longer]


def test_plans_that_become_equal_are_tried_once() -> None:
    plans = [Plan(faults.AnswerLate(1, 5.0)), Plan(faults.AnswerLate(1, 45.0))]
    assert lasting(plans, {"answer_late": 90.0}) == [Plan(faults.AnswerLate(1, 90.0))]


@pytest.mark.parametrize(
    ("durations", "problem"),
    [
        ({"outrage": 60}, "no fault 'outrage' lasts; did you mean 'outage'"),
        ({"crash_after": 60}, "no fault 'crash_after' lasts"),
        ({"spaced": 60}, "no fault 'spaced' lasts"),
        ({"outage": -1}, r"durations\['outage'\] must be above 0 and at most 900 seconds, not -1"),
        ({"outage": 3600}, "at most 900 seconds, not 3600"),
        ({"outage": True}, "not True"),
        ({"outage": float("nan")}, "not nan"),
        ({"clock_jump": "1h"}, "not '1h'"),
        (["outage"], "durations must be a mapping, such as"),
    ],
)
def test_wrong_duration_is_refused(durations: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        simulation.explore(program(puts), one_team, outside=Cloud, durations=durations)


def test_exploration_plans_faults_of_these_durations() -> None:
    explored = simulation.explore(program(puts), one_team, outside=Cloud, durations={"outage": 300}, seconds=0)
    assert {str(each) for each in explored.plans if "outage" in str(each)} == {"outage(1, 300.0)"}


def passing(process: simulation.Process, *, hours: float) -> headway.App:
    """Return a program whose team is done some hours after it was first seen, but for five minutes only."""

    async def expires(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> Any:
        team = rt.resource(request)
        if team is None:
            return None
        made = rt.cache.get(account, "due")
        if made is None:
            await rt.apply(account.new("due", account.payload(count=int(time.time() + hours * 3600)), owner=team))
            return None
        left = made.data.count - time.time()
        if left > 0:
            return headway.requeue_after(left)
        if left > -300 and not made.data.login:
            made.data.login = "done"
            await rt.client.write(made)
        return None

    return program(expires)(process)


async def ten_minutes(world: simulation.World) -> None:
    await one_team(world)
    await world.sleep(600)


@pytest.mark.parametrize("hours", [1, 24])
@pytest.mark.wide
def test_jump_longer_than_the_programs_own_times_finds_what_they_hide(hours: float) -> None:
    """The program's own times may be parameters of a test, too."""
    app = functools.partial(passing, hours=hours)
    longer = {"clock_jump": hours * 3600 + 900}
    left_out = [each.name for each in faults.FAULTS if each not in (faults.ClockJump, faults.Hurried, faults.DoneAgain)]
    explore = functools.partial(simulation.explore, app, ten_minutes, quiet=None, without=left_out)
    assert explore().complete
    with pytest.raises(simulation.Refuted) as caught:
        explore(durations=longer)
    assert "clock_jump" in str(caught.value.plan)
