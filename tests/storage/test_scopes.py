"""Scopes in stores: what the log keeps for them, what a read skips, and stores that do not filter by metadata."""

from __future__ import annotations

import pytest
import trio

from headway.errors import HistoryCompacted
from headway.protobuf import copy_message
from headway.resource import Bookmark, Changes, EndOfSnapshot, Key, SnapshotChunk, StreamItem, Within, pb
from headway.storage import Cut, MemoryBackend, Put, StoreMismatch, Watch, open_sqlite, open_watch
from headway.testing.conformance import KIND, name_of, put, remove, thing
from tests.storage.kept_memory import KeptMemory

GOLD = Within(metadata=(("tier", "gold"),))


class Plain(KeptMemory):
    """A user's own store, which does not filter by metadata."""

    filters_metadata = False

    async def watch(self, kind: tuple[str, str], within: Within, resume_after: object = None) -> object:  # type: ignore[override]  # narrower
        assert not within.metadata
        return await super().watch(kind, within, resume_after)  # type: ignore[arg-type]  # as it came


def tiered(name: str, tier: str, **more: str) -> pb.Resource:
    made = thing(name, **more)  # type: ignore[arg-type]  # the tenancy
    made.metadata = {"tier": tier}
    return made


async def retiered(backend: MemoryBackend, name: str, tier: str, *more: Put) -> None:
    stored, _ = await backend.read(KIND, ("default", "default", name))
    assert stored is not None
    changed = copy_message(stored)
    changed.metadata = {"tier": tier}
    await backend.commit([Put(KIND, ("default", "default", name), changed, stored.version), *more])


