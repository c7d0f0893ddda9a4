"""A store has one engine at a time under whatever name its file is opened, and whatever becomes of its lock file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from headway.errors import StoreUnusable
from headway.storage import backup_store, check_store, open_sqlite, restore_store
from headway.testing.conformance import names, put, thing
from tests.storage.sqlite_kit import filled, opened_plainly

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the lock is flock's")

OPEN = """
import sys, trio
from headway.errors import StoreUnusable
from headway.storage import open_sqlite

async def main():
    try:
        async with open_sqlite(sys.argv[1]):
            print("opened")
    except StoreUnusable as error:
        print(error)

trio.run(main)
"""

HOLD = """
import sys, trio
from headway.storage import open_sqlite

async def main():
    async with open_sqlite(sys.argv[1]):
        print("open", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def in_another_process(path: Path) -> str:
    """Return what another process says when it opens the store: "opened", or the error."""
    done = await trio.run_process([sys.executable, "-c", OPEN, str(path)], capture_stdout=True)
    return done.stdout.decode()


@asynccontextmanager
async def held_by_another_process(path: Path) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[trio.Process]) -> None:
            command = [sys.executable, "-c", HOLD, str(path)]
            await trio.run_process(command, stdout=subprocess.PIPE, check=False, task_status=task_status)

        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        assert await process.stdout.receive_some()
        yield process.pid
        process.kill()


def _renamed(path: Path) -> Path:
    return path.rename(path.with_name("b.db"))


def _renamed_directory(path: Path) -> Path:
    return path.parent.rename(path.parent.with_name("elsewhere")) / path.name


def _linked(path: Path) -> Path:
    path.with_name("b.db").hardlink_to(path)
    return path.with_name("b.db")


def _without_lock_file(path: Path) -> Path:
    path.with_name("a.db.lock").unlink()
    return path


WAYS = {
    "renamed": (_renamed, "under another path or without .*end that process"),
    "in a renamed directory": (_renamed_directory, "is held by process"),
    "without its lock file": (_without_lock_file, "under another path or without .*end that process"),
    "a second hard link": (_linked, "has 2 names .hard links., and two servers .* would destroy it"),
}


@pytest.mark.parametrize("there", ["this process", pytest.param("another process", marks=pytest.mark.wide)])
@pytest.mark.parametrize(
    ("become", "why"),
    [pytest.param(*way, id=name, marks=[pytest.mark.wide] * (name != "renamed")) for name, way in WAYS.items()],
)
async def test_second_engine_is_refused_whatever_became_of_the_names(
    tmp_path: Path, become: Callable[[Path], Path], why: str, there: str
) -> None:
    """The file itself is locked, not only its names. Nothing that the first engine has committed is lost."""
    path = tmp_path / "store" / "a.db"
    path.parent.mkdir()
    await filled(path)
    if there == "another process":
        async with held_by_another_process(path) as pid:
            other = become(path)
            with pytest.raises(StoreUnusable, match=why) as caught:
                await _open_and_close(other)
            assert "hard links" in str(caught.value) or f"process {pid}" in str(caught.value)
        return
    async with open_sqlite(path) as backend:
        await put(backend, thing("new"))
        other = become(path)
        with pytest.raises(StoreUnusable, match="is open in this process already"):
            await _open_and_close(other)
        assert "opened" not in await in_another_process(other)
        assert _is_locked_by_sqlite(other), "the refusal has released the locks of the store that is open"
        assert "new" in await names(backend)


async def test_store_with_a_second_hard_link_is_opened_when_it_has_a_file_of_its_own(tmp_path: Path) -> None:
    """The error says how to make one, and nothing is written before."""
    path = tmp_path / "a.db"
    await filled(path)
    path.with_name("b.db").hardlink_to(path)
    before = path.read_bytes()
    for each in (path, path.with_name("b.db")):
        with pytest.raises(StoreUnusable, match=r"find DIRECTORY -samefile .* finds them: remove the others, or give"):
            await _open_and_close(each)
        with pytest.raises(StoreUnusable, match="has 2 names"):
            await check_store(f"sqlite:{each}")
        with pytest.raises(StoreUnusable, match="has 2 names"):
            await backup_store(f"sqlite:{each}", tmp_path / "backup")
    assert path.read_bytes() == before
    shutil.copy(path, tmp_path / "a.db.copy")
    (tmp_path / "a.db.copy").rename(path)
    await _open_and_close(path)


