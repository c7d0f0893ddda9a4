"""Blocks of a reconcile that are used without being open, and blocks that would undo each other."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import headway
from headway.errors import Closed, InvalidArgument
from tests.helpers.pools import Pool, Summary
from tests.helpers.resources import Team
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
