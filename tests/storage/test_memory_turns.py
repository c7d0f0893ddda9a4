"""The store in memory makes several commits of a writer alone before it lets other tasks run."""

from __future__ import annotations

import itertools

import pytest
import trio

from headway.storage import MemoryBackend, Put, VersionConflict
from headway.storage._memory import IN_A_ROW
from tests.helpers.resources import ACCOUNT, key, stored


def creation(name: str) -> Put:
    return Put(ACCOUNT.kind, key(name), stored(name, 1), "")


async def test_other_tasks_run_after_eight_commits() -> None:
    """A task that commits all the time makes the others wait for eight commits."""
    backend, seen = MemoryBackend(), set[int]()

    async def look() -> None:
        while True:
            seen.add(backend.position.revision)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        for number in range(4 * IN_A_ROW):
            await backend.commit([creation(f"a{number}")])
        nursery.cancel_scope.cancel()
    looks = sorted(seen | {4 * IN_A_ROW})
    # The other task runs before an eighth commit is made. Trio may run the tasks of a turn in any order.
    assert all((look + 1) % IN_A_ROW == 0 for look in looks[:-1] if look)
    assert all(later - earlier <= 2 * IN_A_ROW for earlier, later in itertools.pairwise([0, *looks]))


async def test_many_writers_together_make_few_commits_in_a_turn() -> None:
    """With eight commits each, what reads them would have to work through hundreds at a time."""
    writers = 32
    backend, seen = MemoryBackend(), [0]

    async def look() -> None:
        while True:
            seen.append(backend.position.revision)
            await trio.lowlevel.checkpoint()

    async def write(writer: int) -> None:
        for number in range(2 * IN_A_ROW):
            await backend.commit([creation(f"a{writer}-{number}")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        async with trio.open_nursery() as writing:
            for writer in range(writers):
                writing.start_soon(write, writer)
        nursery.cancel_scope.cancel()
    seen.append(backend.position.revision)
    # Trio may run the tasks of a turn in any order, so two turns can lie between two looks.
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) <= 2 * (writers + IN_A_ROW)


async def test_other_tasks_run_although_every_commit_is_refused() -> None:
    """A task that repeats a refused commit without end can be stopped by another one."""
    backend, tries = MemoryBackend(), 0
    await backend.commit([creation("ada")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel, nursery.cancel_scope)
        while True:
            tries += 1
            assert tries <= 2 * IN_A_ROW
            with pytest.raises(VersionConflict):
                await backend.commit([creation("ada")])


async def _cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


async def test_canceled_task_commits_nothing() -> None:
    """This holds for each commit, also for those that let no other task run."""
    backend = MemoryBackend()
    for number in range(IN_A_ROW):
        with trio.CancelScope() as scope:
            scope.cancel()
            await backend.commit([creation(f"a{number}")])
        assert scope.cancelled_caught
    assert backend.position.revision == 0