async def test_name_that_a_stopped_restoration_has_left_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await filled(path)
    path.with_name("a.db.replaced").hardlink_to(path)
    with pytest.raises(StoreUnusable, match=r"a restoration that was stopped has left .*a\.db\.replaced: remove that"):
        await _open_and_close(path)
    path.with_name("a.db.replaced").unlink()
    await _open_and_close(path)


async def test_backup_with_hard_links_can_be_checked_and_restored(tmp_path: Path) -> None:
    """Nothing writes to a backup, and tools that keep many of them link what has not changed."""
    await filled(tmp_path / "a.db")
    backup = tmp_path / "backup"
    await backup_store(f"sqlite:{tmp_path}/a.db", backup)
    (tmp_path / "yesterday").hardlink_to(backup)
    assert not await check_store(f"sqlite:{backup}")
    await restore_store(backup, f"sqlite:{tmp_path}/b.db")
    await _open_and_close(tmp_path / "b.db")


async def test_store_of_a_running_engine_is_not_replaced_without_its_lock_file(tmp_path: Path) -> None:
    path, backup = tmp_path / "a.db", tmp_path / "backup"
    await filled(path)
    await backup_store(f"sqlite:{path}", backup)
    async with held_by_another_process(path) as pid:
        path.with_name("a.db.lock").unlink()
        with pytest.raises(StoreUnusable, match=f"is held by process {pid}, under another path or without"):
            await restore_store(backup, f"sqlite:{path}", replace=True)
    assert not path.with_name("a.db.replaced").exists()


async def test_reader_of_this_process_keeps_its_locks_when_the_store_is_closed(tmp_path: Path) -> None:
    """Closing a descriptor of a file would release all locks of the process on it, also those of a backup.

    Then another program could take itself for the last one to close the file, and remove the log.
    """
    path = tmp_path / "a.db"
    await filled(path)
    with opened_plainly(path) as reader:
        reader.execute("SELECT count(*) FROM resources").fetchone()
        for _ in range(2):
            await _open_and_close(path)
            assert _is_locked_by_sqlite(path), "opening and closing the store has released the locks of a reader"
    assert not _is_locked_by_sqlite(path)


async def test_checks_and_backups_of_an_open_store_take_no_descriptors(tmp_path: Path) -> None:
    """Their own could not be closed at once, for the same reason. They are used again, and closed with the store."""
    path, backup = tmp_path / "a.db", tmp_path / "backup"
    for _ in range(2):
        async with open_sqlite(path) as backend:
            counts = []
            for _ in range(3):
                assert not await backend.check_itself()
                assert not await check_store(f"sqlite:{path}")
                await backup_store(f"sqlite:{path}", backup, replace=True)
                assert _is_locked_by_sqlite(path)
                counts.append(_descriptors(path))
            assert len(set(counts)) == 1
        assert _descriptors(path) == 0
    assert not await check_store(f"sqlite:{path}")
    assert _descriptors(path) == 0


def _descriptors(path: Path) -> int:
    """Return the number of descriptors of a file that this process has open."""
    found, count = path.stat(), 0
    for each in os.listdir("/dev/fd"):
        with suppress(OSError):
            count += os.path.samestat(os.fstat(int(each)), found)
    return count


def _is_locked_by_sqlite(path: Path) -> bool:
    """Return True if another process cannot get the lock of the last one to close the file."""
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)\n"
        "    except BlockingIOError: print('locked')\n"
    )
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout != b""


async def _open_and_close(path: Path) -> None:
    async with open_sqlite(path):
        pass
