"""Writers that undo each other: they are found, slowed down and reported, and no change is missed."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import headway
from headway import events, testing
from headway.base import chance
from headway.fights._turns import FREE, LARGE, LATE, MORE
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

FULL_SPEED = 2 * (FREE + MORE + LATE + 5)
"""About as many reconciles of a controller precede its first delay: one for each of the two writes of a turn."""


ENOUGH = 2_000
"""The number of reconciles after which a controller gives in, so that a fight that nothing slows has an end."""
FEW = 4
"""Writers that agree within this many turns after each change are never delayed."""


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each controller have the same number of free turns in each run of a test."""
    monkeypatch.setattr(chance, "source", random.Random(1))


class Fighting(Staff):
    """Controllers that each set the members of every team.

    Attributes:
        goals: the members that each controller writes.
        runs: when each reconcile began, by controller.
        failing: True if they fail instead.
        turns: the number of writes of ``twos`` after which it agrees with ``ones``; 0 if it never does.
        work: how long each reconcile takes before it writes, in seconds.
    """

    def __init__(self, **goals: str) -> None:
        super().__init__()
        self.goals = goals
        self.turns = 0
        self.work = 0.0
        self.failing = False
        self.runs: dict[str, list[float]] = {name: [] for name in goals}
        for name in goals:
            self.declare(name)

    def declare(self, name: str) -> None:
        """Declare the controller of a name."""

        @self.app.controller(manages=self.team, name=name)
        async def sets(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            self.runs[name].append(trio.current_time())
            if self.failing:
                raise LookupError("no desk is left")
            team = rt.resource(request)
            if self.work:
                await trio.sleep(self.work)
            if team is not None and self.count() < ENOUGH and team.data.members != [self.goals[name]]:
                team.data.members = [self.goals[name]]
                await rt.client.write(team)
                if name == "twos" and self.turns:
                    self.turns -= 1
                    self.goals[name] = self.goals[name] if self.turns else self.goals["ones"]

    def fights(self, controller: str = "") -> list[events.ControllersFight]:
        """Return the fights that were reported, of one controller or of all."""
        return [each for each in self.events_of(events.ControllersFight) if controller in ("", each.controller)]

    def count(self) -> int:
        """Return the number of reconciles of all controllers."""
        return sum(map(len, self.runs.values()))


async def test_two_controllers_that_undo_each_other_are_slowed_and_named(autojump_clock: MockClock) -> None:
    """One of them finds out after a dozen turns, and its delays double up to a minute. The other one waits for it."""
    staff = Fighting(ones="1", twos="2")
    async with staff.open() as engine:
        await staff.write_team("core")
        await trio.sleep(60)
        assert staff.count() < 3 * FULL_SPEED
        values = {"ones": "['1']", "twos": "['2']"}
        for each in staff.fights():
            name = each.controller.removeprefix("staff/")
            other = "twos" if name == "ones" else "ones"
            assert (each.id.name, str(each.resource), each.by) == ("core", "Team core", f"controller staff/{other}")
            assert [tuple(field) for field in each.fields] == [("members", values[name], values[other])]
        assert FREE < staff.fights()[0].turns <= FREE + MORE + 4
        (told,) = [found for name in staff.goals if len(found := staff.fights(f"staff/{name}")) > 5]
        assert [round(each.delay, 1) for each in told[-4:]] == [6.4, 12.8, 25.6, 51.2]
        (slowed,) = engine.controllers[told[0].controller.removeprefix("staff/")].status().not_done
        assert slowed.outcome == "slowed"
        assert "over Team core: each undoes what the other writes to members" in slowed.error
        answer = await engine.why(staff.team.id("core"))
        (waiting,) = [each for each in answer.controllers if each.state == "slowed"]
        assert waiting.error.startswith("fights with controller staff/")
        await trio.sleep(600)
        assert max(each.delay for each in staff.fights()) == 60
        with trio.move_on_after(50) as waited:
            await engine.wait_idle()
        assert waited.cancelled_caught
    assert not staff.events_of(events.SelfTriggered)


@pytest.mark.parametrize("work", [0.002, 0.01, 0.04])
async def test_reconciles_that_take_time_are_slowed(autojump_clock: MockClock, work: float) -> None:
    """Both controllers count the same turns. If both delayed their keys, each would find the other's turn slow."""
    staff = Fighting(ones="1", twos="2")
    staff.work = work
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(120)
    assert staff.count() < ENOUGH / 2
    assert max(each.delay for each in staff.fights()) > 20


async def test_three_writers_are_slowed(autojump_clock: MockClock) -> None:
    staff = Fighting(a="1", b="2", c="3")
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(60)
    assert staff.count() < ENOUGH / 2
    told = staff.fights()
    named = {each.by for each in told} | {f"controller {each.controller}" for each in told}
    assert {"controller staff/a", "controller staff/b", "controller staff/c"} >= named
    assert len(named) > 1


async def test_writers_that_agree_after_a_few_turns_are_not_delayed(autojump_clock: MockClock) -> None:
    staff = Fighting(ones="1", twos="2")
    async with staff.open() as engine:
        for number in range(5):
            staff.goals["twos"], staff.turns = "2", FEW
            await staff.write_team("core", f"x{number}")
            await engine.wait_idle()
            assert staff.turns == 0
        assert trio.current_time() < 0.1
    assert not staff.fights()


async def test_other_change_of_the_resource_is_handled_at_once(autojump_clock: MockClock) -> None:
    """The fight begins anew with it, as with the change of another resource that maps to the key."""
    staff = Fighting(ones="1", twos="2")
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(100)
        for metadata in ({"color": "red"}, {"color": "blue"}):
            before, now = {name: len(runs) for name, runs in staff.runs.items()}, trio.current_time()
            staff.events.clear()
            changed = staff.team.new("core", Team(members=["9"]), metadata=metadata)
            await staff.engine.client.write(changed)
            await trio.sleep(0.05)
            for name, count in before.items():
                assert staff.runs[name][count] - now < 0.01
                assert len(staff.runs[name]) - count <= FULL_SPEED
            await trio.sleep(1)
            assert round(staff.fights()[0].delay, 1) == 0.1
            await trio.sleep(50)


async def undo(staff: Staff) -> None:
    """Be a program that undoes what is written to team core, soon after it."""
    while True:
        await trio.sleep(0.01)
        team = await staff.engine.client.get(staff.team, "core")
        if team is not None and team.data.members != ["2"]:
            await staff.write_team("core", "2")


class Watching(Staff):
    """A controller that sets the members of each team, and is called for the account of the same name as well.

    Attributes:
        runs: when each reconcile began.
    """

    def __init__(self, result: headway.RequeueAfter | None = None) -> None:
        super().__init__()
        self.runs = list[float]()

        @self.app.controller(manages=self.team, watches=[headway.watch(self.account, headway.mappers.same_name())])
        async def ones(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            self.runs.append(trio.current_time())
            team = rt.resource(request)
            if team is not None and team.data.members != ["1"]:
                team.data.members = ["1"]
                with contextlib.suppress(headway.Conflict):
                    await rt.client.write(team)
            return result


async def test_change_of_another_resource_ends_the_delay_of_a_key(autojump_clock: MockClock) -> None:
    """Its delays begin anew, while the fight goes on. Neither needs the other writer to be a controller."""
    staff = Watching()
    async with staff.open() as engine, trio.open_nursery() as nursery:
        await staff.write_team("core")
        nursery.start_soon(undo, staff)
        await trio.sleep(100)
        told = staff.events_of(events.ControllersFight)
        assert [round(each.delay, 1) for each in told] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2]
        assert not told[0].by.startswith("controller")
        count, now = len(staff.runs), trio.current_time()
        staff.events.clear()
        await engine.client.write(staff.account.new("core", Account()))
        await trio.sleep(0.001)
        assert staff.runs[count] - now < 0.01
        await trio.sleep(200)
        assert [round(each.delay, 1) for each in staff.events_of(events.ControllersFight)[:3]] == [0.1, 0.2, 0.4]
        nursery.cancel_scope.cancel()


async def test_fight_delays_no_requeue_that_the_program_asked_for(autojump_clock: MockClock) -> None:
    staff = Watching(headway.requeue_after(5))
    async with staff.open(), trio.open_nursery() as nursery:
        await staff.write_team("core")
        nursery.start_soon(undo, staff)
        await trio.sleep(300)
        nursery.cancel_scope.cancel()
    assert max(later - earlier for earlier, later in pairwise(staff.runs)) < 5.1
    assert len(staff.runs) < 150


async def test_fight_that_ends_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    """The next one has its free turns again, at the latest after some minutes."""
    staff = Fighting(ones="1", twos="2")
    async with staff.open() as engine:
        await staff.write_team("core")
        await trio.sleep(100)
        staff.goals["twos"] = "1"
        with trio.fail_after(200):
            await engine.wait_idle()
        assert not engine.controllers["ones"].status().not_done
        await trio.sleep(300)
        staff.goals["twos"] = "2"
        staff.events.clear()
        began, now = staff.count(), trio.current_time()
        await staff.write_team("core", "2")
        await trio.sleep(0.05)
        assert staff.count() - began > FREE
        assert trio.current_time() - now < 0.1
        assert [round(each.delay, 1) for each in staff.fights()] == [0.1, 0.1][: len(staff.fights())]


async def test_fight_that_waits_for_no_other_writer_is_said(autojump_clock: MockClock) -> None:
    """The other writer has given in, so the key has been delayed by its own write."""
    staff = Fighting(ones="1", twos="2")
    async with staff.open() as engine:
        await staff.write_team("core")
        await trio.sleep(100)
        slowed = staff.fights()[-1].controller.removeprefix("staff/")
        staff.goals["twos" if slowed == "ones" else "ones"] = staff.goals[slowed]
        count, told = len(staff.runs[slowed]), len(staff.fights())
        await trio.sleep(50)
        assert len(staff.runs[slowed]) > count
        assert len(staff.fights()) == told
        (waiting,) = engine.controllers[slowed].status().not_done
        assert (waiting.outcome, "over Team core" in waiting.error) == ("slowed", True)
        assert "fights with" in str(await engine.why(staff.team.id("core")))
        await engine.wait_idle()
        assert not engine.controllers[slowed].status().not_done


async def test_key_that_waits_for_nothing_is_not_said_to_be_slowed(autojump_clock: MockClock) -> None:
    """Its own requeue has come before the end of the delay, and no echo of its write."""
    staff, asks = Staff(), True

    @staff.app.controller(manages=staff.team, when=headway.predicates.not_own_writes())
    async def ones(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
        team = rt.resource(request)
        if team is not None and team.data.members != ["1"]:
            team.data.members = ["1"]
            with contextlib.suppress(headway.Conflict):
                await rt.client.write(team)
        return headway.requeue_after(3) if asks else None

    async with staff.open() as engine, trio.open_nursery() as nursery:
        await staff.write_team("core")
        nursery.start_soon(undo, staff)
        await trio.sleep(80)
        assert engine.controllers["ones"].status().not_done
        nursery.cancel_scope.cancel()
        asks = False
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
            await engine.wait_idle()
            team = await engine.client.get(staff.team, "core")
            assert team is not None
            assert team.data.members == ["1"]
            assert not engine.controllers["ones"].status().not_done


async def test_large_payload_is_compared_as_a_whole_and_its_fields_are_named(autojump_clock: MockClock) -> None:
    staff = Fighting(ones="1" * LARGE, twos="2" * LARGE)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(10)
    assert staff.count() < 3 * FULL_SPEED
    assert {each.path for told in staff.fights() for each in told.fields} == {"members"}


def stating(staff: Staff, runs: Counter[str]) -> None:
    """Declare two controllers that write one account for each team, and each its own condition of the team."""
    watches = [headway.watch(staff.account, headway.mappers.same_name())]

    def declare(name: str) -> None:
        @staff.app.controller(manages=staff.team, watches=watches, name=name)
        async def states(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            runs[name] += 1
            team = rt.resource(request)
            assert team is not None
            account = rt.cache.get(staff.account, request.id.name)
            agrees = account is not None and account.data.login == name
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", agrees, "fine" if agrees else "the account is wrong")
                if not agrees and runs.total() < 10 * ENOUGH:
                    await rt.client.apply(staff.account.new(request.id.name, Account(login=name)))

    declare("ones")
    declare("twos")


def mirroring(staff: Staff, runs: Counter[str]) -> None:
    """Declare two controllers that write one account for each team, and watch its copy by a third one."""
    mirror = staff.app.type("staff", "v1", "Mirror", Account)
    watches = [headway.watch(each, headway.mappers.same_name()) for each in (staff.account, mirror)]

    def declare(name: str) -> None:
        @staff.app.controller(manages=staff.team, watches=watches, name=name)
        async def sets(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            runs[name] += 1
            if runs.total() < 10 * ENOUGH:
                await rt.client.apply(staff.account.new(request.id.name, Account(login=name)))

    declare("ones")
    declare("twos")

    @staff.app.controller(manages=staff.account)
    async def mirrors(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        runs["mirrors"] += 1
        if (account := rt.resource(request)) is not None:
            await rt.client.apply(mirror.new(request.id.name, account.data))


def pruning(staff: Staff, runs: Counter[str]) -> None:
    """Declare two controllers that each prune the other's accounts."""

    def declare(name: str) -> None:
        @staff.app.controller(
            manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())], name=name
        )
        async def prunes(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            runs[name] += 1
            await trio.sleep(0.001)
            team = rt.resource(request)
            if team is not None and runs.total() < ENOUGH:
                async with rt.outputs(staff.account, owner=team) as outputs:
                    await outputs.apply(f"{team.name}-{name}", Account(login=name))

    declare("ones")
    declare("twos")


@pytest.mark.parametrize("declare", [stating, mirroring, pruning])
async def test_other_resources_that_change_in_each_turn_do_not_end_the_delay(
    autojump_clock: MockClock, declare: Callable[[Staff, Counter[str]], None]
) -> None:
    """Such a change lets the key wait for 0.1 s, and `why` says so."""
    staff, runs = Staff(), Counter[str]()
    declare(staff, runs)
    async with staff.open() as engine:
        await staff.write_team("core")
        await trio.sleep(20)
        for _ in range(50):
            await trio.sleep(0.03)
            said = " ".join(headway.why.sentences(await engine.why(staff.team.id("core"))))
            assert "after a failure" not in said
    assert runs.total() < 22 * 150
    assert len(staff.events_of(events.ControllersFight)) < 30


def creating(staff: Staff, runs: Counter[str], *, finalizer: bool = False) -> None:
    """Declare a controller that creates an account for each team, and one that deletes it."""
    watches = [headway.watch(staff.account, headway.mappers.same_name())]

    @staff.app.controller(manages=staff.team, watches=watches)
    async def creates(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        runs["creates"] += 1
        if runs.total() < ENOUGH:
            await rt.client.apply(staff.account.new(request.id.name, Account(login="a")))

    @staff.app.controller(manages=staff.team, watches=watches)
    async def deletes(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        runs["deletes"] += 1
        account = rt.cache.get(staff.account, request.id.name)
        if account is not None and not account.is_deleting:
            await rt.client.delete(account)

    if finalizer:

        @staff.app.controller(manages=staff.account)
        async def cleans(rt: headway.Runtime, request: headway.Request[Account]) -> None:
            runs["cleans"] += 1
            account = rt.resource(request)
            if account is not None:
                async with rt.finalizer(account):
                    pass


@pytest.mark.parametrize("finalizer", [False, True])
async def test_controllers_that_create_and_delete_a_resource_are_slowed(
    autojump_clock: MockClock, finalizer: bool
) -> None:
    """Absence is a state. With a finalizer there are further states, one of them with a new time in each turn."""
    staff, runs = Staff(), Counter[str]()
    creating(staff, runs, finalizer=finalizer)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(60)
    assert runs.total() < (ENOUGH / 2 if finalizer else 4 * FULL_SPEED)
    told = staff.events_of(events.ControllersFight)
    assert {str(each.resource) for each in told} == {"Account core"}
    assert {field.path for each in told for field in each.fields} == {"existence"}
    if not finalizer:
        assert {(each.controller, each.by) for each in told} == {("staff/creates", "controller staff/deletes")}
        assert {(str(each.id), *map(tuple, each.fields)) for each in told} == {
            ("Team core", ("existence", "present", "absent"))
        }


async def test_two_keys_that_claim_one_resource_are_slowed(autojump_clock: MockClock) -> None:
    """Each is the other writer. A change that is not part of the fight ends the delay of the key that it maps to."""
    staff, runs = Staff(), Counter[str]()

    def both(*_: object) -> list[headway.ResourceId]:
        return [staff.team.id("x"), staff.team.id("y")]

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, both)], concurrency=2)
    async def claims(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        runs[request.id.name] += 1
        team = rt.resource(request)
        if team is not None and runs.total() < ENOUGH:
            await rt.apply(staff.account.new("shared", Account(login=team.name)))

    async with staff.open():
        await staff.write_team("x")
        await staff.write_team("y")
        await trio.sleep(60)
        told = staff.events_of(events.ControllersFight)
        assert {(each.id.name, each.by) for each in told} == {
            ("x", "its own reconcile of Team y"),
            ("y", "its own reconcile of Team x"),
        }
        assert {(each.id.name, *each.fields[0]) for each in told} == {
            ("x", "login", "'x'", "'y'"),
            ("y", "login", "'y'", "'x'"),
        }
        assert runs.total() < 4 * FULL_SPEED
        before = runs["x"]
        await staff.write_team("x", "ada")
        await trio.sleep(0.01)
        assert runs["x"] > before


async def test_own_values_are_named_although_another_program_writes_as_well(autojump_clock: MockClock) -> None:
    staff, runs = Staff(), 0

    def both(*_: object) -> list[headway.ResourceId]:
        return [staff.team.id("x"), staff.team.id("y")]

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, both)], concurrency=2)
    async def claims(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        runs += 1
        if (team := rt.resource(request)) is not None and runs < ENOUGH:
            await rt.apply(staff.account.new("shared", Account(login=team.name)))

    async with staff.open() as engine:
        await staff.write_team("x")
        await staff.write_team("y")
        for _ in range(50):
            await trio.sleep(0.3)
            await engine.client.apply(staff.account.new("shared", Account(login="program")))
    told = staff.events_of(events.ControllersFight)
    assert told
    for each in told:
        assert each.fields[0].own == repr(each.id.name)
        if each.by.startswith("its own"):
            assert each.by == f"its own reconcile of Team {each.fields[0].other.strip(chr(39))}"


async def test_retries_after_a_fight_are_not_delayed(autojump_clock: MockClock) -> None:
    """The fight is over, and the key fails for another reason, with the reasons of the fight."""
    staff = Fighting(ones="1", twos="2")
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(10)
        staff.goals["ones"] = staff.goals["twos"] = "3"
        with trio.fail_after(200):
            await staff.engine.wait_idle()
        staff.events.clear()
        staff.failing = True
        await staff.write_team("core", "3", "4")
        await trio.sleep(300)
        assert not staff.fights()
        assert staff.count() > 10


async def test_two_controllers_that_write_one_status_are_slowed(autojump_clock: MockClock) -> None:
    staff, runs = Staff(), Counter[str]()

    def stating(name: str, state: headway.ConditionState) -> None:
        @staff.app.controller(manages=staff.team, name=name)
        async def states(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            runs[name] += 1
            team = rt.resource(request)
            assert team is not None
            assert team.status.keys() <= {"shared"}, "it looks at the statuses"
            if runs.total() < ENOUGH:
                await rt.client.write_status(team, "shared", [headway.Condition(type="Ready", state=state)])

    stating("yes", headway.ConditionState.TRUE)
    stating("no", headway.ConditionState.FALSE)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(60)
    assert runs.total() < 4 * FULL_SPEED
    values = {"staff/yes": "'TRUE'", "staff/no": "'FALSE'"}
    for each in staff.events_of(events.ControllersFight):
        other = "staff/no" if each.controller == "staff/yes" else "staff/yes"
        assert each.by == f"controller {other}"
        assert [tuple(field) for field in each.fields] == [
            ("status.shared.Ready", values[each.controller], values[other])
        ]


async def test_statuses_of_each_turn_do_not_hide_a_fight(autojump_clock: MockClock) -> None:
    """The generation and the time of a status differ each time, and its write comes before that of the field."""
    staff, runs = Staff(), Counter[str]()

    def setting(name: str) -> None:
        @staff.app.controller(manages=staff.team, name=name)
        async def sets(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            runs[name] += 1
            team = rt.resource(request)
            assert team is not None
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", team.data.members == [name], f"was {team.data.members}")
                if team.data.members != [name] and runs.total() < ENOUGH:
                    team.data.members = [name]
                    await rt.client.write(team)

    setting("a")
    setting("b")
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(60)
    assert runs.total() < ENOUGH / 2
    told = staff.events_of(events.ControllersFight)
    assert {f"controller {told[0].controller}", told[0].by} == {"controller staff/a", "controller staff/b"}
    assert "members" in {each.path for event in told for each in event.fields}


async def handed_over(answer: Callable[[str], str], *, pause: float = 0.0, times: int = 100) -> Staff:
    """Run a controller that answers each of a program's writes to a team by another one."""
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def answers(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None and team.data.members[0].startswith("do"):
            team.data.members = [answer(team.data.members[0])]
            await rt.client.write(team)

    async with staff.open() as engine:
        for number in range(times):
            text = "do" if pause else f"do {number}"
            await staff.write_team("core", text)
            now = trio.current_time()
            await engine.wait_idle()
            assert trio.current_time() - now < 0.01, f"it was delayed at {number}"
            await trio.sleep(pause)
    return staff


async def test_work_that_is_handed_over_is_no_fight(autojump_clock: MockClock) -> None:
    """Each turn has something new, in what the controller writes or in what the other writer does."""
    for answer in (lambda _: "ok", lambda text: f"ready for {text}"):
        assert not (await handed_over(answer)).events_of(events.ControllersFight)


async def test_slow_turns_are_no_fight(autojump_clock: MockClock) -> None:
    """A flag that is set every two seconds, and reset by a controller."""
    assert not (await handed_over(lambda _: "ok", pause=2.0)).events_of(events.ControllersFight)


async def test_failing_key_that_fights_is_slowed(autojump_clock: MockClock) -> None:
    """The other writer's change would end each of its back-offs."""
    staff = Fighting(twos="2")
    tries = list[float]()

    @staff.app.controller(manages=staff.team)
    async def fails(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        tries.append(trio.current_time())
        team = rt.resource(request)
        assert team is not None
        if team.data.members != ["1"] and len(tries) < ENOUGH:
            team.data.members = ["1"]
            await rt.client.write(team)
        raise LookupError("no desk is left")

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(60)
    assert len(tries) + staff.count() < 6 * FULL_SPEED


async def test_secrets_that_alternate_are_not_shown(autojump_clock: MockClock) -> None:
    @headway.message(name="staff.v1.Door")
    class Door:
        code: str = headway.field(1, secret=True)

    app, told = headway.App("staff"), list[Any]()
    door = app.type("staff", "v1", "Door", Door)

    def locking(name: str, code: str) -> None:
        @app.controller(manages=door, name=name)
        async def locks(rt: headway.Runtime, request: headway.Request[Door]) -> None:
            await rt.client.apply(door.new(request.id.name, Door(code=code)))

    locking("one", "swordfish-1")
    locking("other", "swordfish-2")
    async with testing.open_engine("memory:", app, report=told.append) as engine:
        await engine.client.write(door.new("front", Door()))
        await trio.sleep(10)
        texts = str(await engine.why(door.id("front")))
    fights = [each for each in told if isinstance(each, events.ControllersFight)]
    assert tuple(fights[0].fields[0]) == ("code", "'(redacted)'", "'(redacted, changed)'")
    assert "swordfish" not in texts + "".join(map(str, (vars(each) for each in fights)))


async def told_of(staff: Fighting) -> None:
    """Wait for the first report of a fight."""
    while not staff.fights():  # noqa: ASYNC110  # reports are appended to a list
        await trio.sleep(0.05)


async def test_next_run_begins_anew(tmp_path: Any) -> None:
    """In real time, which a store in a file needs."""
    for _ in range(2):
        staff = Fighting(ones="1", twos="2")
        async with staff.open(f"sqlite:{tmp_path}/store.db"):
            await staff.write_team("core", "9")
            with trio.fail_after(30):
                await told_of(staff)
            told = staff.fights()
            assert FREE < told[0].turns <= FREE + MORE + 4
            assert staff.count() < 3 * FULL_SPEED
            assert math.isclose(told[0].delay, 0.1)
