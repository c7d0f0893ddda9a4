"""Stores made of backups: other stores, above all that the first one can have given out."""

import os
import shutil
import time
from pathlib import Path

import pytest

from headway.errors import FailedPrecondition, StoreUnusable
from headway.resource import Position
from headway.storage import (
    Fence,
    FenceLowered,
    StoreMismatch,
    backup_store,
    check_store,
    open_sqlite,
    restore_store,
)
from headway.testing._conformance_tools import EVERYTHING, KIND, names, put, reading, thing, told
from tests.storage.sqlite_kit import filled


async def _restored(file: Path, to: Path, *, replace: bool = False) -> Position:
    await restore_store(file, f"sqlite:{to}", replace=replace)
    async with open_sqlite(to) as backend:
        return backend.position


async def test_a_restored_store_is_another_one_above_all_that_the_first_has_given_out(tmp_path: Path) -> None:
    """Its id is new; its revisions are above those given out after the backup, and no former position is resumed."""
    path = tmp_path / "a.db"
    await filled(path)
    async with open_sqlite(path) as backend:
        known = backend.position
        await backup_store(f"sqlite:{path}", tmp_path / "b")
        for index in range(50):
            lost = await put(backend, thing(f"lost{index}"))
    here = await _restored(tmp_path / "b", path, replace=True)
    assert here.store_id != known.store_id
    assert here.revision >= lost.revision + 2**48
    async with open_sqlite(path) as backend:
        assert await names(backend) == [f"n{index}" for index in range(9)]
        for position in (known, lost):
            with pytest.raises(StoreMismatch):
                await backend.watch(KIND, EVERYTHING, position)
        assert (await put(backend, thing("new"))).revision == here.revision + 1
    assert await check_store(f"sqlite:{path}") == []


async def test_two_stores_of_one_backup_do_not_begin_at_one_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a version of the first and meets the second isn't taken for somebody who has read it."""
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    first = await _restored(tmp_path / "b", tmp_path / "first.db")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10.0)
    second = await _restored(tmp_path / "b", tmp_path / "second.db")
    assert second.revision >= first.revision + 9 * 2**20
    assert second.store_id != first.store_id


async def test_what_is_replaced_is_gone_above_when_it_can_be_read(tmp_path: Path) -> None:
    """A store that has been restored before stands far above the backup, and the next one above that."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    first = await _restored(tmp_path / "b", path, replace=True)
    second = await _restored(tmp_path / "b", path, replace=True)
    assert second.revision >= first.revision + 2**48


async def test_nothing_that_bears_a_fence_of_before_lands_in_a_restored_store(tmp_path: Path) -> None:
    """Of whichever term: known to the backup, raised or begun since then, or of a controller that it doesn't know."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        raised = await backend.raise_fence("known", "", 0, 0)
        await backend.record_checkpoint(raised.fence, 1)
        held = await backend.acquire_lease("leased", "web-1", 3600)
        await backup_store(f"sqlite:{path}", tmp_path / "b")
        for _ in range(5):
            late = await backend.raise_fence("known", "", 0, 0)
        unknown = await backend.raise_fence("unknown", "", 0, 0)
        taken = await backend.acquire_lease("leased", "web-1", 3600)
    await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    async with open_sqlite(path) as backend:
        assert (await backend.list_leases())[0] == [], "who held a lease holds it of the other store"
        leased = [Fence("leased", "", each.held.lease.term, 9) for each in (held, taken)]
        for fence in (raised.fence, late.fence, unknown.fence, *leased):
            with pytest.raises(FenceLowered):
                await put(backend, thing("late"), fence=fence)
        again = await backend.raise_fence("known", "", 0, 0)
        assert again.fence.term > late.fence.term
        assert again.checkpoint == 1, "up to where nothing was owed still holds"
        for controller, was in (("unknown", unknown), ("never", unknown)):
            assert (await backend.raise_fence(controller, "", 0, 0)).fence.term > was.fence.term + 2**31
        assert (await backend.acquire_lease("leased", "web-2", 3600)).held.lease.term > taken.held.lease.term + 2**31


