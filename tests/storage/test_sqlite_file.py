"""The file of a store has one holder at a time, survives ``kill -9``, and foreign files stay unchanged."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio

from headway.errors import StoreUnusable
from headway.storage import open_sqlite
from headway.testing.conformance import names, put, putting, thing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the lock is flock's")

HOLD = """
import sys, trio
from headway.storage import open_sqlite

async def main():
    async with open_sqlite(sys.argv[1]):
        print("open", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


class Child:
    """Another process, whose output lines are read until it is killed."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self) -> list[str]:
        """Return the words of the next complete line, or none at the end of the output."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            received = await self.process.stdout.receive_some()
            if not received:
                return []
            self._rest += received
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode().split()

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def _start(nursery: trio.Nursery, script: str, *arguments: object) -> Child:
    command = [sys.executable, "-c", script, *map(str, arguments)]

    async def task(*, task_status: trio.TaskStatus[trio.Process]) -> None:
        await trio.run_process(command, stdout=subprocess.PIPE, check=False, task_status=task_status)

    process: trio.Process = await nursery.start(task)
    return Child(process)


# --- One holder ----------------------------------------------------------------


async def test_second_process_is_refused_with_the_holder_in_the_error(tmp_path: Path) -> None:
    """It names the file and the holder's pid, program and start. After a kill the file can be opened."""
    path = tmp_path / "a.db"
    async with trio.open_nursery() as nursery:
        child = await _start(nursery, HOLD, path)
        assert await child.line() == ["open"]
        with pytest.raises(StoreUnusable) as caught:
            await _open_and_close(path)
        for part in (str(path), f"process {child.pid} on ", sys.executable, "since 20", "end that process"):
            assert part in str(caught.value)
        await child.kill()
    assert (tmp_path / "a.db.lock").exists(), "the lock file of the killed process is missing"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))


async def test_second_opening_in_one_process_is_refused(tmp_path: Path) -> None:
    """Another path to the same file is refused, too. The first opening is undisturbed."""
    path = tmp_path / "a.db"
    (tmp_path / "link.db").symlink_to(path)
    async with open_sqlite(path) as backend:
        for other in (path, tmp_path / "link.db", tmp_path / "." / "a.db"):
            with pytest.raises(StoreUnusable, match="is open in this process already: use the store that is open"):
                await _open_and_close(other)
        with pytest.raises(StoreUnusable, match="already open"):
            async with backend:
                pass
        await put(backend, thing("a"))
        assert await names(backend) == ["a"]
    await _open_and_close(tmp_path / "link.db")


@pytest.mark.skipif(sys.platform != "linux", reason="another system does not say who holds a lock")
async def test_holder_without_a_name_in_its_lock_is_named(tmp_path: Path) -> None:
    """A holder has the lock before it writes its name there."""
    path = tmp_path / "a.db"
    async with trio.open_nursery() as nursery:
        child = await _start(nursery, HOLD, path)
        assert await child.line() == ["open"]
        (tmp_path / "a.db.lock").write_bytes(b"")
        with pytest.raises(StoreUnusable, match=f"is held by process {child.pid}; end that process"):
            await _open_and_close(path)
        await child.kill()


async def _open_and_close(path: Path | str) -> None:
    async with open_sqlite(path):
        pass


# --- Refused unchanged ---------------------------------------------------------


def _sqlite_file(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS theirs (x)")
        for statement in statements:
            connection.execute(statement)


async def _store(path: Path) -> None:
    async with open_sqlite(path) as backend:
        await backend.commit([putting(thing(f"n{index}", "x" * 500)) for index in range(100)])


def _overwrite(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a text": (lambda path: path.write_text("Dear diary, " * 50), "it is not an SQLite file; give another path"),
    "a short text": (lambda path: path.write_text("hi"), "it is not an SQLite file"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), "it is not an SQLite file"),
    "a header cut off": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(30)), "it ends within its header"),
    "a magic cut off": (lambda path: path.write_bytes(b"SQLite"), "it ends within its header"),
    "a file of another program": (
        _sqlite_file,
        r"SQLite file of another program \(application_id 0x0, not 0x48645779\)",
    ),
    "a file with the id of another program": (
        lambda path: _sqlite_file(path, "PRAGMA application_id = 7"),
        r"another program \(application_id 0x7,",
    ),
    "a file of another program with a log": (
        lambda path: _sqlite_file(path, "PRAGMA journal_mode = WAL", "INSERT INTO theirs VALUES (1)"),
        "another program",
    ),
    "a file of a newer version": (
        lambda path: _sqlite_file(path, f"PRAGMA application_id = {0x48645779}", "PRAGMA user_version = 12"),
        "has format 12; this program knows formats up to 3: use a newer Headway",
    ),
}


