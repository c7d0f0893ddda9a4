"""Quotas in a file: the use after a refused batch, after a restart and a restore, and above damage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from headway.errors import QuotaExceeded, WriteRejected
from headway.quotas import Use, list_uses, quotas_now, rule_of
from headway.storage import SqliteBackend, backup_store, check_store, restore_store, stored_size
from headway.testing.conformance import EVERYTHING, KIND, put, putting, refused, remove, thing
from headway.testing.conformance.quotas import quota
from tests.storage.sqlite_kit import count_batches


@asynccontextmanager
async def open_keeping(path: Path) -> AsyncIterator[SqliteBackend]:
    """Open a store that keeps quotas."""
    async with SqliteBackend(path) as backend:
        rule_of(backend)
        yield backend


async def agree(backend: SqliteBackend) -> Use:
    """Return the use of the only quota, which must be the sum of what is stored."""
    [found] = await list_uses(backend)
    stored, _ = await backend.list(KIND, EVERYTHING)
    assert found.use == Use(len(stored), sum(map(stored_size, stored)))
    assert quotas_now(backend) == [found]
    return found.use


async def test_batch_that_the_disk_refuses_uses_nothing(tmp_path: Path) -> None:
    """Neither its resources count, nor does a quota that was written in it hold."""
    async with open_keeping(tmp_path / "a.db") as backend:
        await put(backend, quota(resources=3))
        await put(backend, thing("before"))
        assert backend._opened is not None
        writer = backend._opened.file.writer
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 3}")

        async def write(name: str) -> None:
            with pytest.raises(WriteRejected):
                await put(backend, thing(name, "x" * 100_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "a")
            nursery.start_soon(write, "b")
        with pytest.raises(WriteRejected):
            await backend.commit([putting(quota("other", resources=0)), putting(thing("c", "x" * 100_000))])
        writer.execute("PRAGMA max_page_count = 1000000")
        assert await agree(backend) == Use(1, (await agree(backend)).bytes)
        for name in "ab":
            await put(backend, thing(name, "x" * 100_000))
        await refused(QuotaExceeded, put(backend, thing("c")), "a creation above the quota")
        assert (await agree(backend)).resources == 3


async def test_writers_of_one_transaction_see_the_room_that_others_have_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is decided after those before it in the batch."""
    batches, refusals = count_batches(monkeypatch), 0
    async with open_keeping(tmp_path / "a.db") as backend:
        await put(backend, quota(resources=10))

        async def write(number: int) -> None:
            nonlocal refusals
            try:
                await put(backend, thing(f"n{number}"))
            except QuotaExceeded:
                refusals += 1

        async with trio.open_nursery() as nursery:
            for number in range(25):
                nursery.start_soon(write, number)
        assert refusals == 15
        assert max(batches) > 10
        assert (await agree(backend)).resources == 10


async def test_use_is_right_after_a_restart_a_backup_and_a_restore(tmp_path: Path) -> None:
    """It is counted anew, and the checks of the store find nothing to say."""
    path, copy = tmp_path / "a.db", tmp_path / "copy"
    async with open_keeping(path) as backend:
        await put(backend, quota(resources=3))
        await backend.commit([putting(thing(name, name * 1000)) for name in "abc"])
        before = await agree(backend)
    async with open_keeping(path) as backend:
        assert quotas_now(backend) == []
        await refused(QuotaExceeded, put(backend, thing("d")), "a creation above the quota")
        assert await agree(backend) == before
    await backup_store(f"sqlite:{path}", copy)
    async with open_keeping(path) as backend:
        stored, _ = await backend.list(KIND, EVERYTHING)
        await remove(backend, stored[0], stored[0].version)
        assert (await agree(backend)).resources == 2
    await restore_store(copy, f"sqlite:{path}", replace=True)
    assert not await check_store(f"sqlite:{path}")
    async with open_keeping(path) as backend:
        await refused(QuotaExceeded, put(backend, thing("d")), "a creation above the quota")
        assert await agree(backend) == before


async def test_damaged_quota_limits_nothing_and_can_be_replaced(tmp_path: Path) -> None:
    """A row that is not as it was written must not decide about others, and the check of the store finds it."""
    path = tmp_path / "a.db"
    async with open_keeping(path) as backend:
        await put(backend, quota(resources=0))
        assert backend._opened is not None
        backend._opened.file.writer.execute("UPDATE resources SET seal = seal + 1 WHERE kind = 'Quota'")
    assert await check_store(f"sqlite:{path}")
    async with open_keeping(path) as backend:
        assert await list_uses(backend) == []
        await put(backend, thing("a"))
        await put(backend, quota(resources=0), "1")
        await refused(QuotaExceeded, put(backend, thing("b")), "a creation above the quota")


async def _steps_of_counts(path: Path, others: int) -> int:
    """Return the steps that SQLite makes for first writes in namespaces with quotas, beside others in the store."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    async with open_keeping(path) as backend:
        made = [putting(quota(f"q{number}", resources=9, namespace=f"n{number}")) for number in range(5)]
        made += [putting(thing(f"a{number}", namespace="other")) for number in range(others)]
        await backend.commit(made)
        assert backend._opened is not None
        backend._opened.file.writer.set_progress_handler(step, 10)
        for number in range(5):
            await put(backend, thing("a", namespace=f"n{number}"))
        backend._opened.file.writer.set_progress_handler(None, 0)
    return steps


async def test_count_looks_only_at_its_own_part(tmp_path: Path) -> None:
    """Resources of other namespaces make it no slower."""
    few, many = [await _steps_of_counts(tmp_path / f"{others}.db", others) for others in (10, 500)]
    assert many < 2 * few, f"{many} steps beside 500 resources, {few} beside 10"
