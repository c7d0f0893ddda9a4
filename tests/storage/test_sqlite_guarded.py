"""Other users of the machine can neither read a store's files nor make Headway write to files that they planted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import StoreUnusable
from headway.storage import backup_store, open_sqlite, open_store, restore_store
from headway.testing.conformance import put, thing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links are POSIX's")

SECRET = b"another program's file\n"


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    return path


def intact(victim: Path) -> bool:
    return victim.read_bytes() == SECRET


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.lstat().st_mode) for each in folder.iterdir()}


async def open_and_put(path: Path, name: str = "a") -> None:
    async with open_sqlite(path) as backend:
        await put(backend, thing(name))


# --- Modes ---------------------------------------------------------------------


async def test_store_files_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    """This covers the store, its lock, and the files that SQLite makes."""
    folder = tmp_path / "stores"
    folder.mkdir()
    folder.chmod(0o700)
    async with open_sqlite(folder / "a.db") as backend:
        await put(backend, thing("a"))
        found = modes(folder)
    assert found == dict.fromkeys(("a.db", "a.db.lock", "a.db-wal", "a.db-shm"), 0o600), oct(umask)


async def test_backups_and_restored_stores_are_private(tmp_path: Path) -> None:
    """They are private even if other users can read the source."""
    path = tmp_path / "a.db"
    await open_and_put(path)
    path.chmod(0o644)
    for replace in (False, True):
        await backup_store(f"sqlite:{path}", tmp_path / "b", replace=replace)
        assert modes(tmp_path)["b"] == 0o600
        (tmp_path / "b").chmod(0o644)
    await restore_store(tmp_path / "b", f"sqlite:{tmp_path / 'c.db'}")
    assert modes(tmp_path)["c.db"] == 0o600


async def test_mode_of_an_existing_store_is_kept(tmp_path: Path) -> None:
    """Opening the store and restoring a backup over it keep its mode."""
    path = tmp_path / "a.db"
    await open_and_put(path)
    path.chmod(0o640)
    await open_and_put(path, "b")
    await backup_store(f"sqlite:{path}", tmp_path / "b")
    await restore_store(tmp_path / "b", f"sqlite:{path}", replace=True)
    assert modes(tmp_path)["a.db"] == 0o640


# --- Planted files ---------------------------------------------------------------


async def test_linked_lock_is_refused_and_its_target_is_unchanged(tmp_path: Path, victim: Path) -> None:
    """The target may exist or be missing; nothing is created."""
    lock = tmp_path / "a.db.lock"
    for target in (victim, tmp_path / "missing"):
        lock.symlink_to(target)
        with pytest.raises(StoreUnusable, match=r"a\.db\.lock is a symbolic link"):
            await open_and_put(tmp_path / "a.db")
        assert sorted(modes(tmp_path)) == ["a.db.lock", "victim"]
        lock.unlink()
    assert intact(victim)


async def test_lock_with_foreign_content_is_refused_unchanged(tmp_path: Path) -> None:
    """Neither another program's file nor a hard link to one is truncated."""
    lock = tmp_path / "a.db.lock"
    lock.write_bytes(SECRET)
    lock.chmod(0o600)
    with pytest.raises(StoreUnusable, match="was not written by Headway"):
        await open_and_put(tmp_path / "a.db")
    assert lock.read_bytes() == SECRET
    lock.unlink()
    empty = tmp_path / "empty"
    os.mknod(empty, 0o600)
    os.link(empty, lock)
    with pytest.raises(StoreUnusable, match="has another name"):
        await open_and_put(tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


async def test_lock_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    """Another user may have made a pipe to read the content."""
    os.mkfifo(tmp_path / "a.db.lock")
    with pytest.raises(StoreUnusable, match="is not a regular file"):
        await open_and_put(tmp_path / "a.db")


@pytest.mark.parametrize("content", [b"", b"\0" * 80, b'{"pid": 17, "ho', b'{"pi'], ids=repr)
async def test_lock_torn_by_a_crash_can_be_acquired(tmp_path: Path, content: bytes) -> None:
    """A crash can leave a part of the content, or zeros; both are recognized as a lock."""
    lock = tmp_path / "a.db.lock"
    lock.write_bytes(content)
    lock.chmod(0o600)
    await open_and_put(tmp_path / "a.db")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
async def test_links_beside_a_store_are_refused_and_their_targets_are_unchanged(
    tmp_path: Path, victim: Path, suffix: str
) -> None:
    """SQLite would follow the links and overwrite their targets."""
    path = tmp_path / "a.db"
    await open_and_put(path)
    os.symlink(victim, f"{path}{suffix}")
    with pytest.raises(StoreUnusable, match=f"a.db{suffix} is a symbolic link"):
        await open_and_put(path, "b")
    assert intact(victim)


async def test_link_to_a_store_is_followed(tmp_path: Path) -> None:
    """The operator chooses the path of the store."""
    (tmp_path / "real").mkdir()
    (tmp_path / "a.db").symlink_to(tmp_path / "real" / "a.db")
    async with open_store(f"sqlite:{tmp_path / 'a.db'}") as backend:
        await put(backend, thing("a"))
    assert sorted(modes(tmp_path / "real")) == ["a.db", "a.db.lock"]
