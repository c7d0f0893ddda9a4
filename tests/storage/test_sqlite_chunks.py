"""A read of many rows holds a few objects per thousand rows, and frees them as they are decoded."""

from __future__ import annotations

from pathlib import Path

from headway.resource import EndOfSnapshot, SnapshotChunk, pb, resource_key
from headway.storage import SNAPSHOT_CHUNK, Put, SqliteBackend, Within
from tests.helpers.declared import NOTE, a_note
from tests.storage.sqlite_kit import chunks_of

COUNT = 2 * SNAPSHOT_CHUNK + 10


async def test_rows_are_held_in_chunks_and_freed_one_by_one(tmp_path: Path) -> None:
    """Freeing a million rows at once would stop the loop for 150 ms."""
    async with SqliteBackend(tmp_path / "store.db") as store:
        puts = []
        for number in range(COUNT):
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
