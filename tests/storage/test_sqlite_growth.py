"""A store in an SQLite file keeps history by count, bytes and age, and its file does not grow with churn."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from headway.errors import HistoryCompacted, InvalidArgument
from headway.resource import Position
from headway.storage import Backend, SqliteBackend, StoreMismatch, check_store, open_sqlite, open_store
from headway.storage.sqlite import _history
from headway.storage.sqlite._rows import resource_from
from headway.storage.sqlite._writer import TRIM_BYTES
from headway.testing.conformance import EVERYTHING, KIND, put, reading, thing
from tests.storage.sqlite_kit import opened_plainly, set_limit


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"max_changes": 0}, "max_changes must be a whole number >= 1, not 0"),
        ({"max_changes": -5}, "max_changes must be a whole number >= 1, not -5"),
        ({"max_changes": 2.5}, "max_changes must be .*, not 2.5"),
        ({"max_changes": True}, "max_changes must be .*, not True"),
        ({"max_age": 0}, "max_age must be a finite number of seconds above 0, not 0"),
        ({"max_age": -1.0}, "max_age must be .*, not -1.0"),
        ({"max_age": float("inf")}, "max_age must be .*, not inf"),
        ({"max_age": float("nan")}, "max_age must be .*, not nan"),
        ({"max_age": "1h"}, "max_age must be .*, not '1h'"),
        ({"max_bytes": 0}, "max_bytes must be a whole number >= 1, not 0"),
        ({"max_bytes": 1e9}, "max_bytes must be .*, not 1000000000.0"),
        ({"max_bytes": True}, "max_bytes must be .*, not True"),
    ],
)
def test_invalid_bounds_are_refused(named: dict[str, object], message: str) -> None:
    """The error comes before the file is opened, and has the value and an example."""
    with pytest.raises(InvalidArgument, match=message):
        SqliteBackend("a.db", **named)  # type: ignore[arg-type]  # the invalid value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("max_changes=0", "max_changes must be a whole number >= 1, not 0"),
        ("max_changes=many", "max_changes must be a whole number >= 1, not 'many'"),
        ("max_age=1h", "max_age must be a finite number of seconds above 0, not '1h'"),
        ("max_bytes=256M", "max_bytes must be a whole number >= 1, not '256M'"),
        ("max_ages=1", "unknown option 'max_ages'; known are max_changes, max_age and max_bytes, as in sqlite:staff"),
        ("max_age=1&max_age=2", "duplicate option 'max_age'"),
        ("", "unknown option ''"),
    ],
)
def test_unknown_url_options_are_refused(options: str, message: str) -> None:
    """The error lists the known options and has the url."""
    with pytest.raises(InvalidArgument, match=message):
        open_store(f"sqlite:a.db?{options}")


async def test_url_option_bounds_the_history(tmp_path: Path) -> None:
    """Watches resume within the bound by count, and earlier positions fail as compacted."""
    async with open_store(f"sqlite:{tmp_path}/a.db?max_changes=5&max_age=7200") as backend:
        positions = [await put(backend, thing(f"n{index}")) for index in range(10)]
        await _resumable(backend, positions[4])
        await _gone(backend, positions[3])
    assert (tmp_path / "a.db").exists()


async def test_history_is_kept_by_age_across_a_restart(tmp_path: Path, mock_clock: MockClock) -> None:
    """A running process measures age by its own clock; between two processes the wall clock counts."""
    url = f"sqlite:{tmp_path}/a.db?max_age=100"
    async with open_store(url) as backend:
        old = await put(backend, thing("old"))
        mock_clock.jump(99)
        new = await put(backend, thing("new"))
        await _resumable(backend, old._replace(revision=0))
        mock_clock.jump(2)
        newest = await put(backend, thing("newest"))
        await _gone(backend, old._replace(revision=0))
        await _resumable(backend, old)
    with opened_plainly(tmp_path / "a.db") as plain:
        plain.execute("UPDATE history SET time = time - 101 WHERE revision <= ?", (new.revision,))
    async with open_store(url) as backend:
        await _resumable(backend, newest)
        await _gone(backend, old)
        await _resumable(backend, new)


async def _resumable(backend: Backend, after: Position) -> None:
    reader = await reading(backend, after=after)
    await reader.until(backend.position.revision)


async def _gone(backend: Backend, after: Position) -> None:
    with pytest.raises(HistoryCompacted):
        await backend.watch(KIND, EVERYTHING, after)


async def test_commits_from_a_clock_that_was_ahead_become_old(tmp_path: Path, mock_clock: MockClock) -> None:
    """They count as new when the store is opened. Otherwise they would be kept until the clock has caught up."""
    url = f"sqlite:{tmp_path}/a.db?max_age=100"
    async with open_store(url) as backend:
        old = await put(backend, thing("old"))
    with opened_plainly(tmp_path / "a.db") as plain:
        plain.execute("UPDATE history SET time = time + 1e6")
    async with open_store(url) as backend:
        await _resumable(backend, old._replace(revision=0))
        mock_clock.jump(101)
        await put(backend, thing("new"))
        await _gone(backend, old._replace(revision=0))


@pytest.mark.parametrize("bounds", [{"max_bytes": 1}, {"max_age": 100.0}], ids=["bytes", "age"])
async def test_newest_commit_survives_a_restart_however_large_and_old(bounds: dict[str, Any], tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "a.db") as backend:
        positions = [await put(backend, thing(name)) for name in ("a", "b", "c")]
    with opened_plainly(tmp_path / "a.db") as plain:
        plain.execute("UPDATE history SET time = time - 1000")
    async with open_sqlite(tmp_path / "a.db", **bounds) as backend:
        await _gone(backend, positions[0])
        await _resumable(backend, positions[1])


@pytest.mark.parametrize(
    "bounds", [{"max_bytes": 45_000}, {"max_age": 100.0}, {"max_changes": 4}], ids=["bytes", "age", "count"]
)
async def test_opening_reads_no_history_beyond_the_bounds(
    bounds: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier program kept up to 100,000 changes of any size: their bodies would fill the memory."""
    path, positions = tmp_path / "a.db", list[Position]()
    async with open_sqlite(path) as backend:
        for _ in range(40):
            version = str(positions[-1].revision) if positions else ""
            positions.append(await put(backend, thing("a", "x" * 10_000, uid="u"), version))
    with opened_plainly(path) as plain:
        plain.execute("UPDATE history SET time = time - 1000 WHERE revision <= ?", (positions[-5].revision,))
    decoded: list[int] = []

    def counted(version: int, *row: Any) -> Any:
        decoded.append(version)
        return resource_from(version, *row)

    monkeypatch.setattr(_history, "resource_from", counted)
    async with open_sqlite(path, **bounds) as backend:
        assert decoded == [each.revision for each in positions[-4:]]
        await _gone(backend, positions[-6])
        await _resumable(backend, positions[-5])
    assert await check_store(f"sqlite:{path}") == []


