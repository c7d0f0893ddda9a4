"""Snapshots of the store in an SQLite file: read in pages, without a copy, and consistent whatever changes."""

from __future__ import annotations

import gc
import random
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest
import trio

from headway.errors import HistoryCompacted, StoreUnusable, WriteRejected
from headway.resource import EndOfSnapshot, Key, Kind, SnapshotChunk, Within, pb, resource_key
from headway.storage import LogWatch, Put, Remove, Snapshot, SqliteBackend, Watch, open_sqlite
from headway.testing.conformance import EVERYTHING, KIND, kind_of, name_of, put, putting, remove, thing
from tests.storage.sqlite_kit import (
    Gate,
    count_pages,
    fail_commits,
    fail_statement,
    hold_published,
    opened_plainly,
    plans_of,
    replaced_rows,
    set_limit,
)


async def rest_of(watch: Watch) -> tuple[list[pb.Resource], int]:
    """Return the resources of the rest of a snapshot, and its revision."""
    found: list[pb.Resource] = []
    while isinstance(item := await watch.next(), SnapshotChunk):
        found += item.resources
    assert isinstance(item, EndOfSnapshot)
    return found, item.position.revision


async def chunk_of(watch: Watch) -> list[pb.Resource]:
    item = await watch.next()
    assert isinstance(item, SnapshotChunk)
    return list(item.resources)


async def fill(backend: SqliteBackend, count: int, size: int = 10) -> None:
    await backend.commit([putting(thing(f"n{number:04}", "x" * size)) for number in range(count)])


async def replace_all(backend: SqliteBackend) -> None:
    found, _ = await backend.list(KIND, EVERYTHING)
    await backend.commit([putting(pb.Resource(id=each.id), each.version) for each in found])


async def test_watches_that_are_not_read_hold_no_copy_of_their_kind(tmp_path: Path) -> None:
    """Not when they are opened, nor after the first chunk was taken. Each copy would take 600 kB."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 300, 2000)
        gc.collect()
        tracemalloc.start()
        try:
            watches = [await backend.watch(KIND, EVERYTHING) for _ in range(10)]
            assert tracemalloc.get_traced_memory()[0] < 10 << 13
            for watch in watches:
                await chunk_of(watch)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1 << 20
        finally:
            tracemalloc.stop()


async def test_page_ends_at_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large resources are a page. One that is larger than a page is alone in it."""
    set_limit(monkeypatch, "PAGE_BYTES", 10_000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 9, 4000)
        await put(backend, thing("z", "x" * 20_000))
        pages = count_pages(monkeypatch)
        found, _ = await rest_of(await backend.watch(KIND, EVERYTHING))
        assert [name_of(each) for each in found] == [*(f"n{number:04}" for number in range(9)), "z"]
        assert pages == [3, 3, 3, 1, 0]


class Model:
    """A store with random changes, and what is in it."""

    def __init__(self, backend: SqliteBackend, seed: int) -> None:
        self.chance = random.Random(seed)
        self.backend = backend
        self.there: dict[Key, pb.Resource] = {}

    async def change(self, times: int) -> None:
        for _ in range(times):
            operations: dict[Key, Put | Remove] = {}
            for _ in range(self.chance.randrange(1, 4)):
                name, namespace, partition = (
                    f"{self.chance.choice(each)}" for each in (range(12), "ab", ("", "p", "q"))
                )
                made = thing(name, namespace=namespace, partition=partition)
                made.metadata["tier"] = self.chance.choice(("gold", "free"))
                key = resource_key(made)
                if key in operations:
                    continue
                old = self.there.get(key)
                if old is not None and self.chance.random() < 0.3:
                    assert old.id is not None
                    operations[key] = Remove(KIND, key, old.id.uid, old.version)
                    continue
                made.id = made.id if old is None else old.id
                operations[key] = Put(KIND, key, made, "" if old is None else old.version)
            await self.backend.commit([*operations.values()])
            for key, operation in operations.items():
                self.there.pop(key, None)
                if isinstance(operation, Put):
                    self.there[key] = operation.resource

    def matching(self, within: Within) -> list[tuple[Key, str]]:
        return sorted((key, each.version) for key, each in self.there.items() if within.admits(each))


