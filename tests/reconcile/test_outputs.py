"""Outputs: the applied resources exist after a reconcile, and the ones no longer applied are deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import AlreadyExists, Conflict, InvalidArgument
from headway.events import Reconciled
from tests.helpers.pools import Member, Pool, Summary
from tests.helpers.resources import Account, Team
from tests.helpers.rig import Rig
from tests.helpers.staff import Staff

Body = Callable[[headway.Runtime, headway.Resource[Pool]], Awaitable[None]]


async def _run(rig: Rig, body: Body, prepare: Callable[[headway.Engine], Awaitable[object]] | None = None) -> None:
    """Run ``prepare`` and then reconcile pool a with ``body``. Errors are in the rig's reports."""

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
        pool = rt.cache.get(rig.pools.pool, request.id)
        if pool is not None and pool.data.note == "go":
            await body(rt, pool)

    rig.pools.replace(reconcile)
    async with headway.open_engine(rig.store, rig.pools.app, report=rig.witness.events.append) as engine:
        await engine.client.apply(rig.pools.pool.new("a"))
        if prepare is not None:
            await prepare(engine)
        await engine.wait_idle()
        await engine.client.apply(rig.pools.pool.new("a", Pool(note="go")))
        await trio.sleep(0.005)


def _errors(rig: Rig) -> list[type[BaseException]]:
    return [type(event.error) for event in rig.witness.events_of(Reconciled) if event.error is not None]


async def _summary(engine: headway.Engine, rig: Rig, name: str, owner: str = "a") -> None:
    there = await engine.client.read(rig.pools.pool, owner)
    await engine.client.apply(rig.pools.summary.new(name, Summary(members=["old"]), owner=there))


async def test_output_that_is_not_applied_is_pruned(autojump_clock: MockClock) -> None:
    """Owned resources that the block neither applied nor kept are deleted; others' resources stay."""
    rig = Rig(autojump_clock)

    async def prepare(engine: headway.Engine) -> None:
        await engine.client.apply(rig.pools.pool.new("b"))
        for name in ("applied", "kept", "pruned"):
            await _summary(engine, rig, name)
        await _summary(engine, rig, "of-b", owner="b")
        await engine.client.apply(rig.pools.summary.new("of-nobody"))

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        kept = rt.cache.get(rig.pools.summary, "kept")
        assert kept is not None
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            await wanted.apply("applied", Summary(members=["new"]))
            await wanted.apply("made", Summary(members=["new"]))
            wanted.keep(kept)

    await _run(rig, body, prepare)

    there = {name: summary.data.members for name, summary in rig.store.resources(rig.pools.summary).items()}
    assert there == {"applied": ["new"], "made": ["new"], "kept": ["old"], "of-b": ["old"], "of-nobody": []}
    made = rig.store.resources(rig.pools.summary)["made"]
    assert made.owner == rig.store.resources(rig.pools.pool)["a"].id


async def test_unchanged_output_is_not_written(autojump_clock: MockClock) -> None:
    """The order of the metadata doesn't matter."""
    rig = Rig(autojump_clock)
    commits: list[int] = []

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            for metadata in ({"x": "1", "y": "2"}, {"y": "2", "x": "1"}):
                await wanted.apply("a", Summary(members=["m"]), metadata=metadata)
                commits.append(rig.store.position.revision)

    await _run(rig, body)

    assert len(set(commits)) == 1


async def test_output_that_changes_before_its_apply_is_awaited_is_applied(autojump_clock: MockClock) -> None:
    """The decision that nothing has to be written holds only for the state that it was made for."""
    rig = Rig(autojump_clock)

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            early = wanted.apply("s", Summary(members=["old"]))
            stored = rt.cache.get(rig.pools.summary, "s")
            assert stored is not None
            stored.data = Summary(members=["another"])
            await rt.client.write(stored)
            await early

    async def prepare(engine: headway.Engine) -> None:
        await _summary(engine, rig, "s")

    await _run(rig, body, prepare)
    assert _errors(rig) == []
    assert rig.store.resources(rig.pools.summary)["s"].data.members == ["old"]


async def test_outputs_are_not_pruned_if_the_block_raises(autojump_clock: MockClock) -> None:
    """An incomplete block hasn't stated all that it wants."""
    rig = Rig(autojump_clock)

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool):
            raise LookupError

    await _run(rig, body, lambda engine: _summary(engine, rig, "stays"))

    assert list(rig.store.resources(rig.pools.summary)) == ["stays"]
    assert _errors(rig)[0] is LookupError


async def test_output_that_has_changed_since_it_was_read_is_not_pruned(autojump_clock: MockClock) -> None:
    """Pruning is by uid and version: the change causes a Conflict, and the output stays."""
    rig = Rig(autojump_clock)

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        there = rig.store.resources(rig.pools.summary)["busy"]
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            if _errors(rig):
                wanted.keep(there)
            else:
                there.data = Summary(members=["more"])
                await client[0].write(there)

    client: list[headway.Client] = []

    async def prepare(engine: headway.Engine) -> None:
        client.append(engine.client)
        await _summary(engine, rig, "busy")

    await _run(rig, body, prepare)

    assert "busy" in rig.store.resources(rig.pools.summary)
    assert _errors(rig) == [Conflict]


async def test_apply_over_a_newer_state_is_a_conflict(autojump_clock: MockClock) -> None:
    """A change since the cache's state is not overwritten unseen."""
    rig = Rig(autojump_clock)
    client: list[headway.Client] = []

    async def prepare(engine: headway.Engine) -> None:
        client.append(engine.client)
        await _summary(engine, rig, "a")

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        if not _errors(rig):
            there = await client[0].read(rig.pools.summary, "a")
            there.data = Summary(members=["theirs"])
            await client[0].write(there)
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            await wanted.apply("a", Summary(members=["ours"]))

    await _run(rig, body, prepare)

    assert _errors(rig) == [Conflict]


