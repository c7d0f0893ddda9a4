"""Blocks of a reconcile that are used without being open, and blocks that would undo each other."""

from __future__ import annotations

from typing import Any, cast

import pytest
from trio.testing import MockClock

import headway
from headway.errors import Closed, InvalidArgument
from tests.helpers.pools import Pool, Summary
from tests.helpers.resources import Account, Team
from tests.helpers.rig import Rig
from tests.helpers.staff import Staff
from tests.reconcile.test_outputs import _errors, _run


async def test_outputs_without_an_open_block_are_refused(autojump_clock: MockClock) -> None:
    """Without the block nothing would be pruned, and after it the new output would be pruned next time."""
    rig, said = Rig(autojump_clock), list[str]()

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        wanted = rt.outputs(rig.pools.summary, owner=pool)
        for _ in range(2):
            with pytest.raises(Closed) as caught:
                await wanted.apply("a", Summary())
            said.append(str(caught.value))
            with pytest.raises(Closed) as caught:
                wanted.keep(rig.pools.summary.new("a"))
            said.append(str(caught.value))
            if len(said) == 2:
                async with wanted:
                    pass

    await _run(rig, body)

    assert _errors(rig) == []
    right = "call it inside `async with rt.outputs(TYPE, owner=resource) as wanted:`"
    assert said == [
        f"apply(): the block is not open: {right}",
        f"keep(): the block is not open: {right}",
        f"apply(): the block has ended: {right}",
        f"keep(): the block has ended: {right}",
    ]
    assert rig.store.resources(rig.pools.summary) == {}