@pytest.mark.parametrize("seed", range(3))
async def test_snapshot_is_of_one_revision_whatever_changes_while_it_is_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several snapshots of different ranges and revisions are read alternately, a few resources at a time."""
    monkeypatch.setattr("headway.storage.sqlite._reader.SNAPSHOT_CHUNK", 3)
    ranges = [
        Within(*each) for each in product(("*", "p", ""), ("*", "a"), ("", "1"), ((), (("tier", "gold"),))) if any(each)
    ]
    async with open_sqlite(tmp_path / "a.db") as backend:
        model = Model(backend, seed)
        await model.change(25)
        opened: list[tuple[LogWatch, list[tuple[Key, str]], list[tuple[Key, str]], int]] = []
        for _ in range(8):
            within = model.chance.choice(ranges)
            watch = await backend.watch(KIND, within)
            opened.append((watch, model.matching(within), [], backend.position.revision))
            await model.change(2)
        while opened:
            watch, wanted, found, revision = model.chance.choice(opened)
            item = await watch.next()
            if isinstance(item, SnapshotChunk):
                found += [(resource_key(each), each.version) for each in item.resources]
            else:
                assert isinstance(item, EndOfSnapshot)
                assert item.position.revision == revision
                assert found == wanted
                opened = [each for each in opened if each[0] is not watch]
            if model.chance.random() < 0.3:
                await model.change(1)
        del watch, wanted, found
        await model.change(1)
        assert replaced_rows(backend) == []


async def test_snapshot_does_not_contain_a_commit_that_is_published_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the commit already while the page is read. The watch delivers it as a change."""
    gate = Gate()
    async with open_sqlite(tmp_path / "a.db") as backend:
        at = await put(backend, first := thing("a", "old"))
        hold_published(monkeypatch, gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, backend, pb.Resource(id=first.id), str(at.revision))
            await gate.reached()
            watch = await backend.watch(KIND, EVERYTHING)
            found, revision = await rest_of(watch)
            gate.open()
        assert ([each.version for each in found], revision) == (["1"], 1)
        assert [each.revision for each in (await watch.next()).changes] == [2]  # type: ignore[union-attr]  # checked


async def test_replaced_rows_are_shared_and_given_back_when_no_snapshot_needs_them(tmp_path: Path) -> None:
    """Many snapshots keep each row once. A closed watch needs none."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 3)
        watches = [await backend.watch(KIND, EVERYTHING) for _ in range(10)]
        await replace_all(backend)
        assert replaced_rows(backend) == ["n0000", "n0001", "n0002"]
        for watch in watches[:-1]:
            watch.close()
        await put(backend, thing("a"))
        assert len(replaced_rows(backend)) == 3
        watches[-1].close()
        await put(backend, thing("b"))
        assert replaced_rows(backend) == []


async def test_failed_commit_keeps_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its revisions are used again, by other changes."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 3)
        watch = await backend.watch(KIND, EVERYTHING)
        with monkeypatch.context() as patch:
            fail_commits(patch, sqlite3.SQLITE_FULL)
            with pytest.raises(WriteRejected):
                await replace_all(backend)
        assert replaced_rows(backend) == []
        found, _ = await rest_of(watch)
        assert [each.version for each in found] == ["1", "1", "1"]


@pytest.mark.parametrize("seed", range(3))
async def test_resources_of_an_owner_are_of_one_revision_whatever_changes_while_they_are_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of two kinds, and change their owners, too. Lists of several owners are read alternately."""
    monkeypatch.setattr("headway.storage.sqlite._reader.SNAPSHOT_CHUNK", 3)
    chance = random.Random(seed)
    there: dict[tuple[Kind, Key], pb.Resource] = {}

    async def change(times: int) -> None:
        for _ in range(times):
            kind = chance.choice((KIND, OTHER))
            made = thing(str(chance.randrange(15)), owner_uid=chance.choice("pq"), kind=kind)
            key = resource_key(made)
            old = there.pop((kind, key), None)
            if old is not None and old.id is not None and chance.random() < 0.3:
                await backend.commit([Remove(kind, key, old.id.uid, old.version)])
                continue
            made.id = made.id if old is None else old.id
            await backend.commit([Put(kind, key, made, "" if old is None else old.version)])
            there[kind, key] = made

    def owned(uid: str) -> list[tuple[Kind, Key, str]]:
        found = sorted((kind, key, each.version, each.owner) for (kind, key), each in there.items())
        return [(kind, key, version) for kind, key, version, owner in found if owner and owner.uid == uid]

    async with open_sqlite(tmp_path / "a.db") as backend:
        await change(40)
        opened: list[tuple[Snapshot, list[tuple[Kind, Key, str]], list[tuple[Kind, Key, str]]]] = []
        for _ in range(8):
            uid = chance.choice("pq")
            snapshot, at = await backend.owned_parts(uid)
            assert at == backend.position
            opened.append((snapshot, owned(uid), []))
            await change(2)
        while opened:
            snapshot, wanted, found = chance.choice(opened)
            part = await snapshot.next()
            assert len(part) <= 3 + len(replaced_rows(backend))
            found += [(kind_of(each), resource_key(each), each.version) for each in part]
            if not part:
                assert found == wanted
                opened = [each for each in opened if each[0] is not snapshot]
            await change(1)
        assert [each.version for each in (await backend.list_by_owner("p"))[0]] == [each[2] for each in owned("p")]
        # Nothing is kept for lists that have ended.
        del snapshot
        gc.collect()
        await change(1)
        assert replaced_rows(backend) == []