async def test_history_goes_on_in_a_restored_store(tmp_path: Path) -> None:
    """A controller that had settled up to some revision still hears the deletions since, with the new store's id."""
    path = tmp_path / "a.db"
    at = await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    here = await _restored(tmp_path / "b", path, replace=True)
    async with open_sqlite(path) as backend:
        reader = await reading(backend, after=backend.position._replace(revision=at.revision - 2))
        await reader.until(here.revision)
        assert told(reader.changes) == [(at.revision - 1, "n9", False), (at.revision, "n9", True)]


async def test_a_store_that_is_there_is_replaced_only_when_told_and_kept_beside(tmp_path: Path) -> None:
    """Refused, everything is as it was; told, the former file stands beside as a store of its own, log and all."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    async with open_sqlite(path) as backend:
        last = await put(backend, thing("last words"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{tmp_path}/crashed.db{suffix}")
    crashed = tmp_path / "crashed.db"
    before = crashed.read_bytes()
    with pytest.raises(FailedPrecondition, match=r"crashed\.db already exists; give another path, or replace it"):
        await restore_store(tmp_path / "b", f"sqlite:{crashed}")
    assert crashed.read_bytes() == before
    made = await restore_store(tmp_path / "b", f"sqlite:{crashed}", replace=True)
    assert made.replaced == f"{crashed}.replaced"
    async with open_sqlite(crashed) as backend:
        assert "last words" not in await names(backend)
    async with open_sqlite(made.replaced) as backend:
        assert "last words" in await names(backend)
        assert (backend.position.store_id, backend.position.revision) == (last.store_id, last.revision)


async def test_a_store_that_is_open_is_not_restored_over(tmp_path: Path) -> None:
    """The error names who holds it."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    async with open_sqlite(path) as backend:
        with pytest.raises(StoreUnusable, match=r"is held by this process .*end that process"):
            await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
        await put(backend, thing("a"))


async def test_a_damaged_store_is_replaced_and_kept_as_it_is(tmp_path: Path) -> None:
    """What may still be saved from it is not thrown away."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    whole = path.read_bytes()
    damaged = whole[:4096] + b"\xaa" * 4096 * 4 + whole[4096 * 5 :]
    path.write_bytes(damaged)
    with pytest.raises(StoreUnusable, match="is damaged"):
        async with open_sqlite(path):
            pass
    await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    async with open_sqlite(path) as backend:
        assert len(await names(backend)) == 9
    assert (tmp_path / "a.db.replaced").read_bytes() == damaged


async def test_a_damaged_backup_replaces_nothing(tmp_path: Path) -> None:
    """Whether its pages are damaged or a row of it."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    before = path.read_bytes()
    whole = (tmp_path / "b").read_bytes()
    torn = bytearray(whole)
    torn[4096 * 5 : 4096 * 6] = b"\xaa" * 4096
    rotten = bytearray(whole)
    at = whole.index(b"x" * 500)
    rotten[at] ^= 1
    for bad in (torn, rotten, whole[: len(whole) // 2], b"Dear diary"):
        (tmp_path / "b").write_bytes(bad)
        with pytest.raises(StoreUnusable):
            await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
        assert path.read_bytes() == before
        assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock", "b"]


async def test_a_file_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    """Not even when told: it is to be moved away by who knows what it is."""
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    (tmp_path / "diary").write_text("Dear diary, " * 100)
    with pytest.raises(StoreUnusable, match=r"is not an SQLite file.*move it away, then restore"):
        await restore_store(tmp_path / "b", f"sqlite:{tmp_path}/diary", replace=True)
    assert (tmp_path / "diary").read_text() == "Dear diary, " * 100


async def test_a_plain_copy_of_a_store_is_restored_too(tmp_path: Path) -> None:
    """And its log with it: whoever has only that gets the same guarantees."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        at = await put(backend, thing("in the log"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{tmp_path}/copy{suffix}")
    here = await _restored(tmp_path / "copy", tmp_path / "new.db")
    assert here.store_id != at.store_id
    assert here.revision > 2**48
    async with open_sqlite(tmp_path / "new.db") as backend:
        assert await names(backend) == ["in the log"]


async def test_the_rights_to_the_file_stay(tmp_path: Path) -> None:
    """What is restored over a store may be read by those who may read the store, whatever the backup's mode is."""
    path = tmp_path / "a.db"
    await filled(path)
    path.chmod(0o600)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    (tmp_path / "b").chmod(0o644)
    await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    assert path.stat().st_mode & 0o777 == 0o600