@pytest.mark.filterwarnings("ignore:coroutine 'Outputs._apply' was never awaited")
async def test_block_with_an_apply_that_was_not_awaited_prunes_nothing(autojump_clock: MockClock) -> None:
    """It would delete the resource that the call is about. A call that has raised has ended."""
    rig, said = Rig(autojump_clock), set[str]()

    async def forget(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            await wanted.apply("b", Summary())
            wanted.apply("a", Summary())  # type: ignore[unused-coroutine]  # the mistake

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        await rt.client.apply(rig.pools.summary.new("a", owner=pool))
        with pytest.raises(InvalidArgument) as caught:
            await forget(rt, pool)
        said.add(str(caught.value).partition(" of the block")[0])

    await _run(rig, body)

    assert _errors(rig) == []
    assert said == {"apply('a')"}
    assert sorted(rig.store.resources(rig.pools.summary)) == ["a", "b"]


async def test_second_block_of_one_type_and_owner_is_refused_in_a_reconcile(autojump_clock: MockClock) -> None:
    """The blocks would delete each other's resources for ever. A block that has raised is tried again."""
    rig, said = Rig(autojump_clock), list[str]()

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        with pytest.raises(LookupError):
            async with rt.outputs(rig.pools.summary, owner=pool):
                raise LookupError
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            await wanted.apply("first", Summary())
            with pytest.raises(InvalidArgument):
                await rt.outputs(rig.pools.summary, owner=pool).__aenter__()
        with pytest.raises(InvalidArgument) as caught:
            async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
                await wanted.apply("second", Summary())
        said.append(str(caught.value))

    await _run(rig, body)

    assert _errors(rig) == []
    assert list(rig.store.resources(rig.pools.summary)) == ["first"]
    assert "second block of outputs(" in said[0]
    assert "Apply all resources of this type in one block" in said[0]


async def test_each_reconcile_may_open_its_block_of_outputs(autojump_clock: MockClock) -> None:
    """A worker keeps nothing of one reconcile for the next, of the same key or another."""
    staff, badge = Staff(), list[str]()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.outputs(staff.account, owner=team) as wanted:
            await wanted.apply(team.name, Account(login=team.name))
        badge.append(team.name)

    async with staff.open() as engine:
        for _ in range(2):
            await staff.write_team("core", str(len(badge)))
            await staff.write_team("web", str(len(badge)))
            await staff.wait_idle()
        assert {each.name for each in await engine.client.list(staff.account)} == {"core", "web"}
    assert len(badge) >= 4
    assert not staff.errors()


async def test_output_that_one_block_applies_with_two_contents_is_refused(autojump_clock: MockClock) -> None:
    """Each reconcile would store both in turn and so cause the next one. Equal contents do no harm."""
    rig, said = Rig(autojump_clock), list[str]()

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            returned = await wanted.apply("a", Summary(members=["ada"]), metadata={"x": "1", "y": "2"})
            before = rig.store.position.revision
            returned.data.members.append("changed by the reconciler")
            await wanted.apply("a", Summary(members=["ada"]), metadata={"y": "2", "x": "1"})
            for members, metadata in ((["grace"], {"x": "1", "y": "2"}), (["ada"], {"x": "1"}), (["ada"], None)):
                with pytest.raises(InvalidArgument) as caught:
                    await wanted.apply("a", Summary(members=members), metadata=metadata)
                said.append(str(caught.value))
            assert rig.store.position.revision == before
            await wanted.apply("b", Summary(members=["grace"]))

    await _run(rig, body)

    assert _errors(rig) == []
    assert said
    assert len(said) % 3 == 0
    assert {text.partition(", with other contents: ")[0] for text in said} == {
        "second apply() of Summary a in one block of outputs()"
    }
    assert {name: each.data.members for name, each in rig.store.resources(rig.pools.summary).items()} == {
        "a": ["ada"],
        "b": ["grace"],
    }


async def test_output_whose_apply_has_failed_may_be_applied_otherwise(autojump_clock: MockClock) -> None:
    """Here the store refuses both, because the name is another owner's. Neither is a second apply."""
    rig, said = Rig(autojump_clock), list[str]()

    async def prepare(engine: headway.Engine) -> None:
        another = await engine.client.apply(rig.pools.pool.new("b"))
        await engine.client.apply(rig.pools.summary.new("taken", owner=another))

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            for members in (["ada"], ["grace"]):
                with pytest.raises(InvalidArgument) as caught:
                    await wanted.apply("taken", Summary(members=members))
                said.append(str(caught.value))

    await _run(rig, body, prepare)

    assert _errors(rig) == []
    assert len(said) == 2
    assert all("owner" in text and "second apply()" not in text for text in said)


async def test_kept_output_must_be_a_resource(autojump_clock: MockClock) -> None:
    rig, said = Rig(autojump_clock), list[str]()

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        async with rt.outputs(rig.pools.summary, owner=pool) as wanted:
            with pytest.raises(InvalidArgument) as caught:
                cast("Any", wanted).keep("ada")
            said.append(str(caught.value))

    await _run(rig, body)
    assert said == ["keep() expects a resource, as rt.cache.get(...) returns it, not 'ada'"]


async def test_conditions_outside_of_their_block_are_refused(autojump_clock: MockClock) -> None:
    """They would not be written."""
    staff, said = Staff(), list[str]()

    @staff.app.controller(manages=staff.team)
    async def say(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        conditions = rt.conditions(team)
        with pytest.raises(Closed) as caught:
            conditions.set("Ready", True)
        said.append(str(caught.value))
        with pytest.raises(Closed) as caught:
            conditions.unset("Ready")
        said.append(str(caught.value))
        async with conditions:
            pass
        with pytest.raises(Closed) as caught:
            conditions.set("Ready", True)
        said.append(str(caught.value))

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    right = "call it inside `async with rt.conditions(resource) as conditions:`"
    assert said == [
        f"set(): the block is not open: {right}",
        f"unset(): the block is not open: {right}",
        f"set(): the block has ended: {right}",
    ]


async def test_block_that_is_opened_in_another_way_says_what_to_write(autojump_clock: MockClock) -> None:
    """Python's own error for ``with`` names a protocol, and that for ``await`` names an object."""
    rig, said = Rig(autojump_clock), list[str]()

    async def body(rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        blocks: list[Any] = [
            rt.outputs(rig.pools.summary, owner=pool),
            rt.conditions(pool),
            rt.finalizer(pool),
            rt.client.watch(rig.pools.pool),
        ]
        for block in blocks:
            with pytest.raises(InvalidArgument, match="`with` cannot open an async block") as caught, block:
                pass
            said.append(str(caught.value).partition(": ")[2])
            with pytest.raises(InvalidArgument, match="`await` cannot open an async block"):
                await block

    await _run(rig, body)
    assert _errors(rig) == []
    assert said == [
        "write `async with rt.outputs(TYPE, owner=resource) as wanted:`",
        "write `async with rt.conditions(resource) as conditions:`",
        "write `async with rt.finalizer(resource) as guarded:`",
        "write `async with client.watch(TEAM) as events:`",
    ]
