"""Files beside a store are refused if another user planted them or more users can reach them than the store."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import StoreUnusable
from headway.storage import backup_store, check_store, open_sqlite, restore_store
from headway.testing.conformance import names, put, thing
from tests.storage.sqlite_kit import after_content_check

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and owners are POSIX's")
as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to other users")

SUFFIXES = ["-wal", "-shm", "-journal", ".lock"]
OWNER, SOMEBODY = 1500001, 1500002


async def open_and_put(path: Path, name: str = "a") -> None:
    async with open_sqlite(path) as backend:
        await put(backend, thing(name))


async def crashed_store(path: Path) -> None:
    """Make a store whose last change, "in the log", is only in its write-ahead log, as after a crash."""
    running = path.with_name("running.db")
    await open_and_put(running)
    async with open_sqlite(running) as backend:
        await put(backend, thing("in the log"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{running}{suffix}", f"{path}{suffix}")
    for suffix in ("", ".lock"):
        os.unlink(f"{running}{suffix}")


def plant(path: Path, suffix: str, mode: int = 0o600, owner: int = -1) -> Path:
    """Put an empty file beside the store, or take the existing one, and give it this mode and owner."""
    file = Path(f"{path}{suffix}")
    file.touch()
    file.chmod(mode)
    os.chown(file, owner, -1)
    return file


def everything_in(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        each.name: (each.stat().st_mode, each.stat().st_uid, each.read_bytes())
        for each in folder.iterdir()
        if each.is_file()
    }


# --- Owners --------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("there", [True, False], ids=["store", "no store"])
async def test_file_of_another_user_beside_a_store_is_refused(tmp_path: Path, suffix: str, there: bool) -> None:
    """Its owner can write a commit into it. The error names the file, the owner and the remedy."""
    path = tmp_path / "a.db"
    if there:
        await open_and_put(path)
        os.chown(path, OWNER, -1)
    file = plant(path, suffix, owner=SOMEBODY)
    before = everything_in(tmp_path)
    with pytest.raises(StoreUnusable, match=f"{file} belongs to user {SOMEBODY}.* Nothing was changed") as caught:
        await open_and_put(path, "b")
    assert f"chown {OWNER if there else 0} {file}" in str(caught.value)
    assert everything_in(tmp_path) == before


@as_root
async def test_forged_write_ahead_log_of_another_user_is_never_read(tmp_path: Path) -> None:
    """An open, a backup, a check and a restore all refuse it, because SQLite would write it into the store."""
    path, crashed = tmp_path / "a.db", tmp_path / "crashed.db"
    await crashed_store(crashed)
    shutil.copy(crashed, path)
    file = Path(shutil.copy(f"{crashed}-wal", f"{path}-wal"))
    os.chown(file, SOMEBODY, -1)
    before = path.read_bytes()
    await backup_store(f"sqlite:{crashed}", tmp_path / "good")
    for refused in (
        lambda: open_and_put(path),
        lambda: backup_store(f"sqlite:{path}", tmp_path / "b"),
        lambda: check_store(f"sqlite:{path}"),
        lambda: restore_store(tmp_path / "good", f"sqlite:{path}", replace=True),
        lambda: restore_store(path, f"sqlite:{tmp_path / 'c.db'}"),
    ):
        with pytest.raises(StoreUnusable, match=f"{file} belongs to user {SOMEBODY}"):
            await refused()
        assert path.read_bytes() == before
    os.chown(file, 0, -1)
    async with open_sqlite(path) as backend:
        assert "in the log" in await names(backend)


@as_root
@pytest.mark.parametrize("owner", [0, OWNER], ids=["root", "owner of the store"])
async def test_files_of_root_and_of_the_owner_of_the_store_are_accepted(tmp_path: Path, owner: int) -> None:
    """Root works on the stores of other users."""
    path = tmp_path / "a.db"
    await crashed_store(path)
    os.chown(path, OWNER, -1)
    plant(path, "-wal", owner=owner)
    plant(path, ".lock", owner=owner)
    async with open_sqlite(path) as backend:
        assert "in the log" in await names(backend)


@as_root
async def test_log_may_belong_to_any_user_who_can_write_the_store(tmp_path: Path) -> None:
    """A server with write access to a store by its group's or by public permissions owns the log."""
    path = tmp_path / "a.db"
    await crashed_store(path)
    path.chmod(0o666)
    plant(path, "-wal", owner=SOMEBODY)
    async with open_sqlite(path) as backend:
        assert "in the log" in await names(backend)


