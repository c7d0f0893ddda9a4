"""The store in an SQLite file: reads during writes, closing, and its url."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import InvalidArgument, StoreUnusable
from headway.resource import EndOfSnapshot, Position, SnapshotChunk, pb, resource_key
from headway.storage import SNAPSHOT_CHUNK, MemoryBackend, Put, SqliteBackend, Within, open_sqlite, open_store
from headway.testing.conformance import EVERYTHING, KIND, names, put, putting, reading, summary, thing
from tests.helpers.declared import NOTE, a_note
from tests.storage.sqlite_kit import Gate, chunks_of, expect_unusable, hold_lists, hold_published


async def test_slowly_read_snapshot_keeps_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a snapshot is read, all later changes are kept, however many."""
    gate = Gate()
    async with open_sqlite(tmp_path / "a.db", max_changes=4) as backend:
        first = await put(backend, thing("first"))
        hold_lists(monkeypatch, gate, after=True)
        watches = []

        async def watch() -> None:
            watches.append(await reading(backend))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await gate.reached()
            facts = [((await put(backend, thing(f"n{index}"))).revision, f"n{index}", False) for index in range(20)]
            gate.open()
        (reader,) = watches
        await reader.until(facts[-1][0])
        assert reader.snapshot_at == first
        assert summary(reader.changes) == facts


async def test_snapshot_may_stand_at_an_unpublished_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is not delivered again when it is published, and a watch can resume at its position."""
    gate = Gate()
    async with open_sqlite(tmp_path / "a.db") as backend:
        hold_published(monkeypatch, gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, backend, thing("a"))
            await gate.reached()
            reader = await reading(backend)
            at = await reader.until_snapshot()
            assert (at.revision, len(reader.held)) == (1, 1)
            resumed = await reading(backend, after=at)
            assert backend.position == at, "the store's position is below its snapshot's"
            gate.open()
        last = await put(backend, thing("b"))
        for each in (reader, resumed):
            await each.until(last.revision)
            assert summary(each.changes) == [(2, "b", False)]


async def test_large_store_can_be_read_during_writes(tmp_path: Path) -> None:
    """Reads wait for a free connection, and each sees one complete commit."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        version = str((await backend.commit([putting(thing(f"n{i}", uid=f"n{i}")) for i in range(50)])).revision)

        async def read() -> None:
            for _ in range(5):
                found, at = await backend.list(KIND, EVERYTHING)
                assert {each.version for each in found} == {str(at.revision)}

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read)
            for _ in range(10):
                changes = [putting(thing(f"n{i}", uid=f"n{i}"), version) for i in range(50)]
                version = str((await backend.commit(changes)).revision)


async def test_closing_completes_commits_and_wakes_watches_with_an_error(tmp_path: Path, commit_gate: Gate) -> None:
    """A commit in flight is acknowledged. Waiting watches and later calls get StoreUnusable."""
    acknowledged: list[Position] = []

    async def write() -> None:
        acknowledged.append(await put(backend, thing("a")))

    backend = SqliteBackend(tmp_path / "a.db")
    async with trio.open_nursery() as nursery:
        async with backend:
            watch = await backend.watch(KIND, EVERYTHING)
            assert isinstance(await watch.next(), EndOfSnapshot)
            nursery.start_soon(expect_unusable, watch.next)
            nursery.start_soon(write)
            await commit_gate.reached()
            nursery.start_soon(_open_when_blocked, commit_gate)
        assert len(acknowledged) == 1 or await _soon(lambda: len(acknowledged) == 1)
    for attempt in (lambda: put(backend, thing("b")), lambda: names(backend), lambda: reading(backend)):
        with pytest.raises(StoreUnusable, match="is closed"):
            await attempt()
    async with backend:
        assert await names(backend) == ["a"]


async def _open_when_blocked(gate: Gate) -> None:
    await trio.testing.wait_all_tasks_blocked()
    gate.open()


async def _soon(condition: Callable[[], bool]) -> bool:
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    return condition()


async def test_number_beyond_the_range_of_sqlite_is_rejected_alone(tmp_path: Path) -> None:
    """Numbers have 64 bits on the wire and 63 in SQLite: the write is an InvalidArgument and stores nothing."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        raised = await backend.raise_fence("c", "m", 2**63 - 1, 0)
        for attempt in (
            lambda: backend.raise_fence("c", "m", 2**63, 0),
            lambda: backend.raise_fence("c", "m", 0, 0),
            lambda: backend.record_checkpoint(raised.fence, 2**63),
        ):
            with pytest.raises(InvalidArgument, match="the maximum"):
                await attempt()
        assert backend.position == raised.position


async def test_url_selects_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory:`` and ``sqlite:PATH`` work, relative or absolute. For another url the error lists the known ones."""
    monkeypatch.chdir(tmp_path)
    async with open_store("memory:") as backend:
        assert isinstance(backend, MemoryBackend)
    async with open_store("sqlite:relative.db") as backend:
        await put(backend, thing("a"))
    async with open_store(f"sqlite:{tmp_path}/relative.db") as backend:
        assert await names(backend) == ["a"]
    for url in ("", "memory", "memory:x", "sqlite:", "sqlite", "staff.db", "consul:x", "postgres://x"):
        with pytest.raises(InvalidArgument, match='expected "memory:", "sqlite:PATH"'):
            open_store(url)


async def test_rows_are_held_in_chunks_and_freed_one_by_one(tmp_path: Path) -> None:
    """Freeing a million rows at once would stop the loop for 150 ms."""
    async with SqliteBackend(tmp_path / "store.db") as store:
        puts = []
        for number in range(2 * SNAPSHOT_CHUNK + 10):
            note = a_note(f"n{number:05}")
            assert note.id is not None
            note.id.tenancy, note.id.uid = pb.Tenancy(partition="default", namespace="default"), "U"
            puts.append(Put(NOTE.kind, resource_key(note), note, ""))
        await store.commit(puts)
        watch = await store.watch(NOTE.kind, Within())
        names: list[str] = []
        for left in (3, 2, 1):
            assert len(chunks_of(watch)) == left
            assert all(chunk._rest is None for chunk in chunks_of(watch))
            item = await watch.next()
            assert isinstance(item, SnapshotChunk)
            names += [each.id.name for each in item.resources if each.id]
        assert isinstance(await watch.next(), EndOfSnapshot)
        assert names == [put.key[2] for put in puts]
        listed, _ = await store.list(NOTE.kind, Within())
        assert [resource_key(each) for each in listed] == [put.key for put in puts]
