"""Leases across restarts and crashes of a store, and their exact timing.

The conformance suite tests what all stores promise.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.errors import StoreUnusable
from headway.storage import Fence, FenceLowered, MemoryBackend, TermEnded, open_sqlite
from headway.testing.conformance import names, put, thing

HOLD = """
import sys, trio
from headway.storage import open_sqlite

async def main():
    async with open_sqlite(sys.argv[1]) as backend:
        for _ in range(3):
            acquired = await backend.acquire_lease("c", "a", 5.0)
        await backend.raise_fence("c", "", acquired.held.lease.term, 1)
        print(acquired.held.lease.term, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_lease_is_held_exactly_until_the_end_of_its_ttl(mock_clock: MockClock) -> None:
    """This holds for lists, the holder, other candidates, and writes with its fence."""
    backend = MemoryBackend()
    term = (await backend.acquire_lease("c", "a", 10)).held.lease.term
    mock_clock.jump(9.999)
    await put(backend, thing("in time"), fence=Fence("c", "", term, 0))
    await backend.keep_lease("c", "a", term)
    mock_clock.jump(9.999)
    assert len((await backend.list_leases())[0]) == 1
    here = backend.position.revision
    mock_clock.jump(0.001)
    assert (await backend.list_leases())[0] == []
    with pytest.raises(TermEnded):
        await backend.keep_lease("c", "a", term)
    with pytest.raises(FenceLowered):
        await put(backend, thing("late"), fence=Fence("c", "", term, 7))
    assert backend.position.revision == here + 1, "the end of a term took another number of commits than one"


async def test_change_of_a_lease_wakes_no_waiter_of_another_one() -> None:
    """Thousands may wait for one lease, while others are acquired and released all the time."""
    backend = MemoryBackend()
    await backend.acquire_lease("c", "a", 3600)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(backend.wait_lease_ended, "c", 1)
        await wait_all_tasks_blocked()
        [waiter] = nursery.child_tasks
        assert waiter.custom_sleep_data is not None
        other = (await backend.acquire_lease("d", "a", 3600)).held.lease.term
        # Trio resets it when it wakes the task, before the task goes on.
        assert waiter.custom_sleep_data is not None
        await backend.release_lease("d", "a", other)
        assert waiter.custom_sleep_data is not None
        await backend.release_lease("c", "a", 1)


async def test_lease_is_held_for_a_full_ttl_after_a_restart(mock_clock: MockClock, tmp_path: Path) -> None:
    """The remaining time is unknown. The holder can renew the lease and write; another candidate gets it only then."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        lease = (await backend.acquire_lease("c#m", "a", 10, "attempt")).held.lease
        mock_clock.jump(9)
    mock_clock.jump(1000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        (held,) = (await backend.list_leases())[0]
        assert held == (lease, 10)
        mock_clock.jump(9)
        assert not (await backend.acquire_lease("c#m", "b", 10)).acquired
        await backend.keep_lease("c#m", "a", lease.term)
        mock_clock.jump(9)
        await put(backend, thing("in time"), fence=Fence("c", "m", lease.term, 0))
        assert not (await backend.acquire_lease("c#m", "b", 10)).acquired
        mock_clock.jump(1)
        assert (await backend.acquire_lease("c#m", "b", 10)).held.lease.term > lease.term


async def test_late_request_does_not_end_a_term_in_use_after_a_restart(tmp_path: Path) -> None:
    """The raised fence in the file shows that the holder knows its term. Another attempt begins a new term."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        term = (await backend.acquire_lease("c", "a", 600, "attempt")).held.lease.term
        await backend.raise_fence("c", "", term, 1)
    async with open_sqlite(tmp_path / "a.db") as backend:
        late = await backend.acquire_lease("c", "a", 600, "attempt")
        assert (late.acquired, late.held.lease.term) == (False, term)
        await put(backend, thing("in time"), fence=Fence("c", "", term, 1))
        assert (await backend.acquire_lease("c", "a", 600, "another")).held.lease.term > term


@pytest.mark.parametrize(
    "how", ["released", "refused a write", "refused a renewal", "left out of a list", "waited for", "another's"]
)
async def test_ended_term_stays_ended_after_a_restart(mock_clock: MockClock, tmp_path: Path, how: str) -> None:
    """An end that has been reported is final, and the next term is higher."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        term = (await backend.acquire_lease("c", "a", 10)).held.lease.term
        if how == "released":
            await backend.release_lease("c", "a", term)
        else:
            mock_clock.jump(10)
        if how == "refused a write":
            with pytest.raises(FenceLowered):
                await put(backend, thing("late"), fence=Fence("c", "", term, 1))
        elif how == "refused a renewal":
            with pytest.raises(TermEnded):
                await backend.keep_lease("c", "a", term)
        elif how == "left out of a list":
            assert (await backend.list_leases())[0] == []
        elif how == "waited for":
            await backend.wait_lease_ended("c", term)
        elif how == "another's":
            assert (await backend.acquire_lease("c", "b", 10)).acquired
    async with open_sqlite(tmp_path / "a.db") as backend:
        with pytest.raises(TermEnded):
            await backend.keep_lease("c", "a", term)
        with pytest.raises(FenceLowered):
            await put(backend, thing("late"), fence=Fence("c", "", term, 1))
        assert await names(backend) == []
        mock_clock.jump(10)
        assert (await backend.acquire_lease("c", "b", 10)).held.lease.term > term


async def test_terms_grow_across_a_kill(tmp_path: Path) -> None:
    """A killed server remembers the holder and the term. The holder's next life fences off its previous one."""
    path = tmp_path / "a.db"
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[trio.Process]) -> None:
            command = [sys.executable, "-c", HOLD, str(path)]
            await trio.run_process(command, stdout=subprocess.PIPE, check=False, task_status=task_status)

        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        term = int(await process.stdout.receive_some())
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert term == 3
    async with open_sqlite(path) as backend:
        assert not (await backend.acquire_lease("c", "b", 5)).acquired
        await put(backend, thing("in time"), fence=Fence("c", "", term, 1))
        assert (await backend.acquire_lease("c", "a", 5)).held.lease.term == term + 1
        with pytest.raises(FenceLowered):
            await put(backend, thing("late"), fence=Fence("c", "", term, 1))