async def test_file_does_not_grow_with_bytes_of_one_resource(tmp_path: Path) -> None:
    """Its history is bounded by bytes too. Opened again with a smaller bound, it keeps less of what it has."""
    path, size, bound = tmp_path / "a.db", 2**20, 8 * 2**20
    positions: list[Position] = []
    for opened_with in (bound, bound // 2):
        async with open_store(f"sqlite:{path}?max_bytes={opened_with}") as backend:
            for _ in range(20):
                version = str(positions[-1].revision) if positions else ""
                positions.append(await put(backend, thing("a", "x" * size, uid="u"), version))
            kept = opened_with // size - 1
            await _resumable(backend, positions[-1 - kept])
            await _gone(backend, positions[-2 - kept])
        with opened_plainly(path) as plain:
            (stored,) = plain.execute("SELECT sum(length(body)) FROM history").fetchone()
        assert stored <= opened_with + TRIM_BYTES + 2 * size
        assert path.stat().st_size <= bound + TRIM_BYTES + 4 * size


@pytest.mark.wide
async def test_file_does_not_grow_with_churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After history is full, ten times as much is written: SQLite reuses the pages of trimmed history."""
    set_limit(monkeypatch, "TRIM_STEP", 100)
    path = tmp_path / "a.db"
    sizes: list[int] = []
    versions: dict[str, str] = {}

    async def churn(writer: int) -> None:
        for index in range(25):
            name = f"n{writer}-{index % 5}"
            at = await put(backend, thing(name, "x" * 400, uid=name), versions.get(name, ""))
            versions[name] = str(at.revision)

    async with open_sqlite(path, max_changes=400) as backend:
        for _ in range(11):
            async with trio.open_nursery() as nursery:
                for writer in range(16):
                    nursery.start_soon(churn, writer)
            with opened_plainly(path) as plain:
                (pages,) = plain.execute("PRAGMA page_count").fetchone()
                sizes.append(pages)
            assert Path(f"{path}-wal").stat().st_size < 6 * 2**20  # noqa: ASYNC240  # its size alone
    assert max(sizes) < 1.3 * sizes[1], sizes
    assert sizes[-1] * 4096 < 1_500_000, "the file is too large for 80 resources and about 500 changes of 700 bytes"


async def test_write_ahead_log_does_not_grow_under_constant_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite restarts the log only when nothing reads it. With overlapping readers that never happens."""
    set_limit(monkeypatch, "LONGEST_LOG", 2**20)
    path = tmp_path / "a.db"
    longest = 0
    stop = threading.Event()
    began = threading.Event()

    def read() -> None:
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as one,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            while not stop.is_set():
                # Each read begins before the other one ends.
                one.execute("BEGIN").execute("SELECT * FROM meta").fetchall()
                if other.in_transaction:
                    other.execute("ROLLBACK")
                began.set()
                stop.wait(0.01)
                one, other = other, one

    async with open_sqlite(path) as backend, trio.open_nursery() as nursery:
        await put(backend, thing("first", uid="u"))
        nursery.start_soon(trio.to_thread.run_sync, read)
        try:
            await trio.to_thread.run_sync(began.wait, 20)
            for index in range(150):
                await put(backend, thing("first", "x" * 50_000, uid="u"), str(backend.position.revision))
                if index % 10 == 0:
                    longest = max(longest, Path(f"{path}-wal").stat().st_size)  # noqa: ASYNC240  # its size alone
        finally:
            stop.set()
    assert longest < 3 * 2**20, "the log was not restarted while 15 MB were written"


async def test_file_does_not_grow_with_reopening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its last openings, whether or not they wrote anything.

    A position in a forgotten opening takes a snapshot. A position above all forgotten openings, and in none, belongs to
    another store.
    """
    set_limit(monkeypatch, "SESSIONS_KEPT", 5)
    positions: list[Position] = []
    for index in range(20):
        async with open_sqlite(tmp_path / "a.db") as backend:
            if index % 3 == 0:
                await put(backend, thing(f"n{index}"))
            positions.append(backend.position)
            if index >= 5:
                for known in positions[-5:]:
                    await _resumable(backend, known)
                await _gone(backend, positions[-6])
                with pytest.raises(StoreMismatch):
                    await backend.watch(KIND, EVERYTHING, positions[-6]._replace(revision=positions[-1].revision))
    with opened_plainly(tmp_path / "a.db") as plain:
        (count,) = plain.execute("SELECT count(*) FROM incarnations").fetchone()
    assert count == 5
    assert await check_store(f"sqlite:{tmp_path}/a.db") == []


@pytest.mark.parametrize("path", ["//staff.db", "///var/lib/staff.db"])
def test_url_with_the_slashes_of_other_libraries_is_refused(path: str) -> None:
    """As a path, it would create a file at the root of the file system."""
    with pytest.raises(InvalidArgument, match=r"such as sqlite:staff\.db or sqlite:/var/lib/staff\.db"):
        open_store(f"sqlite:{path}")