async def test_parts_of_lists_end_at_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first part, whose resources nobody has seen yet, and also where the resources before were small."""
    set_limit(monkeypatch, "PAGE_BYTES", 10_000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        for name, size in (("a", 10), ("b", 10), ("c", 20_000), ("d", 20_000), ("e", 4000), ("f", 4000), ("g", 10)):
            await put(backend, thing(name, "x" * size, owner_uid="p"))
        parts: list[str] = []
        after: Key | None = None
        while not parts or after is not None:
            part, after, at = await backend.list_part(KIND, EVERYTHING, after, 100)
            parts.append("".join(map(name_of, part)))
            assert at == backend.position
        assert parts == ["abc", "d", "efg"]
        snapshot, _ = await backend.owned_parts("p")
        owned = [part async for part in _parts(snapshot)]
        assert ["".join(map(name_of, part)) for part in owned] == parts


async def _parts(snapshot: Snapshot) -> AsyncIterator[list[pb.Resource]]:
    while part := await snapshot.next():
        yield part


async def test_snapshot_that_is_read_too_slowly_ends_when_too_much_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only snapshots from before the dropped rows end. Their readers begin anew, and lose nothing."""
    monkeypatch.setattr("headway.storage.sqlite._reader.SNAPSHOT_CHUNK", 2)
    set_limit(monkeypatch, "MOST_REPLACED", 20_000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 5, 3000)
        slow = await backend.watch(KIND, EVERYTHING)
        await chunk_of(slow)
        await replace_all(backend)
        await remove(backend, (await backend.list(KIND, EVERYTHING))[0][-1], "2")
        later = await backend.watch(KIND, EVERYTHING)
        await fill_and_replace(backend)
        with pytest.raises(HistoryCompacted, match=r"Thing at revision 1 was read too slowly: more than .* new one"):
            await slow.next()
        found, revision = await rest_of(later)
        assert ([each.version for each in found], revision) == (["2"] * 4, 3)
        # The one that has ended is still held, but needs nothing.
        await put(backend, thing("y"))
        assert replaced_rows(backend) == []


