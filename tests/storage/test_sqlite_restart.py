"""The state of a store in an SQLite file outlives the process, and an incomplete copy is detected."""

import os
import shutil
from pathlib import Path

import pytest

from headway.errors import HistoryCompacted
from headway.storage import StoreMismatch, Within, open_sqlite
from headway.testing.conformance import (
    EVERYTHING,
    KIND,
    Reader,
    held,
    put,
    putting,
    reading,
    remove,
    removing,
    summary,
    thing,
    uid_of,
)
from tests.storage.sqlite_kit import opened_plainly, set_limit


async def test_watch_resumes_across_a_restart(tmp_path: Path) -> None:
    """Every position of the previous process resumes exactly: changes, deletions, and revisions of fences."""
    positions, facts = [], []
    async with open_sqlite(tmp_path / "a.db") as backend:
        for index in range(5):
            at = await put(backend, resource := thing(f"n{index}"))
            positions.append(at)
            facts.append((at.revision, f"n{index}", False))
            positions.append((await backend.raise_fence("c", "m", 0, 0)).position)
            at = await backend.commit([putting(thing(f"m{index}")), removing(resource, str(at.revision))])
            positions.append(at)
            facts += [(at.revision, f"m{index}", False), (at.revision, f"n{index}", True)]
        positions.append((await backend.raise_fence("c", "m", 0, 0)).position)
    async with open_sqlite(tmp_path / "a.db") as backend:
        at = await put(backend, thing("new"))
        facts.append((at.revision, "new", False))
        for position in positions:
            reader = await reading(backend, after=position)
            await reader.until(at.revision)
            assert summary(reader.changes) == [fact for fact in facts if fact[0] > position.revision]


async def test_deletion_replayed_after_a_restart_has_the_last_state_of_the_resource(tmp_path: Path) -> None:
    """It has the last content and the last version."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        first = await put(backend, resource := thing("a", "last words"))
        await remove(backend, resource, str(first.revision))
    async with open_sqlite(tmp_path / "a.db") as backend:
        reader = await reading(backend, after=first)
        await reader.until(first.revision + 1)
        assert [(each.deleted, each.resource) for each in reader.changes] == [(True, resource)]
        assert reader.changes[0].resource.version == str(first.revision)


async def test_history_in_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trimmed history is deleted from the file from time to time. The rest of the history survives a restart."""
    set_limit(monkeypatch, "TRIM_STEP", 10)
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        positions = [await put(backend, thing(f"n{index}")) for index in range(100)]
    with opened_plainly(tmp_path / "a.db") as plain:
        (count,) = plain.execute("SELECT count(*) FROM history").fetchone()
    assert 20 <= count <= 20 + 10 + 2
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        reader = await reading(backend, after=positions[-21])
        await reader.until(positions[-1].revision)
        assert len(reader.changes) == 20
        with pytest.raises(HistoryCompacted):
            await backend.watch(KIND, EVERYTHING, positions[-22])
    async with open_sqlite(tmp_path / "a.db", max_changes=5) as backend:
        await reading(backend, after=positions[-6])
        with pytest.raises(HistoryCompacted):
            await backend.watch(KIND, EVERYTHING, positions[-7])


async def test_scope_resumes_where_the_history_of_the_file_begins(tmp_path: Path) -> None:
    """The file has the state before the first change that is kept, so the scope learns that the resource has left."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        for number, tier in enumerate(("gold", "gold", "free")):
            changed = thing("a", uid="u")
            changed.metadata = {"tier": tier}
            at = await put(backend, changed, str(number or ""))
    async with open_sqlite(tmp_path / "a.db", max_changes=1) as backend:
        with pytest.raises(HistoryCompacted):
            await backend.watch(KIND, EVERYTHING, at._replace(revision=1))
        reader = Reader(await backend.watch(KIND, Within(metadata=(("tier", "gold"),)), at._replace(revision=2)))
        await reader.until(3)
        assert [(each.revision, each.deleted) for each in reader.changes] == [(3, True)]


async def test_restart_with_a_larger_bound_does_not_restore_trimmed_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trimmed positions fail, and kept positions resume."""
    set_limit(monkeypatch, "TRIM_STEP", 10)
    async with open_sqlite(tmp_path / "a.db", max_changes=20) as backend:
        positions = [await put(backend, thing(f"n{index}")) for index in range(50)]
    with opened_plainly(tmp_path / "a.db") as plain:
        (floor,) = plain.execute("SELECT value FROM meta WHERE key = 'history_floor'").fetchone()
    assert 10 <= floor <= 30
    async with open_sqlite(tmp_path / "a.db") as backend:
        await backend.watch(KIND, EVERYTHING, positions[floor - 1])
        with pytest.raises(HistoryCompacted):
            await backend.watch(KIND, EVERYTHING, positions[floor - 2])


async def test_older_copy_in_place_of_the_file_is_detected(tmp_path: Path) -> None:
    """Positions that the copy can have had resume. Positions that it lost are refused permanently."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with open_sqlite(path) as backend:
        known = await put(backend, thing("known"))
    shutil.copy(path, copy)
    async with open_sqlite(path) as backend:
        lost = [await put(backend, thing(f"lost{index}")) for index in range(3)]
    shutil.copy(copy, path)
    async with open_sqlite(path) as backend:
        for _ in range(2):
            await backend.watch(KIND, EVERYTHING, known)
            for position in lost:
                with pytest.raises(StoreMismatch):
                    await backend.watch(KIND, EVERYTHING, position)
            for index in range(4):
                await put(backend, thing(f"else{index}{backend.position.revision}"))


async def test_copy_of_an_open_store_is_detected(tmp_path: Path) -> None:
    """A copy has the incarnation that went on without it, and the last revision that it shares with it."""
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with open_sqlite(path) as backend:
        known = await put(backend, thing("known"))
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        lost = await put(backend, thing("lost"))
    async with open_sqlite(copy) as backend:
        await put(backend, thing("other"))
        await put(backend, thing("another"))
        await backend.watch(KIND, EVERYTHING, known)
        with pytest.raises(StoreMismatch, match="not in the history of this copy"):
            await backend.watch(KIND, EVERYTHING, lost)


async def test_file_identifies_itself_and_its_openings(tmp_path: Path) -> None:
    """The file's header names Headway, and each opening has a row of its own."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        await put(backend, resource := thing("a", "text"))
        found, _ = await backend.list(KIND, EVERYTHING)
        assert held(found) == {("default", "default", "a"): (uid_of(resource), "1")}
        first = backend.position.session
    async with open_sqlite(path) as backend:
        second = backend.position.session
    header = path.read_bytes()[:100]
    assert (header[68:72], header[60:64]) == (b"HdWy", b"\0\0\0\3")
    with opened_plainly(path) as plain:
        rows = plain.execute("SELECT incarnation, first_revision, last_revision FROM incarnations").fetchall()
        (mode,) = plain.execute("PRAGMA journal_mode").fetchone()
    assert sorted(rows, key=lambda row: row[1]) == [(first, 1, 1), (second, 2, None)]
    assert mode == "wal"
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db.lock"]
