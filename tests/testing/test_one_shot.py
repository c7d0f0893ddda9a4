"""A controller of which a test calls one thing at a time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import DeclarationError, field
from headway.testing import Fault, ScriptedChannel, one_shot, stored


@headway.message
class Team:
    """Who is in it."""

    members: list[str] = field(1)


@headway.message
class Account:
    """Whose it is."""

    login: str = field(1)


class Staff:
    """An app with one account for each member of a team, and a controller that must not run."""

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team = team = self.app.type("staff", "v1", "Team", Team)
        self.account = account = self.app.type("staff", "v1", "Account", Account)
        self.started = 0

        async def started(rt: headway.Runtime) -> None:
            assert rt.cache.list(team) is not None
            self.started += 1

        @self.app.controller(
            manages=team, watches={account: headway.map_owner()}, on_start=started, deadline=30, concurrency=3
        )
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            found = rt.resource(request)
            if found is None:
                return None
            async with rt.outputs(account, owner=found) as wanted:
                for login in found.data.members:
                    if login == "nobody":
                        raise LookupError(login)
                    if login == "sleepy":
                        await trio.sleep_forever()
                    await wanted.apply(login, Account(login=login))
            ready = headway.Condition("Ready", headway.ConditionState.TRUE)
            await rt.client.write_status(found, "accounts", [ready])
            assert len(rt.cache.list(account)) == len(found.data.members)
            return headway.requeue_after(60) if found.data.members else None

        @self.app.controller(manages=account)
        async def other(_: headway.Runtime, __: headway.Request[Account]) -> None:
            raise AssertionError("another controller ran")


async def test_a_reconcile_is_called_once_and_tells_what_it_did(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """Nothing is reconciled before, and what it wrote is there afterwards."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        [team] = await shot.given(staff.team.new("core", Team(members=["ada", "grace"])))
        assert await shot.client.list(staff.account) == []
        done = await shot.reconcile("core")
        assert done.requeue_after == 60
        assert [(each.what, each.id.name, each.refused) for each in done.written] == [
            ("write", "ada", None),
            ("write", "grace", None),
            ("status", "core", None),
        ]
        assert done.written[0].request.fence.controller == "staff/accounts"
        assert done.written[2].id.uid == team.uid
        assert [each.name for each in await shot.client.list(staff.account)] == ["ada", "grace"]

        again = await shot.reconcile("core")
        assert [each.what for each in again.written] == ["status"]  # which changes nothing
        await shot.given(staff.team.new("core", Team(members=["grace"])))
        third = await shot.reconcile(team.id)
        assert [(each.what, each.id.name) for each in third.written] == [("delete", "ada"), ("status", "core")]
        assert staff.started == 1


