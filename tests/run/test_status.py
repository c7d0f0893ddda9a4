"""The status of a controller: its failed keys with the reasons, and the time of the next attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway.observe import Metrics
from headway.resource import TypeName
from headway.run import ControllerStatus, TypeStatus
from headway.testing import ScriptedChannel
from tests.helpers.resources import Team
from tests.helpers.service_errors import failed
from tests.helpers.staff import Staff


class Away(ScriptedChannel):
    """A stream server that can become unavailable."""

    away = False

    @override
    def stream(self, *call: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if self.away:
            raise failed(Status.UNAVAILABLE, "gone fishing")
        return super().stream(*call, **options)


class Failing(Staff):
    """A controller whose outcome for each team is set by the team's members."""

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


async def test_each_result_is_visible(autojump_clock: MockClock) -> None:
    """A failed key has the time of its next attempt, and a permanent failure has none. A success removes both."""
    staff = Failing()
    async with staff.open() as engine:
        for name in ("fail", "never", "later", "fine"):
            await staff.write_team(f"x{name}", name)
        await trio.sleep(12)
        status = engine.controllers["fickle"].status()
        assert (status.name, status.phase, status.term, status.error) == ("staff/fickle", "running", 1, "")
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
        await staff.wait_idle()
        status = engine.controllers["fickle"].status()
        assert (status.not_done, status.not_done_count) == ((), 0)
        assert status.queue is not None
        assert status.queue.delayed_by_failure == 0
        assert status.settled > 0


@pytest.mark.parametrize(
    ("primed", "revision", "waits_for"),
    [
        (False, 7, "x.v1.Y (3 resources, revision 7 of 7)"),
        (True, 6, "x.v1.Y (3 resources, revision 6 of 7)"),
        (True, 7, "the types to reach one revision"),
    ],
)
def test_problem_names_the_types_that_priming_waits_for(primed: bool, revision: int, waits_for: str) -> None:
    """The problem names the types that are not complete yet, and no others."""
    there = TypeStatus(TypeName("x", "v1", "There"), True, 7, 7, 3)
    status = ControllerStatus(
        "x", "priming", 4.0, types=(there, TypeStatus(TypeName("x", "v1", "Y"), primed, revision, 7, 3))
    )
    assert status.problem == f"has been priming for 4 s, waiting for {waits_for}"


def test_status_after_the_block_says_that_every_controller_has_ended() -> None:
    """Even outside of Trio, such as in a report that a program writes before it exits."""
    statuses: list[Callable[[], list[ControllerStatus]]] = []

    async def run_engine() -> None:
        async with Failing().open() as engine:
            await engine.wait_idle()
            statuses.append(engine.status)
        assert {each.phase for each in engine.status()} == {"ended"}

    trio.run(run_engine, clock=MockClock(autojump_threshold=0))
    ended = statuses[0]()
    assert len(ended) > 1
    for status in ended:
        assert (status.phase, status.seconds, status.types, status.queue) == ("ended", 0, (), None)
        assert (status.problem, status.cause) == ("has ended with the block of its engine", "ended")


async def test_status_has_the_error_of_the_previous_run(autojump_clock: MockClock) -> None:
    """Between two runs, and before the first one is primed, the controller is not running."""
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
        """Do nothing."""

    async with staff.open() as engine:
        supervisor = engine.controllers["look"]
        assert (supervisor.status().phase, supervisor.status().error) == ("starting", "")
        await trio.sleep(1.2)
        assert supervisor.run is None
        assert (supervisor.status().phase, supervisor.status().error) == ("resting", "LookupError: not yet")
        await trio.sleep(10)
        assert (supervisor.status().phase, supervisor.status().error) == ("running", "LookupError: not yet")


