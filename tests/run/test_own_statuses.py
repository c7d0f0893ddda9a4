"""C6: the status that a reconcile writes on its own resource, and when it causes another reconcile."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from threading import Thread

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.resource import unseen
from headway.testing import ScriptedChannel
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

Handler = Callable[[headway.Runtime, headway.Resource[Team]], Awaitable[object]]


class Stating(Staff):
    """A controller that writes a status of each team that exists.

    Attributes:
        runs: the members that each reconcile has seen.
        before, after: what each reconcile does before it writes the status, and after it.
        failures: the exceptions that the next reconciles raise at their ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, ...]] = []
        self.before: Handler = self.nothing
        self.after: Handler = self.nothing
        self.failures: list[Exception] = []
        self.by_status = headway.indexes.by(self.team, "has status", lambda team: bool(team.status))

        @self.app.controller(manages=self.team, indexes=[self.by_status], name="stating", concurrency=8)
        async def stating(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None:
                return
            self.runs.append(tuple(team.data.members))
            await self.before(rt, team)
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", True, ",".join(team.data.members))
            await self.after(rt, team)
            if self.failures:
                raise self.failures.pop()

    @staticmethod
    async def nothing(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        """Do nothing."""

    async def change_to_bob(self) -> None:
        """Change the member of team "core", as a program that is not the reconcile."""
        with unseen():
            await self.write_team("core", "bob")

    async def message(self) -> str:
        """Return what the status of team "core" says."""
        team = await self.engine.client.read(self.team, "core")
        return team.status["stating"].conditions[0].message


async def test_c6_own_status_of_a_reconcile_causes_no_other_one(autojump_clock: MockClock) -> None:
    staff = Stating()
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        assert await staff.message() == "ada"
        assert staff.runs == [("ada",)]
        await staff.write_team("core", "bob")
        await staff.wait_idle()
        assert await staff.message() == "bob"
    assert staff.runs == [("ada",), ("bob",)]


async def test_c6_change_before_an_own_status_is_reconciled(autojump_clock: MockClock) -> None:
    """It comes between what the reconcile has read and its write, so the stored state has both."""
    staff = Stating()

    async def change(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        if team.data.members == ["ada"]:
            await staff.change_to_bob()

    staff.before = change
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        assert staff.runs == [("ada",), ("bob",)]
        assert await staff.message() == "bob"


async def test_c6_change_after_an_own_status_is_reconciled(autojump_clock: MockClock) -> None:
    staff = Stating()

    async def change(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        if team.data.members == ["ada"]:
            await staff.change_to_bob()

    staff.after = change
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",), ("bob",)]


async def test_c6_change_that_only_the_reply_to_an_own_status_shows_is_reconciled(autojump_clock: MockClock) -> None:
    """No stream delivers the change: it came while there was none, and the next one begins with a snapshot."""
    staff, channel = Stating(), ScriptedChannel()

    async def change(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        if team.data.members == ["ada"]:
            channel.refuse_resume(staff.team)
            channel.stall(staff.team)
            channel.drop(staff.team)
            await staff.change_to_bob()

    async def reconnect(_: headway.Runtime, __: headway.Resource[Team]) -> None:
        channel.release(staff.team)

    staff.before, staff.after = change, reconnect
    async with staff.open(wrap_channel=channel.over):
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        assert staff.runs == [("ada",), ("bob",)]
        assert await staff.message() == "bob"
    assert channel.opened.count((staff.team.kind, False)) == 2


async def test_c6_status_of_another_writer_is_reconciled(autojump_clock: MockClock) -> None:
    """It comes while the reconcile writes its own."""
    staff = Stating()

    async def state(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        await staff.engine.client.write_status(team, "another", [headway.Condition("Seen")])

    staff.before = state
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert len(staff.runs) == 2


LOOKS: dict[str, Callable[[headway.Runtime, headway.Resource[Team]], object]] = {
    "status": lambda _, team: team.status,
    "version": lambda _, team: team.version,
    "message": lambda _, team: team.message(),
    "copy": lambda _, team: copy.copy(team).status,
    "deepcopy": lambda _, team: copy.deepcopy(team),
    "equality": lambda _, team: team == team.original(),
    "list": lambda rt, team: [each.status for each in rt.cache.list(team.type)],
    "conditions": lambda *_: None,
    "strong read": lambda *_: None,
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", LOOKS)
async def test_c6_own_status_causes_another_reconcile_if_one_has_looked_at_it(
    autojump_clock: MockClock,
    name: str,
    after: bool,
) -> None:
    """Even one that has looked after its write may have looked at what it had read before."""
    staff = Stating()

    async def look(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        # By then, the change by its status has been mapped.
        await trio.sleep(1)
        if name == "strong read":
            assert (await rt.strong.read(staff.team, "core")).status is not None
        if name == "conditions":
            async with rt.conditions(team) as conditions:
                assert ("Ready" in conditions) == (len(staff.runs) > 1 or after)
        LOOKS[name](rt, team)

    if after:
        staff.after = look
    else:
        staff.before = look
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",)] * 2
    assert not staff.events_of(events.SelfTriggered)


async def test_c6_own_status_causes_another_reconcile_if_a_task_has_looked_at_it_for_one(
    autojump_clock: MockClock,
) -> None:
    """The task serves several reconciles, and was not started by this one."""
    staff = Stating()
    asked, requests = trio.open_memory_channel[tuple[headway.Resource[Team], trio.Event]](0)

    async def serve() -> None:
        async for team, answered in requests:
            assert team.status is not None
            answered.set()

    async def look(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        answered = trio.Event()
        await asked.send((team, answered))
        await answered.wait()

    staff.before = look
    async with trio.open_nursery() as nursery, staff.open():
        nursery.start_soon(serve)
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        nursery.cancel_scope.cancel()
    assert staff.runs == [("ada",)] * 2


async def test_c6_own_status_causes_another_reconcile_if_a_task_of_another_has_looked_at_it_for_one(
    autojump_clock: MockClock,
) -> None:
    """The other reconcile goes on."""
    staff = Stating()
    asked, requests = trio.open_memory_channel[tuple[headway.Resource[Team], trio.Event]](0)
    nursery: trio.Nursery

    async def serve() -> None:
        async for team, answered in requests:
            assert team.status is not None
            answered.set()

    async def look(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        if team.name == "first":
            nursery.start_soon(serve)
            await trio.sleep(10)
            return
        answered = trio.Event()
        await asked.send((team, answered))
        await answered.wait()

    staff.before = look
    async with trio.open_nursery() as nursery, staff.open():
        await staff.write_team("first")
        await trio.sleep(1)
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        nursery.cancel_scope.cancel()
    assert staff.runs == [(), ("ada",), ("ada",)]


@pytest.mark.parametrize("indexed", [False, True])
async def test_c6_own_status_causes_another_reconcile_if_a_thread_has_looked_at_it_for_one(
    autojump_clock: MockClock, indexed: bool
) -> None:
    """A thread of Trio's has the context of its caller, and any other one has the resource that was read there."""
    staff = Stating()

    async def look(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
        if indexed:
            read = partial(copy_context().run, rt.cache.index, staff.by_status, True)
        else:
            read = partial(getattr, team, "status")
        thread = Thread(target=read)
        thread.start()
        thread.join()

    staff.before = look
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",)] * 2


async def test_c6_own_status_causes_another_reconcile_if_one_looks_at_what_an_earlier_one_has_kept(
    autojump_clock: MockClock,
) -> None:
    staff, kept = Stating(), list[headway.Resource[Team]]()

    async def look(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        kept.append(team.original())
        if team.data.members == ["bob"]:
            assert not kept[0].status

    staff.before = look
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        await staff.write_team("core", "bob")
        await staff.wait_idle()
    assert staff.runs == [("ada",), ("bob",), ("bob",)]


async def test_c6_looks_of_mappers_and_predicates_are_none_of_a_reconcile(autojump_clock: MockClock) -> None:
    """They see the change by its status while the reconcile goes on."""
    staff = Staff()
    runs, mapped = list[str](), list[int]()

    def look(team: headway.Resource[Team], _: object) -> list[headway.ResourceId]:
        mapped.append(len(team.status))
        return [team.id]

    def any_status(_: object, team: headway.Resource[Team] | None) -> bool:
        return team is None or team.status is not None

    @staff.app.controller(manages=staff.team, when=any_status, watches=[headway.watch(staff.team, look)])
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        runs.append(team.name)
        await rt.client.write_status(team, "teams", [headway.Condition("Known")])
        await trio.sleep(1)

    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert mapped[-1] == 1
    assert runs == ["core"]


async def test_c6_looks_of_the_functions_of_projections_are_none_of_a_reconcile(autojump_clock: MockClock) -> None:
    """They see its status in its own task."""
    staff = Stating()
    looked = list[int]()

    def members(team: headway.Resource[Team]) -> Team:
        looked.append(len(team.status))
        return team.data

    @staff.app.controller(manages=headway.projection(staff.team, Team, members))
    async def slim(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        """Do nothing."""

    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert max(looked) == 1
    assert staff.runs == [("ada",)]


async def test_c6_own_status_causes_another_reconcile_if_one_has_read_an_index_of_statuses(
    autojump_clock: MockClock,
) -> None:
    """The status may have moved the resource in the index."""
    staff = Stating()

    async def look(rt: headway.Runtime, _: headway.Resource[Team]) -> None:
        rt.cache.index(staff.by_status, True)

    staff.before = look
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",)] * 2


async def test_c6_own_status_causes_another_reconcile_if_a_projection_makes_its_payload_of_statuses(
    autojump_clock: MockClock,
) -> None:
    """The reconcile reads only the payload."""
    staff = Staff()
    seen = list[list[str]]()

    def writers(team: headway.Resource[Team]) -> Team:
        return Team(members=[*team.status])

    slim = headway.projection(staff.team, Team, writers, status=["teams"])

    @staff.app.controller(manages=slim, name="teams")
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.cache.get(slim, request.id)
        assert team is not None
        seen.append(team.data.members)
        whole = await rt.strong.read(staff.team, team.name)
        await rt.client.write_status(whole, "teams", [headway.Condition("Known")])

    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert seen == [[], ["teams"]]


async def test_c6_look_at_another_resource_is_none_at_the_own_status(autojump_clock: MockClock) -> None:
    staff = Stating()

    async def look(rt: headway.Runtime, _: headway.Resource[Team]) -> None:
        other = await rt.strong.get(staff.account, "core")
        assert other is not None
        assert not other.status
        assert rt.cache.get(staff.team, "nobody") is None

    staff.before = look
    async with staff.open():
        await staff.engine.client.create(staff.account.new("core", Account()))
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",)]


async def test_c6_reconcile_that_fails_after_its_status_is_repeated(autojump_clock: MockClock) -> None:
    staff = Stating()
    staff.failures = [LookupError("once")]
    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert staff.runs == [("ada",)] * 2


async def test_c6_own_status_of_one_controller_is_reconciled_by_another(autojump_clock: MockClock) -> None:
    staff = Stating()
    seen = list[int]()

    @staff.app.controller(manages=staff.team, name="watching")
    async def watching(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        seen.append(len(team.status))

    async with staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert seen[-1] == 1
    assert staff.runs == [("ada",)]


async def test_c6_own_status_is_mapped_to_the_keys_of_others(autojump_clock: MockClock) -> None:
    """The controller watches its own type. Its mapper returns the changed team and another one."""
    staff = Staff()
    runs = list[str]()

    def both(team: headway.Resource[Team], _: object) -> list[headway.ResourceId]:
        return [team.id, staff.team.id("other")]

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.team, both)])
    async def stating(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        runs.append(request.id.name)
        team = rt.resource(request)
        if team is not None:
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", True)

    async with staff.open():
        await staff.wait_idle()
        runs.clear()
        await staff.write_team("core", "ada")
        await staff.wait_idle()
    assert runs.count("core") == 1
    assert runs.count("other") >= 1


async def test_c6_status_that_a_reconcile_writes_for_another_key_is_reconciled(autojump_clock: MockClock) -> None:
    """Only the reconcile of that key would know what it means."""
    staff = Staff()
    runs = list[str]()

    @staff.app.controller(manages=staff.team)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        runs.append(request.id.name)
        other = rt.cache.get(staff.team, "other")
        if request.id.name == "core" and other is not None:
            await rt.client.write_status(other, "teams", [headway.Condition("Known")])

    async with staff.open():
        await staff.write_team("other")
        await staff.wait_idle()
        await staff.write_team("core")
        await staff.wait_idle()
    assert runs == ["other", "core", "other"]


async def test_c6_status_that_a_reconcile_writes_elsewhere_causes_another_one(autojump_clock: MockClock) -> None:
    """What it has computed may depend on the former status of that resource."""
    staff = Staff()
    runs = 0

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        team = rt.resource(request)
        assert team is not None
        runs += 1
        for account in rt.cache.owned(staff.account, team):
            await rt.client.write_status(account, "teams", [headway.Condition("Known")])

    async with staff.open():
        team = await staff.write_team("core", "ada")
        await staff.wait_idle()
        runs = 0
        await staff.engine.client.create(staff.account.new("ada", Account(), owner=team))
        await staff.wait_idle()
    assert runs == 2


async def test_c6_status_by_a_task_that_a_reconcile_has_left_behind_is_reconciled(autojump_clock: MockClock) -> None:
    """The task writes while its worker reconciles the resource anew, and is no part of that reconcile."""
    staff = Staff()
    runs = 0
    nursery: trio.Nursery

    @staff.app.controller(manages=staff.team, concurrency=1)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        team = rt.resource(request)
        assert team is not None
        runs += 1

        async def state() -> None:
            await trio.sleep(1)
            await rt.client.write_status(team, "teams", [headway.Condition("Known")])

        if runs == 1:
            nursery.start_soon(state)
        elif runs == 2:
            await trio.sleep(2)

    async with trio.open_nursery() as nursery, staff.open():
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        await staff.write_team("core", "bob")
        await trio.sleep(5)
        await staff.wait_idle()
    assert runs == 3