async def test_what_a_change_would_make_it_reconcile_is_told(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """With why; what was there before the test is no change."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        [core] = await shot.given(staff.team.new("core", Team()))
        [request] = await shot.requests()
        assert (request.id.name, request.reasons[0].what) == ("core", "changed")
        assert await shot.requests() == []
        await shot.given(staff.account.new("ada", Account(login="ada"), owner=core))
        [request] = await shot.requests()
        assert (request.id.name, request.reasons[0].type) == ("core", staff.account.name)


async def test_a_resource_that_is_not_there_may_be_reconciled(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """As after a deletion."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        assert await shot.reconcile("nobody") == headway.testing.Shot(None, ())


async def test_what_a_reconcile_raises_comes_out(autojump_clock: MockClock) -> None:
    """Its own error, a deadline, and a result that is none."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        await shot.given(staff.team.new("a", Team(members=["nobody"])), staff.team.new("b", Team(members=["sleepy"])))
        with pytest.raises(LookupError, match="nobody"):
            await shot.reconcile("a")
        before = autojump_clock.current_time()
        with pytest.raises(trio.TooSlowError):
            await shot.reconcile("b")
        assert autojump_clock.current_time() - before == pytest.approx(30, abs=1)


async def test_a_refused_write_is_recorded(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """By a channel of the test's own, between the controller and the store."""
    staff, script = Staff(), ScriptedChannel()
    async with one_shot(staff.app, "accounts", through=script.over) as shot:
        await shot.given(staff.team.new("core", Team(members=["ada"])))
        script.writes(Fault.CONFLICT)
        with pytest.raises(headway.Conflict):
            await shot.reconcile("core")
        script.writes(Fault.NONE, Fault.FAILED)
        with pytest.raises(headway.HeadwayError):
            await shot.reconcile("core")
        assert [each.name for each in await shot.client.list(staff.account)] == ["ada"]


async def test_no_more_is_seen_than_in_production(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A write whose answer is lost isn't in the cache before it has been settled."""
    staff, script = Staff(), ScriptedChannel()
    async with one_shot(staff.app, "accounts", through=script.over) as shot:
        await shot.given(staff.team.new("core", Team(members=["ada"])))
        script.hold(staff.account)
        script.writes(Fault.LOST)
        with pytest.raises(headway.OutcomeUnknown):
            await shot.reconcile("core")
        assert shot.runtime.cache.list(staff.account) == []
        script.release(staff.account)
        done = await shot.reconcile("core")
        assert [each.what for each in done.written] == ["status"]


async def test_a_mapper_is_asked_by_hand(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """For both states, each id once; with resources that no store has ever had."""
    staff = Staff()
    one, two = stored(staff.team.new("one", Team())), stored(staff.team.new("two", Team()))
    old = stored(staff.account.new("ada", Account(), owner=one.id), version=3)
    new = stored(staff.account.new("ada", Account(), owner=two.id), version=4)
    async with one_shot(staff.app, "accounts") as shot:
        assert [id.name for id in await shot.mapped(staff.account, old=old, new=new)] == ["one", "two"]
        assert [id.name for id in await shot.mapped(staff.account, old=old, new=old)] == ["one"]
        with pytest.raises(DeclarationError, match=r"doesn't watch staff\.v1\.Team"):
            await shot.mapped(staff.team, new=one)


async def test_a_controller_that_is_not_there_is_named() -> None:
    """With what was perhaps meant."""
    with pytest.raises(DeclarationError, match="has no controller 'acounts'; did you mean 'accounts'"):
        async with one_shot(Staff().app, "acounts"):
            pass


async def test_a_result_that_is_none_is_named(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """As in production it would be."""
    app = headway.App("odd")
    team = app.type("odd", "v1", "Team", Team)

    @app.controller(manages=team)
    async def odd(_: headway.Runtime, __: headway.Request[Team]) -> Any:
        return 7

    async with one_shot(app, "odd") as shot:
        with pytest.raises(headway.NonsenseResult, match="odd returned 7"):
            await shot.reconcile("x")


def test_a_stored_resource_looks_like_one() -> None:
    """With a uid, a version, a generation, and what else is asked for."""
    type = Staff().team
    ready = headway.Condition("Ready", headway.ConditionState.TRUE)
    made = stored(type.new("core", Team(members=["ada"])), version=7, conditions={"accounts": [ready]}, deleting=True)
    assert (made.uid, made.version, made.data.members) == ("uid-of-core", "7", ["ada"])
    assert made.is_deleting
    assert made.status["accounts"].observed_generation == made.generation
    assert headway.client.has_condition(made, "Ready", headway.ConditionState.TRUE, "accounts")
    assert not headway.client.has_condition(made, "Ready", headway.ConditionState.TRUE, "others")
    assert stored(made, version=8).generation != made.generation


async def test_a_mapper_that_changes_what_it_reads_is_found(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """Where it is asked by the test, and where a change has asked it."""
    staff = Staff()

    def changes(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        account.data.login = "mine"
        return []

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, changes)], name="changing")
    async def changing(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Nothing to do."""

    async def ask() -> None:
        async with one_shot(staff.app, "changing") as shot:
            await shot.mapped(staff.account, new=staff.account.new("ada", Account(login="ada")))

    async def change() -> None:
        async with one_shot(staff.app, "changing") as shot:
            await shot.client.write(staff.account.new("ada", Account(login="ada")))
            await shot.requests()

    for way in (ask, change):
        with trio.move_on_after(10), pytest.raises(headway.IsolationBroken, match="changes has changed what it was"):
            await way()
