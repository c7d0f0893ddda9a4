"""The store in an SQLite file opens the files of earlier versions, stored here as those versions wrote them.

The files in `formats` have: kept (owned by o), gone (removed at revision 3), a raised fence, changed (written twice),
and long (whose body does not fit a page). The first file is older than leases. In the others, reports/web-1 holds a
lease.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from headway.errors import HistoryCompacted, StoreUnusable
from headway.protobuf import copy_message
from headway.resource import Position
from headway.storage import Fence, FenceLowered, Within, open_sqlite
from headway.testing.conformance import EVERYTHING, Reader, put, reading, summary, thing
from tests.storage.sqlite_kit import FORMAT, Connect, fail_upgrade, opened_plainly, replace_connect

FORMATS = Path(__file__).parent / "formats"
EVERY_FORMAT = pytest.mark.parametrize("name", sorted(path.name for path in FORMATS.glob("*.db")))
LONG_AGO = 10 * 365 * 86_400.0
KIND_THEN = ("test", "Thing")


def copied(name: str, folder: Path) -> Path:
    shutil.copy(FORMATS / name, folder / "a.db")
    return folder / "a.db"


def _shape(path: Path) -> list[tuple[str, ...]]:
    with opened_plainly(path) as plain:
        rows = plain.execute("SELECT name, type, sql FROM sqlite_master ORDER BY name").fetchall()
        return [(name, type, " ".join((sql or "").split())) for name, type, sql in rows]


@EVERY_FORMAT
async def test_file_of_an_earlier_format_keeps_all_its_content(tmp_path: Path, name: str) -> None:
    """Resources, owners, history, positions, fences and the store's id are unchanged in today's tables."""
    path = copied(name, tmp_path)
    with opened_plainly(path) as plain:
        meta = dict(plain.execute("SELECT key, value FROM meta").fetchall())
        ((left, last),) = plain.execute(
            "SELECT incarnation, first_revision FROM incarnations WHERE last_revision IS NULL"
        )
    async with open_sqlite(path, max_age=LONG_AGO) as backend:
        here = backend.position
        assert (here.store_id, here.revision) == (meta["store_id"], meta["head"])
        found, _ = await backend.list(KIND_THEN, EVERYTHING)
        texts = {each.id.name: each.metadata["text"] for each in found if each.id is not None}
        assert texts == {"kept": "first words", "changed": "two", "long": "x" * 6000}
        assert [each.version for each in (await backend.list_by_owner("o"))[0]] == ["1"]
        old = here._replace(session=left)
        watch = await backend.watch(KIND_THEN, EVERYTHING, old._replace(revision=last))
        watch.close()
        reader = await reading(backend, after=await _first_position(path), kind=KIND_THEN)
        await reader.until(here.revision)
        assert [(fact[1], fact[2]) for fact in summary(reader.changes)] == [
            ("gone", False),
            ("gone", True),
            ("changed", False),
            ("changed", False),
            ("long", False),
        ]
        with pytest.raises(FenceLowered):
            await put(backend, thing("late"), fence=Fence("staff/teams", "m", 0, 9))
        assert (await backend.raise_fence("staff/teams", "m", 0, 0)).fence.term == 2
        leases, _ = await backend.list_leases()
        assert [each.lease.name for each in leases] == ([] if name == "1-without-leases.db" else ["staff/reports"])
        assert (await put(backend, thing("new"))).revision == here.revision + 2
    async with open_sqlite(tmp_path / "new.db"):
        pass
    assert _shape(path) == _shape(tmp_path / "new.db")


async def _first_position(path: Path) -> Position:
    with opened_plainly(path) as plain:
        ((store_id,),) = plain.execute("SELECT value FROM meta WHERE key = 'store_id'")
        ((incarnation,),) = plain.execute("SELECT incarnation FROM incarnations WHERE first_revision = 1")
    return Position(store_id, incarnation, 1)


@EVERY_FORMAT
async def test_watch_by_metadata_resumes_only_after_the_upgrade(tmp_path: Path, name: str) -> None:
    """The file has no states before the changes in its history. From the upgrade on, the store keeps them."""
    path = copied(name, tmp_path)
    first, scope = await _first_position(path), Within(metadata=(("text", "two"),))
    async with open_sqlite(path, max_age=LONG_AGO) as backend:
        with pytest.raises(HistoryCompacted, match="the states before changes are kept after"):
            await backend.watch(KIND_THEN, scope, first)
        upgraded = backend.position
        stored, _ = await backend.read(KIND_THEN, ("default", "default", "changed"))
        assert stored is not None
        later = copy_message(stored)
        later.metadata = {"text": "three"}
        await put(backend, later, expected=stored.version)
    async with open_sqlite(path, max_age=LONG_AGO) as backend:
        reader = Reader(await backend.watch(KIND_THEN, scope, upgraded))
        await reader.until(backend.position.revision)
        assert [(each.resource.metadata["text"], each.deleted) for each in reader.changes] == [("two", True)]
        assert await backend.check_itself() == []


@EVERY_FORMAT
async def test_failed_upgrade_leaves_the_file_in_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherever the upgrade fails, the file keeps its format and its content. The next opening upgrades it."""
    path = copied(name, tmp_path)
    before = _shape(path)
    with monkeypatch.context() as patch:
        fail_upgrade(patch)
        with pytest.raises(StoreUnusable, match="no such table: no_such_table"):
            async with open_sqlite(path):
                pass
    assert _shape(path) == before
    async with open_sqlite(path) as backend:
        assert len((await backend.list(KIND_THEN, EVERYTHING))[0]) == 3


async def test_upgrade_without_space_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that the disk is full."""
    path = copied("1.db", tmp_path)

    def short_of_room(connect: Connect) -> Connect:
        def connect_with_few_pages(path: str) -> sqlite3.Connection:
            connection = connect(path)
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")
            return connection

        return connect_with_few_pages

    with monkeypatch.context() as patch:
        replace_connect(patch, "file", short_of_room)
        with pytest.raises(StoreUnusable, match="free some space on its disk"):
            async with open_sqlite(path):
                pass
    async with open_sqlite(path) as backend:
        assert len((await backend.list(KIND_THEN, EVERYTHING))[0]) == 3


async def test_newer_format_in_the_write_ahead_log_is_refused_unchanged(tmp_path: Path) -> None:
    """A newer version that was killed after its upgrade has left the old number in the file's own header."""
    path, crashed, log = tmp_path / "a.db", tmp_path / "crashed.db", tmp_path / "crashed.db-wal"
    async with open_sqlite(path) as backend:
        await put(backend, thing("a"))
    with opened_plainly(path) as newer:
        newer.execute("PRAGMA user_version = 12")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    assert crashed.read_bytes()[60:64] != (12).to_bytes(4, "big")
    before = log.read_bytes()
    with pytest.raises(StoreUnusable, match="has format 12; this program knows formats up to"):
        async with open_sqlite(crashed):
            pass
    assert log.read_bytes() == before


async def test_header_tells_an_older_version_that_the_file_is_newer(tmp_path: Path) -> None:
    """The header of a closed file has the number that makes an older version refuse the file."""
    path = copied("1.db", tmp_path)
    async with open_sqlite(path):
        pass
    assert path.read_bytes()[60:64] == FORMAT.to_bytes(4, "big")
