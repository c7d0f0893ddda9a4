"""A store made of a backup is another store, and its revisions are above all that the first one can have given out."""

import errno
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
from headway.testing.conformance import EVERYTHING, KIND, names, put, reading, summary, thing
from tests.storage.sqlite_kit import filled


async def _restored(file: Path, to: Path, *, replace: bool = False) -> Position:
    await restore_store(file, f"sqlite:{to}", replace=replace)
    async with open_sqlite(to) as backend:
        return backend.position


async def test_restored_store_has_a_new_id_and_higher_revisions(tmp_path: Path) -> None:
    """Its revisions are above those given out after the backup. No earlier position resumes."""
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


async def test_two_stores_of_one_backup_begin_at_different_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller with a version of the first store cannot write at that version in the second."""
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    first = await _restored(tmp_path / "b", tmp_path / "first.db")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10.0)
    second = await _restored(tmp_path / "b", tmp_path / "second.db")
    assert second.revision >= first.revision + 9 * 2**20
    assert second.store_id != first.store_id


async def test_restored_store_has_higher_revisions_than_the_replaced_one(tmp_path: Path) -> None:
    """A store that was restored before is far above the backup, and the next restored store is above that one.

    This requires that the replaced store can be read.
    """
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    first = await _restored(tmp_path / "b", path, replace=True)
    second = await _restored(tmp_path / "b", path, replace=True)
    assert second.revision >= first.revision + 2**48


async def test_restored_store_rejects_writes_with_earlier_fences(tmp_path: Path) -> None:
    """The backup may know the term, the term may be newer than the backup, or the controller may be unknown to it."""
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
        assert (await backend.list_leases())[0] == [], "the restored store has a lease of the replaced one"
        leased = [Fence("leased", "", each.held.lease.term, 9) for each in (held, taken)]
        for fence in (raised.fence, late.fence, unknown.fence, *leased):
            with pytest.raises(FenceLowered):
                await put(backend, thing("late"), fence=fence)
        again = await backend.raise_fence("known", "", 0, 0)
        assert again.fence.term > late.fence.term
        assert again.checkpoint == 1, "the checkpoint was not restored"
        for controller, was in (("unknown", unknown), ("never", unknown)):
            assert (await backend.raise_fence(controller, "", 0, 0)).fence.term > was.fence.term + 2**31
        assert (await backend.acquire_lease("leased", "web-2", 3600)).held.lease.term > taken.held.lease.term + 2**31


async def test_restored_store_keeps_history(tmp_path: Path) -> None:
    """A controller with a checkpoint still receives the deletions since then, with the new store's id."""
    path = tmp_path / "a.db"
    at = await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    here = await _restored(tmp_path / "b", path, replace=True)
    async with open_sqlite(path) as backend:
        reader = await reading(backend, after=backend.position._replace(revision=at.revision - 2))
        await reader.until(here.revision)
        assert summary(reader.changes) == [(at.revision - 1, "n9", False), (at.revision, "n9", True)]


async def test_existing_store_is_replaced_only_on_request_and_kept(tmp_path: Path) -> None:
    """A refusal changes nothing. On request, the old file is kept in the same directory as a store of its own, with its
    log.
    """
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


async def test_open_store_is_not_replaced(tmp_path: Path) -> None:
    """The error names the holder."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    async with open_sqlite(path) as backend:
        with pytest.raises(StoreUnusable, match="is open in this process already: use the store that is open"):
            await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
        await put(backend, thing("a"))


async def test_damaged_store_is_replaced_and_kept(tmp_path: Path) -> None:
    """An operator may still rescue parts of it."""
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


async def test_damaged_backup_replaces_nothing(tmp_path: Path) -> None:
    """Its pages or one of its rows may be damaged."""
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


async def test_restore_leaves_only_the_store(tmp_path: Path) -> None:
    """The store gets its lock file when it is opened, and a failed restore leaves nothing.

    The lock file of a store that is not there would keep a backup from that path.
    """
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    (tmp_path / "torn").write_bytes((tmp_path / "b").read_bytes()[:10_000])
    before = sorted(os.listdir(tmp_path))
    for bad in ("torn", "none"):
        with pytest.raises(StoreUnusable):
            await restore_store(tmp_path / bad, f"sqlite:{tmp_path}/new.db")
        assert sorted(os.listdir(tmp_path)) == before
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "new.db")
    (tmp_path / "new.db").unlink()
    await restore_store(tmp_path / "b", f"sqlite:{tmp_path}/new.db")
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "new.db"])


async def test_restore_that_cannot_be_made_durable_keeps_what_was_replaced_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of an earlier replacement may be the only copy of that store."""
    path = tmp_path / "a.db"
    await filled(path)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    (tmp_path / "a.db.replaced").write_text("an earlier store")
    before = {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))}

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreUnusable, match=r"a\.db could not be created: .*Nothing was changed"):
            await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    found = {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path)) if name != "a.db.lock"}
    assert found == {name: content for name, content in before.items() if name != "a.db.lock"}


async def test_foreign_file_is_never_replaced(tmp_path: Path) -> None:
    """An explicit request is refused, too: the operator must move the file away first."""
    await filled(tmp_path / "a.db")
    await backup_store(f"sqlite:{tmp_path}/a.db", tmp_path / "b")
    (tmp_path / "diary").write_text("Dear diary, " * 100)
    with pytest.raises(StoreUnusable, match=r"is not an SQLite file.*move it away, then restore"):
        await restore_store(tmp_path / "b", f"sqlite:{tmp_path}/diary", replace=True)
    assert (tmp_path / "diary").read_text() == "Dear diary, " * 100


async def test_plain_copy_of_a_store_can_be_restored(tmp_path: Path) -> None:
    """Its log is restored with it, and the guarantees are the same."""
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


async def test_restored_store_keeps_the_permissions_of_the_replaced_one(tmp_path: Path) -> None:
    """The mode of the backup does not matter."""
    path = tmp_path / "a.db"
    await filled(path)
    path.chmod(0o600)
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    (tmp_path / "b").chmod(0o644)
    await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    assert path.stat().st_mode & 0o777 == 0o600
