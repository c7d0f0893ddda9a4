"""The store in an SQLite file reports a failing disk, and another program that moves or writes the file."""

import errno
import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import OutcomeUnknown, StoreUnusable, WriteRejected
from headway.storage import Backend, SqliteBackend, VersionConflict, check_store, open_sqlite
from headway.testing.conformance import EVERYTHING, KIND, Reader, names, put, reading, thing
from tests.storage.sqlite_kit import (
    CONNECTING,
    READERS,
    Gate,
    expect_unusable,
    fail_commits,
    hold_lists,
    opened_plainly,
    replace_connect,
    set_limit,
)


async def test_store_without_a_descriptor_for_its_threads_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be opened later, and has kept no descriptor."""
    pipe = os.pipe
    made: list[tuple[int, int]] = []

    def scarce() -> tuple[int, int]:
        if len(made) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(pipe())
        return made[-1]

    async with open_sqlite(tmp_path / "a.db"):
        pass
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", scarce)
        with pytest.raises(StoreUnusable, match="cannot be opened: Too many open files"):
            await SqliteBackend(tmp_path / "a.db").__aenter__()
    assert len(os.listdir("/proc/self/fd")) == before
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"))


async def test_full_disk_rejects_the_whole_batch(tmp_path: Path) -> None:
    """Each writer of the batch gets the error. Once there is space again, the store continues."""
    refusals: list[str] = []

    async def write(name: str) -> None:
        with pytest.raises(WriteRejected, match=r"full \(free some space on .*\)\. Nothing was written") as caught:
            await put(backend, thing(name, "x" * 100_000))
        refusals.append(str(caught.value))

    async with open_sqlite(tmp_path / "a.db") as backend:
        here = await put(backend, thing("before"))
        assert backend._opened is not None
        writer = backend._opened.file.writer
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        async with trio.open_nursery() as nursery:
            for index in range(5):
                nursery.start_soon(write, f"n{index}")
        assert len(refusals) == 5
        assert backend.position == here
        assert await names(backend) == ["before"]
        writer.execute("PRAGMA max_page_count = 1000000")
        assert (await put(backend, thing("after", "x" * 100_000))).revision == here.revision + 1


async def test_failure_during_the_flush_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_gate: Gate
) -> None:
    """Writers get OutcomeUnknown, a rejected one its rejection. From then on the store refuses everything."""
    path = tmp_path / "a.db"
    outcomes: list[type[BaseException]] = []

    async def write(backend: Backend, expected: str) -> None:
        try:
            await put(backend, thing(f"n{expected}"), expected)
        except (OutcomeUnknown, VersionConflict) as error:
            outcomes.append(type(error))

    async with open_sqlite(path) as backend:
        waiting = await reading(backend)
        await waiting.until_snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_unusable, _until_failure(waiting))
            nursery.start_soon(put, backend, thing("in time"))
            await commit_gate.reached()
            fail_commits(monkeypatch, sqlite3.SQLITE_IOERR)
            nursery.start_soon(write, backend, "")
            nursery.start_soon(write, backend, "7")
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()
        assert set(outcomes) == {OutcomeUnknown, VersionConflict}
        for attempt in (lambda: put(backend, thing("x")), lambda: names(backend), lambda: reading(backend)):
            await expect_unusable(attempt)
    monkeypatch.undo()
    async with open_sqlite(path) as backend:
        assert await names(backend) == ["in time"]


def _until_failure(reader: Reader) -> Callable[[], object]:
    return lambda: reader.until(1_000_000)


async def test_full_disk_at_the_commit_is_a_rejection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLITE_FULL at COMMIT means that the commit's mark was not written, so nothing was. The store continues."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        with monkeypatch.context() as patch:
            fail_commits(patch, sqlite3.SQLITE_FULL)
            with pytest.raises(StoreUnusable, match="Nothing was written"):
                await put(backend, thing("a"))
        assert await names(backend) == []
        await put(backend, thing("a"))


async def test_moved_file_rejects_writes(tmp_path: Path) -> None:
    """A write into a file that is no longer at its path would be acknowledged and lost."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnusable, match=r"was moved or removed while it was open\. Nothing was written"):
            await put(backend, thing("b"))
        with pytest.raises(StoreUnusable, match="moved or removed"):
            await backend.list(KIND, EVERYTHING)


