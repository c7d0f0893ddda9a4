"""The lock file of a store is removed only by the lock that created it, and never while another process can hold it."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from headway.errors import StoreUnusable
from headway.storage import open_sqlite
from headway.storage.sqlite import FileLock
from tests.storage.sqlite_kit import filled

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the lock is flock's")


async def test_failed_opening_leaves_no_lock_file(tmp_path: Path) -> None:
    """Only the content shows that the file cannot be opened, after the lock was taken."""
    path = tmp_path / "a.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = 'x' WHERE key = 'head'")
        connection.commit()
    for beside in (["a.db", "a.db.lock"], ["a.db"]):
        with pytest.raises(StoreUnusable, match="is damaged"):
            async with open_sqlite(path):
                pytest.fail("the store was opened")
        assert sorted(os.listdir(tmp_path)) == beside
        (tmp_path / "a.db.lock").unlink(missing_ok=True)


def test_lock_file_that_was_there_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    first = FileLock(path)
    first.take()
    first.release()
    second = FileLock(path)
    second.take_if_there()
    second.take()
    second.discard()
    assert os.listdir(tmp_path) == ["a.db.lock"]


def test_refused_lock_does_not_remove_the_file_of_its_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    holder, other = FileLock(path), FileLock(path)
    holder.take()
    with pytest.raises(StoreUnusable, match="is open in this process already"):
        other.take()
    other.discard()
    assert os.listdir(tmp_path) == ["a.db.lock"]
    holder.discard()
    assert os.listdir(tmp_path) == []


def test_lock_of_a_file_that_was_removed_before_it_was_locked_excludes_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another attempt, this process would lock the removed file, and the next one a new file."""
    path = str(tmp_path / "a.db")
    former, second, third = FileLock(path), FileLock(path), FileLock(path)
    former.take()
    lock = fcntl.flock

    def lock_late(descriptor: int, operation: int) -> None:
        # The former holder ends after the file was opened here.
        patched.undo()
        former.discard()
        lock(descriptor, operation)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lock_late)
        second.take()
    with pytest.raises(StoreUnusable, match="is open in this process already"):
        third.take()
    second.release()
    assert os.listdir(tmp_path) == ["a.db.lock"]


def _failing(code: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def test_lock_is_held_without_room_for_the_name_of_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the former holder does not stay."""
    path = str(tmp_path / "a.db")
    former, holder, other = FileLock(path), FileLock(path), FileLock(path)
    former.take()
    former.release()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", _failing(errno.ENOSPC))
        holder.take()
    with pytest.raises(StoreUnusable, match="is open in this process already"):
        other.take()
    holder.release()
    other.take()
    other.discard()


@pytest.mark.parametrize(("module", "name"), [(fcntl, "flock"), (os, "ftruncate"), (os, "pread")])
def test_lock_that_the_disk_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """A file system without flock refuses it, for example."""
    path = str(tmp_path / "a.db")
    lock = FileLock(path)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, _failing(errno.EIO))
        with pytest.raises(StoreUnusable, match=r"a\.db\.lock, the store's lock, .* \(Input/output error\): make sure"):
            lock.take()
    lock.take()
    lock.discard()
