"""The check of a store in an SQLite file finds damage in each table, and finds nothing in an intact store."""

import re
import shutil
from pathlib import Path

import pytest

from headway.errors import InvalidArgument, StoreUnusable
from headway.storage import check_store, open_sqlite
from headway.testing.conformance import names, put, putting, remove, removing, thing
from tests.storage.sqlite_kit import opened_plainly
from tests.storage.test_sqlite_formats import FORMATS


async def _store(path: Path) -> None:
    async with open_sqlite(path) as backend:
        at = await put(backend, owner := thing("owner", uid="u-owner"))
        await put(backend, thing("owned", owner_uid="u-owner", uid="u-owned"))
        await put(backend, owner, str(at.revision))
        await backend.commit([putting(thing(f"n{index}", "x" * 300)) for index in range(60)])
        at = await put(backend, gone := thing("gone"))
        await remove(backend, gone, str(at.revision))
        await backend.raise_fence("c", "m", 0, 0)
        await backend.acquire_lease("c#held", "web-1", 3600)
    async with open_sqlite(path) as backend:
        await put(backend, thing("later"))


async def _found(path: Path) -> list[str]:
    return [str(finding) for finding in await check_store(f"sqlite:{path}")]


async def test_check_finds_nothing_in_an_intact_store(tmp_path: Path) -> None:
    """The store is closed, open during writes, left by a crash, with trimmed history, and restored."""
    path = tmp_path / "a.db"
    await _store(path)
    assert await _found(path) == []
    async with open_sqlite(path, max_changes=3) as backend:
        at = await put(backend, resource := thing("more"))
        await backend.commit([removing(resource, str(at.revision)), putting(thing("one more"))])
        assert await _found(path) == []
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{tmp_path}/crashed.db{suffix}")
        assert await _found(tmp_path / "crashed.db") == []
        assert "one more" in await names(backend), "the check has released a lock of the store"
    with opened_plainly(path) as plain:
        plain.execute("DELETE FROM history WHERE revision <= 4")
        plain.execute("UPDATE meta SET value = 4 WHERE key = 'history_floor'")
    assert await _found(path) == []


RESOURCE = "UPDATE resources SET {} WHERE name = 'owned'"
HISTORY = "UPDATE history SET {} WHERE revision = 2"
FENCE = "UPDATE fences SET {} WHERE member = '{}'"
FLOOR = "UPDATE meta SET value = {} WHERE key = 'history_floor'"
DAMAGED = "owned: the resource stored at revision 2 is damaged"
DAMAGE: dict[str, tuple[str, str]] = {
    "a body": (RESOURCE.format("body = x'0a03666f6f' || body"), DAMAGED),
    "a body's end": (RESOURCE.format("body = CAST(body || x'00' AS BLOB)"), DAMAGED),
    "a revision": (RESOURCE.format("revision = 5"), "owned: revision 5, but history has it written at 2"),
    "a revision too high": (RESOURCE.format("revision = 99"), "meta: it holds revision 99, above its last one, 9"),
    "a uid": (RESOURCE.format("uid = 'other'"), "owned: its row says uid other, but holds another"),
    "a uid twice": (RESOURCE.format("uid = 'u-owner'"), "uid u-owner: both .*owned and .*owner have it"),
    "an owner": (RESOURCE.format("owner_uid = ''"), "owned: its row says owner none"),
    "a name": (RESOURCE.format("name = 'owner2'"), "owner2: its row holds .*/owned"),
    "a resource lost": (
        "DELETE FROM resources WHERE name = 'n7'",
        "n7: history has it written at 4, but it is missing",
    ),
    "a resource brought back": (
        "INSERT INTO resources SELECT type_group, kind, 'default', 'default', 'gone', 'u', '', version, seal, body"
        " FROM history WHERE deleted",
        "gone: revision 5, but history has it removed at 6",
    ),
    "a change's body": (HISTORY.format("body = x'00'"), "history 2/0: the resource stored at revision 2 is damaged"),
    "a change's kind": (HISTORY.format("kind = 'Other'"), "history 2/0: it is under conformance.Other, but holds"),
    "a change's version": (HISTORY.format("deleted = 1"), "history 2/0: it has version 2, removed at this revision"),
    "a change of a commit lost": (
        "DELETE FROM history WHERE revision = 4 AND seq = 3",
        "history 4/4: an earlier change of the same commit is missing",
    ),
    "a commit lost": (
        "DELETE FROM history WHERE revision = 2",
        "owned: revision 2 is missing in history, which begins at 0",
    ),
    "a floor above history": (FLOOR.format(2), "history 1/0: expected a revision above 2, at most 9"),
    "a floor above the head": (FLOOR.format(99), "meta history_floor: it is 99, above 9"),
    "no head": ("DELETE FROM meta WHERE key = 'head'", "meta: its table meta has no head"),
    "no floor of terms": ("DELETE FROM meta WHERE key = 'term_floor'", "meta: its table meta has no term_floor"),
    "a fence below its lease": (FENCE.format("term = 0", "held"), "lease c#held: web-1 holds it in term 1"),
    "a lease without a fence": ("DELETE FROM fences WHERE member = 'held'", "lease c#held: web-1 holds it in term 1"),
    "a fence below zero": (FENCE.format("number = -1", "m"), r"fence c#m: it is at \(1, -1\)"),
    "a checkpoint above the head": (FENCE.format("settled = 99", "m"), "fence c#m: its checkpoint is 99, above 9"),
    "incarnations that have not ended": (
        "UPDATE incarnations SET last_revision = NULL",
        "incarnation .*: it begins at 9, but an earlier one has not ended",
    ),
    "incarnations that overlap": (
        "UPDATE incarnations SET first_revision = 3 WHERE first_revision = 9",
        "incarnation .*: it begins at 3, below 8, where another ended",
    ),
    "an incarnation beyond the head": (
        "UPDATE incarnations SET last_revision = 99 WHERE last_revision IS NULL",
        "incarnation .*: it goes from 9 to 99, but the store is at 9",
    ),
}