async def test_writes_of_another_kind_end_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are needed by nobody. If both kinds have snapshots, the kind with the most replaced bytes pays."""
    monkeypatch.setattr("headway.storage.sqlite._reader.SNAPSHOT_CHUNK", 2)
    set_limit(monkeypatch, "MOST_REPLACED", 20_000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 5, 3000)
        at = await backend.commit([put_other(size=15_000)])
        slow = await backend.watch(KIND, EVERYTHING)
        await chunk_of(slow)
        for _ in range(3):
            at = await backend.commit([put_other(str(at.revision), size=15_000)])
            assert replaced_rows(backend) == []
        other = await backend.watch(OTHER, EVERYTHING)
        await remove(backend, (await backend.list(KIND, EVERYTHING))[0][-1], "1")
        for _ in range(2):
            at = await backend.commit([put_other(str(at.revision), size=15_000)])
        with pytest.raises(HistoryCompacted):
            await other.next()
        assert [name_of(each) for each in (await rest_of(slow))[0]] == ["n0002", "n0003", "n0004"]


OTHER = ("tests", "Other")


def put_other(expected: str = "", *, size: int) -> Put:
    return putting(thing("other", "x" * size, uid="other", kind=OTHER), expected)


@pytest.mark.parametrize("damaged", [1000, 2**40, 0, "later"])
async def test_row_with_a_damaged_revision_is_an_error_in_a_snapshot(tmp_path: Path, damaged: int | str) -> None:
    """It is not left out as if it were newer than the snapshot. A list reports the same."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 5)
        with opened_plainly(tmp_path / "a.db") as plain:
            plain.execute("UPDATE resources SET revision = ? WHERE name = 'n0002'", (damaged,))
        with pytest.raises(StoreUnusable, match="'n0002'"):
            await rest_of(await backend.watch(KIND, EVERYTHING))
        with pytest.raises(StoreUnusable, match="'n0002'"):
            await backend.list(KIND, EVERYTHING)


async def fail_one_read(
    patch: pytest.MonkeyPatch, backend: SqliteBackend, statement: str, read: Callable[[], Awaitable[object]]
) -> None:
    """Fail a read in SQLite. The store counts as failed while a probe's retry fails too."""
    with patch.context() as failing:
        fail_statement(failing, statement)
        with pytest.raises(StoreUnusable, match="no_such_column"):
            await read()
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="no_such_column"):
                await backend.probe()


async def test_store_recovers_from_a_failed_read_of_a_snapshot_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is read again, although the rows that its snapshot needs are no longer kept."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await fill(backend, 3)
        await fail_one_read(monkeypatch, backend, "ROWS", (await backend.watch(KIND, EVERYTHING)).next)
        set_limit(monkeypatch, "MOST_REPLACED", 0)
        slow = await backend.watch(KIND, EVERYTHING)
        await replace_all(backend)
        with pytest.raises(HistoryCompacted):
            await slow.next()
        await backend.probe()
        await backend.probe()


GOLD = EVERYTHING._replace(metadata=(("tier", "gold"),))


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("ROWS", lambda backend: rest_of_new(backend)),
        ("ROWS", lambda backend: backend.list(KIND, GOLD, limit=1)),
        ("READ_RESOURCE", lambda backend: backend.read(KIND, resource_key(thing("a")))),
    ],
    ids=["snapshot", "page of a list", "read"],
)
async def test_store_recovers_from_a_failed_read_of_a_damaged_resource(
    statement: str,
    read: Callable[[SqliteBackend], Awaitable[object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The damage is a problem of that resource's readers, and not of SQLite."""
    set_limit(monkeypatch, "MOST_RECENT", 0)
    async with open_sqlite(tmp_path / "a.db") as backend:
        made = thing("a")
        made.metadata["tier"] = "gold"
        await put(backend, made)
        with opened_plainly(tmp_path / "a.db") as plain:
            plain.execute("UPDATE resources SET seal = seal + 1")
        await fail_one_read(monkeypatch, backend, statement, lambda: read(backend))
        await backend.probe()
        with pytest.raises(StoreUnusable, match="is damaged"):
            await read(backend)


async def rest_of_new(backend: SqliteBackend) -> object:
    return await rest_of(await backend.watch(KIND, EVERYTHING))


async def fill_and_replace(backend: SqliteBackend) -> None:
    at = await put(backend, large := thing("z", "x" * 15_000))
    await remove(backend, large, str(at.revision))


async def test_pages_of_a_range_are_found_without_sorting_the_rest(tmp_path: Path) -> None:
    """Sorting would read all rows behind a page, for each page."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a", partition="p", namespace="n"))
        for within in (Within(*each) for each in product(("*", "p"), ("*", "n"), ("", "a"))):
            for after in (None, ("p", "n", "a")):
                steps = plans_of(backend, KIND, within, after)
                assert steps
                assert all(step.startswith("SEARCH resources USING PRIMARY KEY") for step in steps)
