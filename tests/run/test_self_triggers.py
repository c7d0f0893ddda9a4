"""A key that triggers itself by its own writes: it is detected, slowed down and reported, and misses no change."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.run import MOST_AT_ONCE
from headway.run._self_triggers import FREE
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


class Looping(Staff):
    """A controller that writes team "loop" in every reconcile of it.

    Attributes:
        runs: when each reconcile of it began, and what it saw.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.runs: list[tuple[float, tuple[str, ...]]] = []
        self.others = 0
        self.stop_at = 10**9

        @self.app.controller(manages=self.team, **options)
        async def again(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None or team.name != "loop":
                self.others += 1
                return
            self.runs.append((trio.current_time(), tuple(team.data.members)))
            if len(self.runs) < self.stop_at:
                team.metadata["runs"] = str(len(self.runs))
                await rt.client.write(team)


async def test_self_triggering_key_is_delayed_longer_each_time(autojump_clock: MockClock) -> None:
    """After ten reconciles the key is delayed by 0.1 s, and the delay doubles up to a minute.

    The report has the key's writes, and the controller is never idle.
    """
    staff = Looping()
    async with staff.open() as engine:
        await staff.write_team("loop")
        await trio.sleep(300)
        heard = staff.events_of(events.SelfTriggered)
        delays = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60, 60, 60]
        assert [round(event.delay, 1) for event in heard] == delays
        assert len(staff.runs) == 1 + FREE + len(heard) - 1
        first = heard[0]
        assert (first.controller, first.id.name, first.count) == ("staff/again", "loop", FREE + 1)
        assert [str(write).split(" at ")[0] for write in first.writes] == ["Team loop written"]
        status = engine.controllers["again"].status()
        assert [(each.id.name, each.outcome) for each in status.not_done] == [("loop", "slowed")]
        assert "Team loop written" in status.not_done[0].error
        with trio.move_on_after(50) as waited:
            await engine.wait_idle()
        assert waited.cancelled_caught


async def test_other_keys_are_not_slowed_by_a_self_triggering_one(autojump_clock: MockClock) -> None:
    """A single worker reconciles the other keys while the self-triggering key is delayed."""
    staff = Looping()
    async with staff.open():
        await staff.write_team("loop")
        await trio.sleep(60)
        began = trio.current_time()
        await staff.write_team("fine")
        await trio.sleep(0.01)
        assert staff.others == 1
        assert trio.current_time() - began < 1


async def test_change_by_another_writer_ends_the_delay_at_once(autojump_clock: MockClock) -> None:
    """The count of the key starts again."""
    staff = Looping()
    async with staff.open():
        await staff.write_team("loop")
        await trio.sleep(100)
        count, began = len(staff.runs), trio.current_time()
        await staff.write_team("loop", "ada")
        await trio.sleep(0.05)
        assert staff.runs[count][0] - began < 0.01
        assert staff.runs[count][1] == ("ada",)
        assert len(staff.runs) == count + 1 + FREE


async def test_self_trigger_that_ends_is_forgotten(autojump_clock: MockClock) -> None:
    """A key that needs some of its own writes isn't slowed, neither this time nor the next."""
    staff = Looping()
    async with staff.open() as engine:
        for number in range(1, 6):
            staff.stop_at = number * FREE
            await staff.write_team("loop", str(number))
            await staff.wait_idle()
            run: Any = engine.controllers["again"].run
            assert run._self_triggers.loops == {}
    assert not staff.events_of(events.SelfTriggered)