async def test_resource_of_another_owner_is_not_taken_over(autojump_clock: MockClock) -> None:
    """Applying its name is refused, and the resource stays as it is."""
    rig = Rig(autojump_clock)

    async def prepare(engine: headway.Engine) -> None:
        await engine.client.apply(rig.pools.pool.new("b"))
        await _summary(engine, rig, "taken", owner="b")

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            await wanted.apply("taken", Summary(members=["ours"]))

    await _run(rig, body, prepare)

    assert rig.store.resources(rig.pools.summary)["taken"].data.members == ["old"]
    assert _errors(rig)[0] is InvalidArgument


async def test_owner_made_again_takes_its_name_back_when_the_old_output_is_gone(autojump_clock: MockClock) -> None:
    """For a moment, the name belongs to what the deleted owner owned. The key is tried again until it doesn't."""
    staff = Staff()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None:
            async with rt.outputs(staff.account, owner=team) as wanted:
                await wanted.apply("ada", Account(login=team.uid))

    async with staff.open() as engine:
        client = engine.client
        first = await staff.write_team("core")
        await staff.wait_idle()
        await client.delete(first)
        second = await staff.write_team("core")
        left = await client.read(staff.account, "ada")
        assert left.owner is not None
        assert left.owner.uid == first.uid != second.uid
        with pytest.raises(AlreadyExists):
            await client.create(staff.account.new("ada"))
        await staff.wait_idle()
        made = await client.read(staff.account, "ada")
        assert (made.data.login, made.owner) == (second.uid, second.id)
    assert {each.split("(")[0] for each in staff.errors()} == {"InvalidArgument"}


async def test_output_marked_for_deletion_is_left_to_its_finalizers(autojump_clock: MockClock) -> None:
    """Pruning marks an output that a finalizer holds once."""
    rig = Rig(autojump_clock)
    commits: list[int] = []

    async def prepare(engine: headway.Engine) -> None:
        there = await engine.client.read(rig.pools.pool, "a")
        held = rig.pools.summary.new("held", owner=there, metadata={"finalizers": "other"})
        await engine.client.apply(held)

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        for _ in range(2):
            async with rt.outputs(rig.pools.summary, owner=pool):
                pass
            commits.append(rig.store.position.revision)

    await _run(rig, body, prepare)

    assert rig.store.resources(rig.pools.summary)["held"].is_deleting
    assert len(set(commits)) == 1


async def test_outputs_need_a_watched_type(autojump_clock: MockClock) -> None:
    """Without a watch the controller couldn't know what to prune. The error says what to add."""
    rig = Rig(autojump_clock)
    raised: list[str] = []

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        with pytest.raises(headway.errors.NotWatched) as caught:
            rt.outputs(rig.pools.pool, owner=pool)
        raised.append(str(caught.value))

    await _run(rig, body, lambda engine: engine.client.apply(rig.pools.member.new("m", Member())))

    assert "add it to `watches`" in raised[0]


async def test_outputs_default_to_the_tenancy_of_the_owner(autojump_clock: MockClock) -> None:
    """They may name another one; outputs in any tenancy are pruned."""
    staff = Staff()
    node = staff.app.type("staff", "v1", "Node", Account, scope=headway.Scope.CLUSTER)
    refused: list[str] = []

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(each, headway.mappers.owner()) for each in (staff.account, node)]
    )
    async def spread(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.outputs(staff.account, owner=team) as accounts, rt.outputs(node, owner=team) as nodes:
            await accounts.apply("beside", Account())
            for namespace in team.data.members:
                await accounts.apply("far", Account(), namespace=namespace)
            await nodes.apply("node", Account())
            with pytest.raises(InvalidArgument, match="cluster-scoped") as caught:
                await nodes.apply("node", Account(), namespace="x")
            refused.append(str(caught.value))

    async with staff.open() as engine:
        await engine.client.write(headway.NAMESPACE.new("apart"))
        for members in (["apart", "default"], ["default"]):
            await engine.client.apply(staff.team.new("core", Team(members=members), namespace="apart"))
            await staff.wait_idle()
            there = {(each.id.namespace, each.name) for each in await engine.client.list(staff.account)}
            assert there == {("apart", "beside"), *((namespace, "far") for namespace in members)}
        assert [each.id.key for each in await engine.client.list(node)] == [("", "", "node")]
    assert refused
    assert not staff.errors()


async def test_outputs_with_defaults_from_a_mutate_hook_become_idle(autojump_clock: MockClock) -> None:
    """The hook's additions are not a difference: one write, and no further one in the reconcile that it triggers."""
    staff = Staff()

    def fill_in(resource: headway.Resource[Account]) -> None:
        resource.data.login = resource.data.login or resource.name
        resource.metadata.setdefault("made-by", "hook")

    badge = staff.app.type("staff", "v1", "Badge", Account, hooks=headway.Hooks(mutate=fill_in))

    @staff.app.controller(manages=staff.team, watches=[headway.watch(badge, headway.mappers.owner())])
    async def badges(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.outputs(badge, owner=team) as wanted:
            for name in team.data.members:
                await wanted.apply(name, Account())

    async with staff.open() as engine:
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        first = await engine.client.read(badge, "ada")
        assert (first.data.login, first.metadata) == ("ada", {"made-by": "hook"})
        await staff.write_team("core", "ada", "grace")
        await staff.wait_idle()
        assert (await engine.client.read(badge, "ada")).version == first.version
    assert not staff.events_of(events.SelfTriggered)
    assert not staff.errors()