def told(items: list[StreamItem]) -> list[object]:
    """Return what a watch has delivered, in short."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Changes):
            found += [(name_of(each.resource), each.deleted, each.more) for each in item.changes]
        elif isinstance(item, SnapshotChunk):
            found += [name_of(each) for each in item.resources]
        else:
            found.append((type(item).__name__, item.position.revision))
    return found


async def taken(watch: Watch, until: int) -> list[StreamItem]:
    """Return the items of a watch up to a revision."""
    items: list[StreamItem] = []
    reached = 0
    while reached < until:
        item = await watch.next()
        items.append(item)
        if isinstance(item, Changes):
            reached = item.changes[-1].revision
        elif not isinstance(item, SnapshotChunk):
            reached = item.position.revision
    return items


async def test_store_without_the_ability_is_filtered_above_it() -> None:
    """The filter delivers the same as a store that filters itself, and a bookmark for each commit outside."""
    for backend in (Plain(), MemoryBackend()):
        for name, tier in (("a", "gold"), ("b", "free"), ("c", "gold")):
            await put(backend, tiered(name, tier))
        watch = await open_watch(backend, KIND, GOLD)
        await retiered(backend, "a", "free")
        await retiered(backend, "b", "gold")
        await put(backend, tiered("d", "free"))
        await retiered(backend, "b", "free", Put(KIND, ("default", "default", "e"), tiered("e", "gold"), ""))
        c, _ = await backend.read(KIND, ("default", "default", "c"))
        assert c is not None
        await remove(backend, c, c.version)
        assert told(await taken(watch, 8))[:3] == ["a", "c", ("EndOfSnapshot", 3)]
        watch.close()
        watch = await open_watch(backend, KIND, GOLD)
        assert told(await taken(watch, 8)) == ["e", ("EndOfSnapshot", 8)]


async def test_filter_above_a_store_delivers_leavings_as_deletions_and_whole_commits() -> None:
    backend = Plain()
    for name, tier in (("a", "gold"), ("b", "free")):
        await put(backend, tiered(name, tier))
    watch = await open_watch(backend, KIND, GOLD)
    assert told(await taken(watch, 2)) == ["a", ("EndOfSnapshot", 2)]
    await retiered(backend, "a", "free", Put(KIND, ("default", "default", "c"), tiered("c", "gold"), ""))
    [item] = await taken(watch, 3)
    assert told([item]) == [("a", True, True), ("c", False, False)]
    assert isinstance(item, Changes)
    assert item.changes[0].resource.metadata == {"tier": "gold"}
    await put(backend, tiered("d", "free"))
    bookmark = await watch.next()
    assert isinstance(bookmark, Bookmark)
    assert bookmark.position == backend.position


async def test_filter_above_a_store_cannot_resume() -> None:
    """Only a snapshot says what the reader has, so that none of it is left over."""
    backend = Plain()
    at = await put(backend, tiered("a", "gold"))
    with pytest.raises(HistoryCompacted, match="the store does not filter by it"):
        await open_watch(backend, KIND, GOLD, at)
    with pytest.raises(StoreMismatch):
        await open_watch(backend, KIND, GOLD, at._replace(store_id="another"))
    (await open_watch(backend, KIND, Within(), at)).close()


async def test_canceled_read_of_the_filter_has_taken_nothing() -> None:
    backend = Plain()
    watch = await open_watch(backend, KIND, GOLD)
    assert isinstance(await watch.next(), EndOfSnapshot)
    await put(backend, tiered("a", "gold"))
    await put(backend, tiered("b", "free"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await watch.next()
    assert told(await taken(watch, 2)) == [("a", False, False), ("Bookmark", 2)]


async def test_states_before_changes_are_dropped_with_their_changes() -> None:
    """History has a bound, and so has what it keeps for scopes."""
    backend = MemoryBackend(max_changes=10)
    await put(backend, tiered("a", "gold"))
    for number in range(100):
        await retiered(backend, "a", f"{number}")
    formers = backend._log._kinds[KIND].formers
    assert len(formers) == 10
    for number in range(2000):
        await retiered(backend, "a", f"{number}")
    assert len(formers) == 10
    watch = await open_watch(backend, KIND, Within(metadata=(("tier", "1990"),)), backend._at(backend._log.floor))
    assert told(await taken(watch, backend.position.revision))[1:3] == [("a", False, False), ("a", True, False)]


async def test_change_that_keeps_the_metadata_keeps_no_state() -> None:
    backend = MemoryBackend()
    await put(backend, tiered("a", "gold"))
    await retiered(backend, "a", "gold")
    assert backend._log._kinds[KIND].formers == {}


async def test_snapshot_of_a_namespace_in_all_partitions_reads_only_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are skipped a few hundred at a time, without looking at them."""
    backend = MemoryBackend()
    for partition in ("p", "q"):
        for namespace in ("a", "b", "c"):
            for begin in range(0, 4000, 500):
                await backend.commit(
                    [
                        Put(KIND, (partition, namespace, f"n{number:04}"), one, "")
                        for number in range(begin, begin + 500)
                        for one in [thing(f"n{number:04}", partition=partition, namespace=namespace)]
                    ]
                )
    read: list[int] = []
    take = Cut.take

    def counted(cut: Cut) -> list[pb.Resource]:
        found = take(cut)
        read.append(len(found))
        return found

    monkeypatch.setattr(Cut, "take", counted)
    for within, wanted in ((Within(namespace="b"), 8000), (Within("q", "b"), 4000), (Within("q", "b", "n00"), 100)):
        read.clear()
        names = [name for name in told(await taken(await open_watch(backend, KIND, within), 48)) if name[0] == "n"]  # type: ignore[index]  # a text or a tuple
        assert len(names) == wanted
        assert sum(read) <= wanted + 4 * 1024
    found, _ = await backend.list(KIND, Within(namespace="b"))
    assert len(found) == 8000


async def test_sqlite_reads_a_namespace_by_the_primary_key(tmp_path: object) -> None:
    """Neither a namespace in each partition nor one partition reads the other rows."""
    async with open_sqlite(f"{tmp_path}/store.db") as backend:
        for partition in ("", "p", "q"):
            for namespace in ("", "a", "b"):
                await put(backend, thing(f"in-{namespace or 'none'}", partition=partition, namespace=namespace))
        for within, wanted in ((Within(namespace="b"), 3), (Within("q", "b"), 1), (Within("", ""), 1)):
            found, _ = await backend.list(KIND, within)
            assert [_key(each) for each in found] == sorted(_key(each) for each in found)
            assert len(found) == wanted
        plan = (
            backend._use()
            .file.writer.execute(
                "EXPLAIN QUERY PLAN SELECT 1 FROM resources WHERE type_group = 'g' AND kind = 'k'"
                " AND partition IN ('p', 'q') AND namespace = 'b' ORDER BY partition, namespace, name"
            )
            .fetchall()
        )
        assert [row[3] for row in plan] == [
            "SEARCH resources USING PRIMARY KEY (type_group=? AND kind=? AND partition=? AND namespace=?)"
        ]


def _key(resource: pb.Resource) -> Key:
    assert resource.id is not None
    assert resource.id.tenancy is not None
    return (resource.id.tenancy.partition, resource.id.tenancy.namespace, resource.id.name)
