"""Conditions: written once, only if they differ, and also when the block raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import ConditionState
from headway.cache import Cache
from headway.reconcile import NewestStatuses
from headway.testing import simulation
from tests.helpers.resources import Team
from tests.helpers.staff import Staff

TRUE, FALSE, UNKNOWN = ConditionState.TRUE, ConditionState.FALSE, ConditionState.UNKNOWN
Body = Callable[[headway.Conditions[Team], headway.Resource[Team]], None]


class ConditionsRig(Staff):
    """A controller whose whole reconcile is ``body``, within its conditions."""

    def __init__(self, body: Body, failure: str | None = "Ready") -> None:
        super().__init__()
        self.runs = 0

        @self.app.controller(manages=self.team, backoff=headway.Backoff(1.0, 1000.0))
        async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            assert team is not None
            self.runs += 1
            async with rt.conditions(team, failure=failure) as conditions:
                body(conditions, team)

    async def stored(self) -> list[tuple[str, ConditionState, str, str]]:
        status = (await self.engine.client.read(self.team, "core")).status.get("say")
        return [(each.type, each.state, each.reason, each.message) for each in status.conditions] if status else []


async def test_conditions_are_written_once_and_only_if_they_differ(autojump_clock: MockClock) -> None:
    def body(conditions: headway.Conditions[Team], team: headway.Resource[Team]) -> None:
        conditions.set("Ready", None)
        conditions.set("Ready", len(team.data.members) > 0, reason="Members")
        conditions.set("Odd", UNKNOWN, "who knows")

    staff = ConditionsRig(body)
    async with staff.open() as engine:
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        expected = [("Ready", TRUE, "Members", ""), ("Odd", UNKNOWN, "", "who knows")]
        assert await staff.stored() == expected
        # The team is reconciled when it is written, and not because of its status.
        assert staff.runs == 1
        version = (await engine.client.read(staff.team, "core")).version
        await engine.client.write_status(await engine.client.read(staff.team, "core"), "x", [headway.Condition("Y")])
        await staff.wait_idle()
        assert int((await engine.client.read(staff.team, "core")).version) == int(version) + 1
        await staff.write_team("core")
        await staff.wait_idle()
        assert (await staff.stored())[0] == ("Ready", FALSE, "Members", "")
        observed = await engine.client.read(staff.team, "core")
        assert observed.status["say"].observed_generation == observed.generation


async def test_unmentioned_conditions_stay_and_unset_ones_are_removed(autojump_clock: MockClock) -> None:
    def body(conditions: headway.Conditions[Team], team: headway.Resource[Team]) -> None:
        if team.data.members == ["a"]:
            conditions.set("First", True)
            conditions.set("Second", True)
        elif team.data.members == ["b"] and "First" in conditions:
            conditions.unset("First")
            conditions.unset("Never")

    staff = ConditionsRig(body)
    async with staff.open():
        for members, expected in (("a", ["First", "Second"]), ("c", ["First", "Second"]), ("b", ["Second"])):
            await staff.write_team("core", members)
            await staff.wait_idle()
            assert [each[0] for each in await staff.stored()] == expected


async def test_conditions_are_written_if_the_block_raises(autojump_clock: MockClock) -> None:
    """The reconcile fails with the error of the block."""

    def body(conditions: headway.Conditions[Team], team: headway.Resource[Team]) -> None:
        conditions.set("Half", True)
        if not team.data.members:
            raise LookupError("nobody")
        conditions.set("Ready", True)

    staff = ConditionsRig(body)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.5)
        assert await staff.stored() == [("Half", TRUE, "", ""), ("Ready", FALSE, "LookupError", "nobody")]
        assert set(staff.errors()) == {"LookupError('nobody')"}
        assert staff.runs == 1
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        assert await staff.stored() == [("Half", TRUE, "", ""), ("Ready", TRUE, "", "")]


async def test_conditions_of_a_deleted_resource_are_not_written(autojump_clock: MockClock) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None:
            async with rt.conditions(team) as conditions:
                await staff.engine.client.delete(team)
                conditions.set("Ready", True)

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert not staff.errors()


async def test_failed_write_of_conditions_is_a_note_on_the_error_of_the_block(autojump_clock: MockClock) -> None:
    """The write fails because the generation was never assigned."""
    staff = Staff()

    @staff.app.controller(manages=staff.team, writes=[])
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.conditions(team, failure="Ready"):
            raise LookupError("nobody")

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.001)
    (error, *_) = [event.error for event in staff.events_of(headway.events.Reconciled) if event.error]
    assert repr(error) == "LookupError('nobody')"
    assert "could not be written" in error.__notes__[0]


@pytest.mark.parametrize("plan", ["not_done(1)", "answer_lost(1)", "conflict(1)"])
@pytest.mark.parametrize("grouped", [False, True])
def test_failure_for_good_is_tried_again_until_its_conditions_are_written(plan: str, grouped: bool) -> None:
    """Otherwise the key is dropped, and nothing says why."""
    app = headway.App("staff")
    type = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=type)
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.conditions(team, failure="Ready"):
            if not grouped:
                raise headway.PermanentFailure("nobody")
            async with trio.open_nursery():
                raise headway.PermanentFailure("nobody")

    async def one_team(world: simulation.World) -> None:
        await world.client.apply(type.new("core", Team()))
        await world.wait_idle()
        stored = await world.client.read(type, "core")
        assert [each.state for each in stored.status["say"].conditions] == [FALSE]

    assert simulation.explore(app, one_team, plan=plan).complete


@pytest.mark.filterwarnings("ignore:an async block was never entered")
@pytest.mark.parametrize(
    ("type", "state", "words", "said"),
    [
        ("", True, {}, "condition needs a type, not ''"),
        (None, True, {}, "condition needs a type, not None"),
        (5, True, {}, "condition needs a type, not 5"),
        ("Ready", "True", {}, "condition 'Ready': state 'True'"),
        ("Ready", 7, {}, "condition 'Ready': state 7"),
        ("Ready", [], {}, r"condition 'Ready': state \[\]"),
        ("Ready", True, {"message": None}, "condition 'Ready': message None must be a text"),
        ("Ready", True, {"message": LookupError("x")}, "condition 'Ready': message LookupError.* must be a text"),
        ("Ready", True, {"reason": None}, "condition 'Ready': reason None must be a text"),
        ("Ready", True, {"reason": 5}, "condition 'Ready': reason 5 must be a text"),
        ("Ready", True, {"message": "caf\udce9"}, "condition 'Ready': message 'caf.*' has half of a surrogate pair"),
        ("Ready", True, {"resource": "ada"}, "condition 'Ready': resource 'ada' must be"),
    ],
)
def test_invalid_condition_is_refused_when_it_is_set(type: Any, state: Any, words: dict[str, Any], said: str) -> None:
    """Later the write would fail without naming the condition."""
    staff = Staff()
    nothing: Any = None
    cache = Cache("say", staff.team, ())
    conditions = headway.Conditions(nothing, NewestStatuses(cache), staff.team.new("core"), "say", None)
    with pytest.raises(headway.errors.InvalidArgument, match=said):
        conditions.set(type, state, **words)
    assert "Ready" not in conditions


async def test_status_is_of_the_generation_that_was_passed_and_survives_a_write(autojump_clock: MockClock) -> None:
    """Users change the resource before its status is written. A write of payload or metadata replaces no status."""
    staff = Staff()
    async with staff.open() as engine:
        client = engine.client
        first = await staff.write_team("core")
        second = await staff.write_team("core", "ada")
        assert first.generation != second.generation
        await client.write_status(first, "look", [headway.Condition("Ready", TRUE)])
        stored = await client.read(staff.team, "core")
        assert stored.status["look"].observed_generation == first.generation
        assert stored.generation == second.generation

        stored.status["look"].conditions.clear()
        stored.finalizers |= {"mine"}
        third = await client.write(stored)
        assert third.status["look"].observed_generation == first.generation
        assert third.generation != second.generation


TAKEN, FULL = ValueError("port 80 is taken"), OSError("the disk is full")


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (ExceptionGroup("of a nursery", [TAKEN]), "ValueError", "port 80 is taken"),
        (
            ExceptionGroup("of a nursery", [ExceptionGroup("within", [TAKEN, FULL]), TAKEN]),
            "OSError",
            "port 80 is taken; the disk is full",
        ),
        (ExceptionGroup("in another order", [FULL, TAKEN]), "OSError", "port 80 is taken; the disk is full"),
        (trio.TooSlowError(), "TooSlowError", "TooSlowError was raised without a message"),
        (
            ExceptionGroup("of many", [LookupError(f"{number:02}") for number in range(22)]),
            "LookupError",
            "; ".join(f"{number:02}" for number in range(20)) + "; … (2 more)",
        ),
    ],
    ids=["one", "several", "another order", "no message", "many"],
)
async def test_failure_names_the_errors_of_tasks_and_not_their_group(
    autojump_clock: MockClock, error: Exception, reason: str, message: str
) -> None:
    def body(_: headway.Conditions[Team], __: headway.Resource[Team]) -> None:
        raise error

    staff = ConditionsRig(body)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.001)
        assert await staff.stored() == [("Ready", FALSE, reason, message)]
