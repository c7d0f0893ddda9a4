"""Fair shares of a bounded list."""

from __future__ import annotations

from itertools import islice

import trio
from trio.testing import wait_all_tasks_blocked

from headway.base import CALLER, CallerTurns, by_turns, give_way, in_turn


def test_long_group_takes_no_place_of_a_short_one() -> None:
    """The order within each group stays, and nothing is lost."""
    assert "".join(in_turn(["abcd", "", "x", "12"])) == "ax1b2cd"
    items = ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]
    assert list(islice(by_turns(items, lambda each: each[0]), 5)) == ["a1", "b1", "c1", "a2", "b2"]
    assert sorted(by_turns(items, lambda each: each[0])) == sorted(items)
    assert list(in_turn([])) == []


async def take(turns: CallerTurns, caller: str, order: list[str]) -> None:
    CALLER.set(caller)
    async with turns:
        order.append(caller)
        await trio.lowlevel.checkpoint()


async def test_callers_enter_a_block_in_turns() -> None:
    turns, order = CallerTurns(1), list[str]()
    async with trio.open_nursery() as nursery, turns:
        for caller in "aaaaabbc":
            nursery.start_soon(take, turns, caller, order)
            await wait_all_tasks_blocked()
        assert order == []
    assert "".join(order) == "abcabaaa"


async def test_as_many_tasks_as_allowed_are_in_a_block_at_once() -> None:
    turns, inside = CallerTurns(3), 0

    async def one() -> None:
        nonlocal inside
        async with turns:
            inside += 1
            assert inside <= 3
            reached.add(inside)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            inside -= 1

    reached = set[int]()
    async with trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(one)
    assert reached == {1, 2, 3}


async def test_task_that_gives_up_its_turn_leaves_the_others_theirs() -> None:
    """It waits, or has just been woken, or is in the block."""
    for left in range(4):
        turns, order = CallerTurns(1), list[str]()
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(4)]

            async def one(scope: trio.CancelScope, caller: str, turns: CallerTurns, order: list[str]) -> None:
                with scope:
                    await take(turns, caller, order)

            async with turns:
                for scope, caller in zip(scopes, "abac", strict=True):
                    nursery.start_soon(one, scope, caller, turns, order)
                    await wait_all_tasks_blocked()
                if left:
                    scopes[left].cancel()
            if not left:
                scopes[0].cancel()
        assert "".join(order) == ("abca", "aca", "abc", "aba")[left]
        assert (turns._free, turns._waiting) == (1, {})


async def test_long_work_of_a_caller_waits_for_one_slice_of_each_other() -> None:
    """However many tasks of another caller compute."""
    slices = {"many": 0, "few": 0}
    between: list[int] = []

    async def compute(caller: str) -> None:
        CALLER.set(caller)
        while True:
            await give_way()
            slices[caller] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(compute, "many")
        while slices["many"] < 50:
            await trio.lowlevel.checkpoint()
        CALLER.set("few")
        for _ in range(20):
            before = slices["many"]
            await give_way()
            between.append(slices["many"] - before)
        nursery.cancel_scope.cancel()
    assert max(between) <= 3
    assert sum(between) > 10