async def test_failing_key_that_writes_its_failure_is_slowed(autojump_clock: MockClock) -> None:
    """Without the delay, a status that differs each time would end every back-off of a key that looks at it."""
    staff, tries = Staff(), list[float]()

    @staff.app.controller(manages=staff.team)
    async def fail(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        assert team.status.keys() <= {"fail"}
        tries.append(trio.current_time())
        async with rt.conditions(team, failure="Ready"):
            raise LookupError(f"the {len(tries)}th time")

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(300)
    assert len(tries) < 40
    heard = staff.events_of(events.SelfTriggered)
    assert str(heard[0].writes[0]).startswith("Team core status fail written at ")


async def test_self_trigger_through_an_output_is_detected(autojump_clock: MockClock) -> None:
    """The write is of another type, and comes back by its mapper."""
    staff = Staff()
    runs = 0

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def flap(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        team = rt.resource(request)
        assert team is not None
        runs += 1
        async with rt.outputs(staff.account, owner=team) as wanted:
            if rt.cache.get(staff.account, "ada") is None:
                await wanted.apply("ada", Account(login="ada"))

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(100)
    assert runs < 30
    whats = {write.what for event in staff.events_of(events.SelfTriggered) for write in event.writes}
    assert whats == {"written", "deleted"}


async def test_two_keys_that_trigger_each_other_are_not_slowed(autojump_clock: MockClock) -> None:
    """A write by the reconcile of another key doesn't count as an own write."""
    staff = Staff()
    runs = 0

    @staff.app.controller(manages=staff.team)
    async def other(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        runs += 1
        if runs > 60:
            return
        name = {"a": "b", "b": "a"}[request.id.name]
        team = rt.cache.get(staff.team, name)
        if team is not None:
            team.metadata["runs"] = str(runs)
            await rt.client.write(team)

    async with staff.open():
        await staff.write_team("a")
        await staff.write_team("b")
        await staff.wait_idle()
    assert runs > 60
    assert not staff.events_of(events.SelfTriggered)


class Stating(Staff):
    """A controller with eight workers that keeps a status of each team.

    Attributes:
        runs: when each reconcile began, and what it saw: the members, and what the status said of them before.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.runs: list[tuple[float, tuple[str, ...], str]] = []

        @self.app.controller(manages=self.team, concurrency=8, **options)
        async def stating(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            assert team is not None
            status = team.status.get("stating")
            said = status.conditions[0].message if status is not None else ""
            self.runs.append((trio.current_time(), tuple(team.data.members), said))
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", True, ",".join(team.data.members))


async def test_own_status_and_the_next_change_share_one_reconcile(autojump_clock: MockClock) -> None:
    """A hundred changes of a key, one every 10 ms, cause a hundred reconciles, and one more for the last status."""
    staff = Stating()
    async with staff.open():
        for number in range(100):
            await staff.write_team("core", str(number))
            await trio.sleep(0.01)
            assert staff.runs[-1][1] == (str(number),), "the change was reconciled at once"
        await staff.wait_idle()
    assert len(staff.runs) == 101
    assert staff.runs[-1][1:] == (("99",), "99")
    assert not staff.events_of(events.SelfTriggered)


async def test_controller_that_steps_by_its_own_status_finishes(autojump_clock: MockClock) -> None:
    """The controller is called after each step, also after the tenth."""
    staff, steps = Staff(), list[int]()

    @staff.app.controller(manages=staff.team, concurrency=8)
    async def stepping(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        status = team.status.get("stepping")
        step = int(status.conditions[0].message) if status is not None else 0
        steps.append(step)
        if step < 12:
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", False, str(step + 1))

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert steps == list(range(13))


async def test_key_that_is_requeued_at_once_for_ever_is_reported_once(autojump_clock: MockClock) -> None:
    """It is not delayed, and its steps may be many: another result or reason begins a new count."""
    staff, runs = Staff(), list[str]()
    left = {"steps": MOST_AT_ONCE - 1, "loop": MOST_AT_ONCE + 10}

    @staff.app.controller(manages=staff.team)
    async def again(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
        assert rt.resource(request) is not None
        runs.append(request.id.name)
        left[request.id.name] -= 1
        return None if left[request.id.name] < 0 else headway.requeue_now()

    async with staff.open():
        await staff.write_team("steps")
        await staff.wait_idle()
        left["steps"] = MOST_AT_ONCE - 1
        await staff.write_team("steps", "ada")
        await staff.wait_idle()
        assert staff.events_of(events.SelfTriggered) == []
        await staff.write_team("loop")
        await staff.wait_idle()
    (reported,) = staff.events_of(events.SelfTriggered)
    assert (reported.id.name, reported.writes, reported.count, reported.delay) == ("loop", (), MOST_AT_ONCE, 0.0)
    assert runs.count("loop") == MOST_AT_ONCE + 11
