"""A controller whose functions a test calls one at a time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.errors import DeclarationError
from headway.testing import Fault, ScriptedChannel, one_shot, stored
from tests.helpers.one_shot_staff import Account, Staff, Team


async def test_reconcile_is_called_once_and_reports_its_writes(autojump_clock: MockClock) -> None:
    """Nothing is reconciled before it, and its writes are stored afterwards."""
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
        assert [each.what for each in again.written] == ["status"]  # this write changes nothing
        await shot.given(staff.team.new("core", Team(members=["grace"])))
        third = await shot.reconcile(team.id)
        assert [(each.what, each.id.name) for each in third.written] == [("delete", "ada"), ("status", "core")]
        assert staff.started == 1


async def test_requests_caused_by_a_change_are_reported(autojump_clock: MockClock) -> None:
    """Each request has its reason. Resources that existed before the test cause no requests."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        [core] = await shot.given(staff.team.new("core", Team()))
        [request] = await shot.requests()
        assert (request.id.name, request.reasons[0].what) == ("core", "changed")
        assert await shot.requests() == []
        await shot.given(staff.account.new("ada", Account(login="ada"), owner=core))
        [request] = await shot.requests()
        assert (request.id.name, request.reasons[0].type) == ("core", staff.account.name)


async def test_missing_resource_may_be_reconciled(autojump_clock: MockClock) -> None:
    """A reconcile sees no resource after a deletion."""
    staff = Staff()
    async with one_shot(staff.app, "accounts") as shot:
        assert await shot.reconcile("nobody") == headway.testing.Shot(None, ())


async def test_reconcile_sees_no_more_than_in_production(autojump_clock: MockClock) -> None:
    """A write whose answer is lost is not in the cache before it is resolved."""
    staff, script = Staff(), ScriptedChannel()
    async with one_shot(staff.app, "accounts", wrap_channel=script.over) as shot:
        await shot.given(staff.team.new("core", Team(members=["ada"])))
        script.hold(staff.account)
        script.writes(Fault.LOST)
        with pytest.raises(headway.errors.OutcomeUnknown):
            await shot.reconcile("core")
        assert shot.runtime.cache.list(staff.account) == []
        script.release(staff.account)
        done = await shot.reconcile("core")
        assert [each.what for each in done.written] == ["status"]


async def test_mapper_can_be_called_directly(autojump_clock: MockClock) -> None:
    """The call maps both states and returns each id once. The resources need not be stored."""
    staff = Staff()
    one, two = stored(staff.team.new("one", Team())), stored(staff.team.new("two", Team()))
    old = stored(staff.account.new("ada", Account(), owner=one.id), version=3)
    new = stored(staff.account.new("ada", Account(), owner=two.id), version=4)
    async with one_shot(staff.app, "accounts") as shot:
        assert [id.name for id in await shot.mapped(staff.account, old=old, new=new)] == ["one", "two"]
        assert [id.name for id in await shot.mapped(staff.account, old=old, new=old)] == ["one"]
        with pytest.raises(DeclarationError, match=r"doesn't watch staff\.v1\.Team"):
            await shot.mapped(staff.team, new=one)


async def test_reconcile_of_a_shard_has_its_fence(autojump_clock: MockClock) -> None:
    """The reconcile has the fence and the term of the key's shard, as in a worker."""
    app = headway.App("spread")
    team = app.type("spread", "v1", "Team", Team)
    terms: list[int] = []
    runtimes: list[headway.Runtime] = []

    @app.controller(manages=team, placement=headway.sharded(shards=4))
    async def spread(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        terms.append(rt.term)
        runtimes.append(rt)
        if found is not None:
            await rt.client.write_status(found, "spread", [headway.Condition("Ready", headway.ConditionState.TRUE)])

    async with one_shot(app, "spread") as shot:
        await shot.given(*(team.new(f"t{number}", Team()) for number in range(9)))
        fences = {written.request.fence.member for n in range(9) for written in (await shot.reconcile(f"t{n}")).written}
        assert fences <= {f"{number}/4" for number in range(4)}
        assert len(fences) > 1
        [written] = (await shot.reconcile("t1")).written
        assert written.request.fence.term == terms[-1] > 0
        # Each shard has its own runtime and term.
        assert shot.runtime not in runtimes


async def test_writes_of_a_directly_called_reconcile_are_its_own(autojump_clock: MockClock) -> None:
    """Its own writes cause no reconcile, as in production."""
    app = headway.App("own")
    team = app.type("own", "v1", "Team", Team)

    @app.controller(manages=team, when=headway.predicates.not_own_writes())
    async def own(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None:
            await rt.client.write_status(found, "own", [headway.Condition("Ready", headway.ConditionState.TRUE)])

    async with one_shot(app, "own") as shot:
        [core] = await shot.given(team.new("core", Team()))
        await shot.requests()
        assert [each.what for each in (await shot.reconcile(core)).written] == ["status"]
        assert await shot.requests() == []


async def test_reconcile_waits_for_stored_changes(autojump_clock: MockClock) -> None:
    """Any writer's change counts. A mapper that is called directly waits, too."""
    staff, script = Staff(), ScriptedChannel()
    async with one_shot(staff.app, "accounts", wrap_channel=script.over) as shot, trio.open_nursery() as nursery:
        for wait in (lambda: shot.reconcile("core"), lambda: shot.mapped(staff.account)):
            script.hold(staff.team)
            await shot.client.apply(staff.team.new("core", Team(members=[f"m{trio.current_time():.0f}"])))
            ended = trio.Event()

            async def waits(wait: Any = wait, ended: trio.Event = ended) -> None:
                await wait()
                ended.set()

            nursery.start_soon(waits)
            await trio.sleep(5)
            assert not ended.is_set()
            script.release(staff.team)
            await ended.wait()
        await shot.reconcile("core")
        assert len(await shot.client.list(staff.account)) == 1


async def test_timer_can_be_called_directly(autojump_clock: MockClock) -> None:
    """The call returns the time of the next one."""
    app = headway.App("timed")
    team = app.type("timed", "v1", "Team", Team)
    called: list[str] = []

    @app.timer(team, every=60, jitter=0)
    async def tick(_: headway.Runtime, found: headway.Resource[Team]) -> None:
        called.append(found.name)

    async with one_shot(app, "tick") as shot:
        await shot.given(team.new("core", Team()))
        assert (await shot.reconcile("core")).requeue_after is not None
        await trio.sleep(61)
        assert (await shot.reconcile("core")).requeue_after == pytest.approx(60, abs=2)
        assert set(called) == {"core"}