READ_AND_CLOSE = (
    "import contextlib, sqlite3, sys\n"
    "with contextlib.closing(sqlite3.connect(sys.argv[1])) as plain:\n"
    "    plain.execute('SELECT count(*) FROM meta').fetchone()\n"
)
"""The program of a process that takes itself for the last one that has a store open, if it has no locks."""


async def test_removed_write_ahead_log_rejects_writes(tmp_path: Path) -> None:
    """A commit in it would be acknowledged, and lost with the process. The check of the engine notices it, too."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        path.read_bytes()  # closing the file releases all locks of this process on it
        await trio.run_process([sys.executable, "-c", READ_AND_CLOSE, str(path)])
        assert not path.with_name("a.db-wal").exists()
        with pytest.raises(StoreUnusable, match=r"has lost its write-ahead log .*backup_store\. Nothing was written"):
            await backend.probe()
        with pytest.raises(StoreUnusable, match="write-ahead log"):
            await put(backend, thing("b"))
    async with open_sqlite(path) as backend:
        assert await names(backend) == ["a"]


async def test_write_ahead_log_removed_during_a_commit_is_an_unknown_outcome(tmp_path: Path, commit_gate: Gate) -> None:
    path = tmp_path / "a.db"

    async def write() -> None:
        with pytest.raises(OutcomeUnknown, match="its write-ahead log was removed"):
            await put(backend, thing("b"))

    async with open_sqlite(path) as backend, trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await commit_gate.reached()
        path.with_name("a.db-wal").unlink()
        commit_gate.open()


async def test_reads_never_reopen_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another store in its place, every reader still reads the file that was opened."""
    gate = Gate()
    found: list[list[str]] = []

    async def read() -> None:
        found.append(await names(backend))

    path = tmp_path / "a.db"
    set_limit(monkeypatch, "PAGE_CONNECTIONS", READERS)
    hold_lists(monkeypatch, gate)
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await gate.reached()
            _move_store(path, tmp_path)
            for _ in range(READERS - 1):
                nursery.start_soon(read)
                await gate.reached()
            async with open_sqlite(path) as stranger:
                await put(stranger, thing("b"))
                nursery.start_soon(read)
                gate.open()
        assert found == [["a"]] * (READERS + 1)


@pytest.mark.parametrize("module", CONNECTING)
async def test_file_that_vanishes_while_it_is_opened_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection fails with the path. The file can be opened later."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
    with monkeypatch.context() as patch:
        replace_connect(patch, module, partial(_without_file, path))
        with pytest.raises(StoreUnusable, match=r"a\.db could not be opened: unable to open database file"):
            async with open_sqlite(path):
                pytest.fail("the store was opened")
    async with open_sqlite(path) as backend:
        assert await names(backend) == ["a"]


async def test_file_that_vanishes_before_it_is_checked_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails with the path. It has no finding, because it has read nothing."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        replace_connect(monkeypatch, "inspect", partial(_without_file, path))
        with pytest.raises(StoreUnusable, match=r"a\.db could not be opened: unable to open database file"):
            await check_store(f"sqlite:{path}")


async def test_open_store_does_not_check_the_file_of_another(tmp_path: Path) -> None:
    """The check of an open store fails once the path leads to another store."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        _move_store(path, tmp_path)
        async with open_sqlite(path):
            with pytest.raises(StoreUnusable, match="moved or removed"):
                await backend.check_itself()


def _move_store(path: Path, folder: Path) -> None:
    """Move the file, and all files that belong to it, to a directory of its own."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    for file in folder.glob(f"{path.name}*"):
        file.rename(elsewhere / file.name)


def _without_file(path: Path, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    """Move the file away during each call of ``connect``, as another program may."""

    def without(*arguments: object, **named: object) -> sqlite3.Connection:
        away = path.rename(f"{path}.away")
        try:
            return connect(*arguments, **named)
        finally:
            away.rename(path)

    return without


async def test_file_written_by_another_program_rejects_writes(tmp_path: Path) -> None:
    """The store notices a head that moved despite its lock, before it gives out a revision twice."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
        with opened_plainly(path) as plain:
            plain.execute("UPDATE meta SET value = 7 WHERE key = 'head'")
        with pytest.raises(StoreUnusable, match="is at revision 7, not at 1: another program has written to it"):
            await put(backend, thing("b"))