@as_root
async def test_file_planted_during_the_content_check_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of a large store takes seconds."""
    path, crashed = tmp_path / "a.db", tmp_path / "crashed.db"
    await crashed_store(crashed)
    shutil.copy(crashed, path)
    before = path.read_bytes()

    def plant_log(store: str) -> None:
        shutil.copy(f"{crashed}-wal", f"{store}-wal")
        os.chown(f"{store}-wal", SOMEBODY, -1)

    after_content_check(monkeypatch, plant_log)
    with pytest.raises(StoreUnusable, match=f"{path}-wal belongs to user {SOMEBODY}"):
        await open_and_put(path)
    assert path.read_bytes() == before


# --- Modes ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("store", "mode", "verb"),
    [(0o600, 0o666, "change"), (0o600, 0o640, "read"), (0o644, 0o664, "change"), (0o640, 0o644, "read")],
    ids=lambda value: f"{value:o}" if isinstance(value, int) else value,
)
async def test_file_that_more_users_can_reach_than_the_store_is_refused(
    tmp_path: Path, suffix: str, store: int, mode: int, verb: str
) -> None:
    """SQLite writes the store's content into existing files and keeps their modes."""
    path = tmp_path / "a.db"
    await open_and_put(path)
    path.chmod(store)
    file = plant(path, suffix, mode)
    with pytest.raises(StoreUnusable, match=f"{file} has mode {mode:04o}.* can {verb} it: `chmod {store:o} {file}`"):
        await open_and_put(path, "b")
    file.chmod(store)
    await open_and_put(path, "b")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
async def test_file_that_others_can_reach_is_refused_before_the_store_is_made(tmp_path: Path, suffix: str) -> None:
    """The new store would be private to its owner."""
    path = tmp_path / "a.db"
    file = plant(path, suffix, 0o644)
    with pytest.raises(StoreUnusable, match=f"{file} has mode 0644.* `chmod 600 {file}`"):
        await open_and_put(path)
    assert not path.exists()


async def test_store_files_of_an_earlier_version_can_be_opened(tmp_path: Path) -> None:
    """They were made with mode 0644, as under umask 022, and left by a crash."""
    path = tmp_path / "a.db"
    await crashed_store(path)
    path.chmod(0o644)
    for suffix in ("-wal", "-shm", ".lock"):
        plant(path, suffix, 0o644)
    async with open_sqlite(path) as backend:
        assert "in the log" in await names(backend)
    assert not stat.S_IMODE(path.stat().st_mode) & 0o022


async def test_hard_link_beside_a_store_is_refused(tmp_path: Path) -> None:
    """A hard link to another store's log has the right owner and mode, and the wrong content."""
    path = tmp_path / "a.db"
    await open_and_put(path)
    await crashed_store(tmp_path / "b.db")
    os.link(tmp_path / "b.db-wal", f"{path}-wal")
    with pytest.raises(StoreUnusable, match=r"a\.db-wal has another name"):
        await open_and_put(path, "b")


# --- Kinds ---------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def remove(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()


@pytest.mark.parametrize(("make", "kind"), [(pipe, "a pipe"), (Path.mkdir, "a directory")], ids=["pipe", "directory"])
async def test_path_that_is_not_a_regular_file_is_refused_immediately(
    tmp_path: Path, make: Callable[[Path], None], kind: str
) -> None:
    """This covers the paths of a store, its log, and a backup to restore: opening a pipe would block forever."""
    good, path = tmp_path / "good.db", tmp_path / "a.db"
    await open_and_put(good)
    make(path)
    for refused in (
        lambda: open_and_put(path),
        lambda: check_store(f"sqlite:{path}"),
        lambda: backup_store(f"sqlite:{path}", tmp_path / "b"),
        lambda: restore_store(path, f"sqlite:{tmp_path / 'c.db'}"),
        lambda: restore_store(good, f"sqlite:{path}", replace=True),
    ):
        with pytest.raises(StoreUnusable, match=f"{path} is {kind}"):
            await refused()
    for suffix in ("-wal", "-shm", "-journal"):
        file = Path(f"{good}{suffix}")
        make(file)
        with pytest.raises(StoreUnusable, match=f"{file} is {kind}"):
            await open_and_put(good, "b")
        with pytest.raises(StoreUnusable, match=f"{file} is {kind}"):
            await check_store(f"sqlite:{good}")
        remove(file)
    await open_and_put(good, "b")