async def test_checkpoint_outlives_leases(tmp_path: Path) -> None:
    """Acquiring and releasing a lease raises its fence, and does not change the checkpoint."""
    for opened in (MemoryBackend(), open_sqlite(tmp_path / "a.db")):
        async with opened as backend:
            first = await backend.raise_fence("c", "", 0, 0)
            await backend.record_checkpoint(first.fence, 77)
            term = (await backend.acquire_lease("c", "a", 10)).held.lease.term
            assert (await backend.raise_fence("c", "", term, 1)).checkpoint == 77
            await backend.release_lease("c", "a", term)
            assert (await backend.raise_fence("c", "", 0, 0)).checkpoint == 77


async def test_closing_the_store_wakes_lease_waiters_with_an_error(tmp_path: Path) -> None:
    """Watches end in the same way."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery, open_sqlite(tmp_path / "a.db") as backend:
            await backend.acquire_lease("c", "a", 600)

            async def wait() -> None:
                with pytest.raises(StoreUnusable, match="is closed"):
                    await backend.wait_lease_ended("c", 1)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()


async def test_request_for_a_held_lease_costs_no_transaction(tmp_path: Path) -> None:
    """A renewal and a late request of the holder cost none either: many processes make them all the time."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await backend.acquire_lease("c", "a", 600, "one")
        await backend.keep_lease("c", "a", 1)
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            before = connection.execute("PRAGMA data_version").fetchone()
            for _ in range(5):
                await backend.acquire_lease("c", "b", 600)
                assert not (await backend.acquire_lease("c", "a", 600, "one")).acquired
                await backend.keep_lease("c", "a", 1)
            assert connection.execute("PRAGMA data_version").fetchone() == before
            await backend.acquire_lease("c", "a", 600, "two")
            assert connection.execute("PRAGMA data_version").fetchone() != before


@pytest.mark.parametrize("how", ["released", "run out"])
async def test_end_of_a_lease_never_lowers_its_fence(mock_clock: MockClock, tmp_path: Path, how: str) -> None:
    """An earlier version without leases may have raised the fence in between. Superseded terms stay rejected."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        term = (await backend.acquire_lease("c", "a", 10)).held.lease.term
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE fences SET term = ?, number = 3 WHERE controller = 'c'", (term + 5,))
    async with open_sqlite(tmp_path / "a.db") as backend:
        if how == "released":
            await backend.release_lease("c", "a", term)
        mock_clock.jump(10)
        with pytest.raises(FenceLowered):
            await put(backend, thing("late"), fence=Fence("c", "", term + 5, 2))
        await backend.wait_lease_ended("c", term)
        assert (await backend.acquire_lease("c", "b", 10)).held.lease.term == term + 6


class TickingClock(trio.abc.Clock):
    """A clock that advances by a step at each reading."""

    def __init__(self) -> None:
        self.now, self.step = 0.0, 0.0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        self.now += self.step
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return max(0.0, deadline - self.now)


@pytest.mark.parametrize("looks", range(8))
def test_lease_may_expire_between_any_two_readings_of_the_clock(looks: int) -> None:
    """It may expire within a request. The request ends as if it had come before or after the expiry."""
    clock = TickingClock()

    async def main() -> None:
        backend = MemoryBackend()
        term = (await backend.acquire_lease("c", "a", 10, "attempt")).held.lease.term
        clock.now, clock.step = 10 - looks - 0.5, 1.0
        try:
            raised = (await backend.raise_fence("c", "", 0, 7)).fence
        except FenceLowered:
            assert looks
        else:
            assert raised.term > term
            with pytest.raises(FenceLowered):
                await put(backend, thing("late"), fence=raised._replace(number=6))
            assert (await backend.acquire_lease("c", "b", 10)).held.lease.term > raised.term
        clock.now, clock.step = 30, 0.0
        term = (await backend.acquire_lease("c", "c", 10, "attempt")).held.lease.term
        clock.now, clock.step = 40 - looks - 0.5, 1.0
        again = await backend.acquire_lease("c", "c", 10, "attempt")
        assert again.acquired
        assert again.held.remaining == 10
        assert again.held.lease.term >= term

    trio.run(main, clock=clock)


async def test_lease_can_be_renewed_while_another_cannot_be_ended(mock_clock: MockClock, tmp_path: Path) -> None:
    """With a full disk, the expired lease of one holder does not cost another holder its lease. Only an expiry has to
    be stored.
    """
    async with open_sqlite(tmp_path / "a.db") as backend:
        dead = (await backend.acquire_lease("dead", "a", 5)).held.lease.term
        term = (await backend.acquire_lease("living", "b", 10)).held.lease.term
        mock_clock.jump(6)
        assert backend._opened is not None
        writer = backend._opened.file.writer
        writer.execute("PRAGMA query_only = 1")
        await backend.keep_lease("living", "b", term)
        with pytest.raises(StoreUnusable):
            await backend.keep_lease("dead", "a", dead)
        mock_clock.jump(9)
        writer.execute("PRAGMA query_only = 0")
        assert [each.lease.name for each in (await backend.list_leases())[0]] == ["living"]
        with pytest.raises(TermEnded):
            await backend.keep_lease("dead", "a", dead)