async def test_controller_is_not_ready_after_long_without_a_stream(autojump_clock: MockClock) -> None:
    """A short absence of the server is not reported.

    After a longer absence, each type is named with the reason and the time.
    """
    staff, channel = Staff(), Away()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async with staff.open(wrap_channel=channel.over) as engine:
        await staff.wait_idle()
        status = engine.controllers["look"].status
        assert [(each.cut_off, each.cut_off_seconds) for each in status().types] == [("", 0.0)] * 2
        channel.away = True
        channel.drop(staff.account)
        await trio.sleep(8)
        [team, account] = status().types
        assert (team.cut_off, account.cut_off) == ("", "UNAVAILABLE: gone fishing")
        assert account.cut_off_seconds == pytest.approx(8, abs=0.5)
        assert status().problem == ""
        await trio.sleep(8)
        assert status().problem == "has received nothing about staff.v1.Account for 16 s: UNAVAILABLE: gone fishing"
        channel.away = False
        await trio.sleep(10)
        assert [(each.cut_off, each.cut_off_seconds) for each in status().types] == [("", 0.0)] * 2
        assert status().problem == ""


async def test_status_of_priming_has_the_reason_that_a_type_has_no_stream(autojump_clock: MockClock) -> None:
    """The reason is next to the type that priming waits for."""
    staff, channel = Staff(), Away()
    channel.away = True

    @staff.app.controller(manages=staff.team)
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async with staff.open(wrap_channel=channel.over) as engine:
        await trio.sleep(5)
        problem = engine.controllers["look"].status().problem
        assert problem.endswith("staff.v1.Team (0 resources, revision 0 of 6; UNAVAILABLE: gone fishing)")
        await trio.sleep(56)
        assert engine.controllers["look"].status().error.endswith("revision is 0 of 6; UNAVAILABLE: gone fishing")


async def test_status_counts_the_lag_and_the_refused_items_of_a_type(autojump_clock: MockClock) -> None:
    """A type lags behind the newest type of its controller, and refuses items that are older than its cache."""
    staff, channel = Staff(), ScriptedChannel()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async with staff.open(wrap_channel=channel.over) as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        status = engine.controllers["look"].status
        assert [(each.lag, each.refused) for each in status().types] == [(0, 0), (0, 0)]
        channel.stall(staff.account)
        for name in "abc":
            await staff.write_team(name)
        await trio.sleep(1)
        assert [each.lag for each in status().types] == [0, 3]
        assert status().unmapped == 3
        channel.release(staff.account)
        channel.duplicate(staff.team)
        await staff.write_team("d")
        await trio.sleep(1)
        [team, account] = status().types
        assert (team.lag, account.lag, account.refused) == (0, 0, 0)
        assert team.refused > 0


async def test_controllers_of_the_same_name_are_distinguished_by_their_apps() -> None:
    """Each has its own status."""
    apps = []
    for name in ("one", "two"):
        app = headway.App(name)
        thing = app.type(name, "v1", "Thing", Team)

        @app.controller(manages=thing)
        async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
            """Do nothing."""

        apps.append(app)

    @apps[0].controller(manages=next(each for each in apps[0].registry if each.name.group == "one"))
    async def alone(_: headway.Runtime, __: headway.Request[Any]) -> None:
        """Do nothing."""

    async with headway.open_engine("memory:", *apps) as engine:
        assert {"one/look", "two/look", "one/alone", "headway/reaper"} <= set(engine.controllers)
        # The name alone finds a controller that only one app has.
        assert engine.controllers["alone"] is engine.controllers["one/alone"]
        assert "look" not in engine.controllers
        with pytest.raises(KeyError, match="several apps have a controller 'look': use 'one/look' or 'two/look'"):
            engine.controllers["look"]
        with pytest.raises(KeyError, match="controller 'alon' not found"):
            engine.controllers["alon"]
        metrics = Metrics()
        metrics.watch(engine.status)
        lines = [line.rpartition(" ")[0] for line in metrics.text().decode().splitlines() if line[0] != "#"]
        assert len(lines) == len(set(lines))
        assert 'headway_controller_ready{controller="two/look"}' in lines