@pytest.mark.parametrize(("make", "message"), FOREIGN.values(), ids=FOREIGN)
async def test_foreign_file_is_refused_unchanged(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    """No other file is created."""
    path = tmp_path / "theirs"
    make(path)
    before = _everything_in(tmp_path)
    with pytest.raises(StoreUnusable, match=message) as caught:
        await _open_and_close(path)
    assert str(path) in str(caught.value)
    assert _everything_in(tmp_path) == before


def _everything_in(directory: Path) -> dict[str, bytes]:
    return _contents(*directory.iterdir())


def _contents(*paths: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def _without_head(path: Path) -> None:
    _sqlite_file(path, "DROP TABLE theirs", "DELETE FROM meta WHERE key = 'head'")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (lambda path: os.truncate(path, path.stat().st_size // 2), "is truncated: it has"),
    "cut off within a page": (lambda path: os.truncate(path, path.stat().st_size - 7), "is truncated"),
    "pages overwritten": (lambda path: _overwrite(path, 4096 * 12, b"\xaa" * 4096 * 8), "is damaged: "),
    "the schema overwritten": (lambda path: _overwrite(path, 100, bytes(1000)), "is damaged: "),
    "a row missing": (_without_head, "is damaged: its table meta has no head"),
    "a table missing": (lambda path: _sqlite_file(path, "DROP TABLE fences"), "is damaged: no such table: fences"),
    "a head too low": (
        lambda path: _sqlite_file(path, "UPDATE meta SET value = 0 WHERE key = 'head'"),
        "is damaged: it holds revision 1, above its last one, 0",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
async def test_damaged_store_is_refused_unchanged(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """The error names the damage and the remedy."""
    path = tmp_path / "a.db"
    await _store(path)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=message) as caught:
        await _open_and_close(path)
    assert "estore a copy" in str(caught.value)
    assert "Nothing was changed" in str(caught.value)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]


async def test_damaged_store_with_a_write_ahead_log_is_refused_unchanged(tmp_path: Path) -> None:
    """After a crash, the log has changes: neither the log nor the file is modified."""
    path, crashed = tmp_path / "a.db", tmp_path / "crashed.db"
    await _store(path)
    async with open_sqlite(path) as backend:
        await put(backend, thing("in the log"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    _overwrite(crashed, 4096 * 12, b"\xaa" * 4096 * 8)
    before = _contents(crashed, Path(f"{crashed}-wal"))
    with pytest.raises(StoreUnusable, match="is damaged"):
        await _open_and_close(crashed)
    assert _contents(crashed, Path(f"{crashed}-wal")) == before


async def test_write_ahead_log_without_its_file_is_refused_unchanged(tmp_path: Path) -> None:
    """SQLite would replay the log into a new file, but its content belongs to the missing file."""
    path = tmp_path / "a.db"
    log = tmp_path / "a.db-wal"
    log.write_bytes(b"changes of a store that was there")
    for touch in (False, True):
        if touch:
            path.touch()
        with pytest.raises(StoreUnusable, match=r"is missing or empty, but .*a\.db-wal holds changes"):
            await _open_and_close(path)
        assert log.read_bytes() == b"changes of a store that was there"
    log.unlink()
    await _store(path)


async def test_path_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    """It is a directory, in a missing directory, SQLite's name for memory, or its lock cannot be made."""
    (tmp_path / "file").touch()
    (tmp_path / "locked.db.lock").mkdir()
    for path, message in {
        str(tmp_path): "is a directory; give the path of a file in it, like ",
        str(tmp_path / "missing" / "a.db"): "directory .*missing not found; create it first",
        str(tmp_path / "file" / "a.db"): "directory .*file not found; create it first",
        ":memory:": 'is not a file path; for a store in memory use "memory:"',
        "": "is not a file path",
        "file:a.db?mode=memory": "is not a file path",
        str(tmp_path / "locked.db"): r"locked\.db\.lock, the store's lock, cannot be opened",
    }.items():
        with pytest.raises(StoreUnusable, match=message):
            await _open_and_close(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "locked.db.lock"]


async def test_empty_or_unfinished_file_becomes_a_store(tmp_path: Path) -> None:
    """An empty file counts as new. A store that was not complete when its process ended is made again."""
    path = tmp_path / "a.db"
    path.touch()
    (tmp_path / "a.db.new").write_bytes(b"SQLite format 3\0 and half a page")
    (tmp_path / "a.db.new-journal").write_bytes(b"half a journal")
    await _store(path)
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]


async def test_path_may_contain_any_characters(tmp_path: Path) -> None:
    """Characters with a meaning in a URI work, too."""
    path = tmp_path / "50% of a?b#c d\N{SNOWMAN}.db"
    await _store(path)
    async with open_sqlite(path) as backend:
        assert len(await names(backend)) == 100


# --- Killed --------------------------------------------------------------------
