"""What a controller says of itself: what isn't done, why, and until when it rests."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.controller._results import KEPT, NotDone, Results
from tests.helpers.resources import TEAM, Team
from tests.helpers.staff import Staff


class Failing(Staff):
    """A controller whose outcome for each team is in its members."""

    def __init__(self) -> None:
        super().__init__()

        @self.app.controller(manages=self.team, backoff=headway.Backoff(10.0, 40.0), name="fickle")
        async def fickle(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            team = rt.resource(request)
            wanted = team.data.members[:1] if team is not None else []
            if wanted == ["fail"]:
                raise LookupError("not now")
            if wanted == ["never"]:
                raise headway.PermanentFailure("never")
            return headway.requeue_after(1000) if wanted == ["later"] else None


async def test_each_result_is_visible(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """Failed ones with the time of their next attempt, permanent ones without, and neither once they are done."""
    staff = Failing()
    async with staff.open() as engine:
        for name in ("fail", "never", "later", "fine"):
            await staff.write_team(f"x{name}", name)
        await trio.sleep(12)
        status = engine.controllers["fickle"].status()
        assert (status.name, status.phase, status.term, status.error) == ("fickle", "running", 1, "")
        queue = status.queue
        assert queue is not None
        assert (queue.delayed_by_failure, queue.scheduled, queue.ready, queue.in_hand) == (1, 1, 0, 0)
        assert status.holding == ""
        assert (status.settled, status.unmapped, status.not_done_count) == (0, 0, 2)
        failed, never = status.not_done
        assert (failed.id.name, failed.outcome, failed.attempts) == ("xfail", "failed", 2)
        assert failed.error == "LookupError: not now"
        assert failed.until is not None
        assert failed.until - failed.at == pytest.approx(20)
        assert 17 < failed.until - trio.current_time() < 19
        assert (never.id.name, never.outcome, never.error, never.until) == (
            "xnever",
            "permanent",
            "PermanentFailure: never",
            None,
        )

        await staff.write_team("xfail", "fine")
        await engine.client.delete(staff.team.id("xnever"))
        await staff.settle()
        status = engine.controllers["fickle"].status()
        assert (status.not_done, status.not_done_count) == ((), 0)
        assert status.queue is not None
        assert status.queue.delayed_by_failure == 0
        assert status.settled > 0


async def test_what_ended_the_run_before_is_told(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """Between two runs, and before the first is primed, none is running."""
    staff = Staff()
    runs = 0

    async def initialiser(_: headway.Runtime) -> None:
        nonlocal runs
        runs += 1
        await trio.sleep(1)
        if runs == 1:
            raise LookupError("not yet")

    @staff.app.controller(manages=staff.team, initialiser=initialiser)
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Nothing to do."""

    async with staff.open() as engine:
        supervisor = engine.controllers["look"]
        assert (supervisor.status().phase, supervisor.status().error) == ("starting", "")
        await trio.sleep(1.2)
        assert supervisor.run is None
        assert (supervisor.status().phase, supervisor.status().error) == ("resting", "LookupError: not yet")
        await trio.sleep(10)
        assert (supervisor.status().phase, supervisor.status().error) == ("running", "LookupError: not yet")


async def test_two_controllers_of_one_name_are_told_apart() -> None:
    """By their apps."""
    apps = []
    for name in ("one", "two"):
        app = headway.App(name)
        thing = app.type(name, "v1", "Thing", Team)

        @app.controller(manages=thing)
        async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
            """Nothing to do."""

        apps.append(app)

    @apps[0].controller(manages=next(each for each in apps[0].registry if each.name.group == "one"))
    async def alone(_: headway.Runtime, __: headway.Request[Any]) -> None:
        """Nothing to do."""

    async with headway.open_engine("memory:", *apps) as engine:
        assert {"one/look", "two/look", "alone", "reaper"} <= set(engine.controllers)


def test_of_very_many_only_some_are_kept_and_all_are_counted() -> None:
    results = Results()
    for number in range(KEPT + 10):
        results.note(NotDone(TEAM.id(f"t{number}"), "failed", "odd", 1, 0.0, None))
    assert (len(results.list()), len(results.not_done)) == (KEPT, KEPT + 10)
    results.note(NotDone(TEAM.id("t0"), "failed", "odd", 2, 1.0, None))
    assert sum(each.attempts for each in results.list()) == KEPT + 1
    for number in range(KEPT + 10):
        results.done(TEAM.id(f"t{number}").key)
    assert not results.not_done