@pytest.mark.parametrize(("statement", "message"), DAMAGE.values(), ids=DAMAGE)
async def test_each_kind_of_damage_is_found(tmp_path: Path, statement: str, message: str) -> None:
    """The finding names the damage, and the file stays as it is."""
    path = tmp_path / "a.db"
    await _store(path)
    with opened_plainly(path) as plain:
        assert plain.execute(statement).rowcount > 0
    before = path.read_bytes()
    found = await check_store(f"sqlite:{path}")
    assert any(re.search(message, str(each)) for each in found), found
    assert path.read_bytes() == before


async def test_check_continues_past_damaged_pages(tmp_path: Path) -> None:
    """The findings of SQLite come first, with their table."""
    path = tmp_path / "a.db"
    await _store(path)
    with opened_plainly(path) as plain:
        plain.execute("UPDATE fences SET settled = 99 WHERE member = 'm'")
        (root,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = 'history'").fetchone()
    whole = path.read_bytes()
    path.write_bytes(whole[: 4096 * (root - 1)] + b"\xaa" * 4096 + whole[4096 * root :])
    found = await check_store(f"sqlite:{path}")
    assert (found[0].what, found[-1].what) == ("pages", "fence"), list(map(str, found))
    assert found[0].where == "of table history"
    assert len(found) > 1


async def test_open_store_can_check_itself(tmp_path: Path) -> None:
    """Its findings are sentences, and writes continue during the check."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"))
        assert await backend.check_itself() == []
        with opened_plainly(tmp_path / "a.db") as plain:
            plain.execute("UPDATE resources SET owner_uid = 'somebody'")
        (found,) = await backend.check_itself()
        assert found.endswith("a: its row says owner somebody, but holds another")
        await put(backend, thing("b"))


async def test_check_refuses_anything_but_a_store_file(tmp_path: Path) -> None:
    """The path is missing or another file, or the store is in memory or must be opened first."""
    (tmp_path / "diary").write_text("Dear diary, " * 100)
    shutil.copy(FORMATS / "1.db", tmp_path / "old.db")
    for name, message in {
        "none.db": "store not found",
        "diary": "is not a Headway store",
        "old.db": "has format 1: open it with this Headway to upgrade it to",
    }.items():
        with pytest.raises(StoreUnusable, match=message):
            await check_store(f"sqlite:{tmp_path}/{name}")
    with pytest.raises(InvalidArgument, match="'memory:' is not a store in a file"):
        await check_store("memory:")
