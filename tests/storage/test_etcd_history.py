"""Detection of another history under the prefix: a restored cluster, a new store, or keys of another program."""

import pytest
import trio
from grpclib.const import Status

from headway.errors import HistoryCompacted, StoreUnusable, Unavailable
from headway.resource import Bookmark, Changes
from headway.storage import EtcdBackend, MemoryBackend, StoreMismatch
from headway.storage.etcd.layout import head_value
from headway.testing.conformance import Reader, names, put, reading, refused, thing
from tests.storage.etcd_kit import PREFIX, Rig, failing, followed, primed, rigged, until


async def _fails_with_another_history(reader: Reader) -> None:
    async def all() -> None:
        while True:
            await reader.next()

    with trio.fail_after(30):
        await refused(StoreMismatch, all(), "a watch of another history")


async def test_each_opening_keeps_the_store_id_and_begins_an_incarnation() -> None:
    """The id is made once. Positions of an earlier opening are valid up to the start of the next one."""
    async with rigged() as rig:
        first = await put(rig.store, thing("a"))
        async with EtcdBackend(rig.url) as other:
            second = await put(other, thing("b"))
            assert second.store_id == first.store_id
            assert second.session != first.session
            await names(rig.store)
            assert rig.store.position == second, "two engines have different positions in one history"
            resumed = await reading(rig.store, after=first)
            await resumed.until(second.revision)
            above = first._replace(revision=second.revision)
            await refused(StoreMismatch, reading(rig.store, after=above), "a position above its incarnation")


@pytest.mark.parametrize("store", ["memory", "etcd by argument", "etcd by url"])
async def test_history_is_bounded_by_bytes(store: str) -> None:
    """The store in SQLite has the same test with the size of its file."""
    async with rigged() as rig:
        stores: dict[str, MemoryBackend | EtcdBackend] = {
            "memory": MemoryBackend(max_bytes=45_000),
            "etcd by argument": EtcdBackend(rig.url, max_bytes=45_000),
            "etcd by url": EtcdBackend(f"{rig.url}?max_bytes=45000"),
        }
        async with stores[store] as bounded:
            positions = [await put(bounded, thing(f"n{index}", "x" * 10_000)) for index in range(8)]
            resumed = await reading(bounded, after=positions[-4])
            await resumed.until(positions[-1].revision)
            await refused(HistoryCompacted, reading(bounded, after=positions[-6]), "resuming before the history")


async def test_watch_gives_the_incarnation_of_each_change() -> None:
    """Another engine opens the store and writes, and the watcher receives both at once.

    A stream can resume wherever it broke.
    """
    async with rigged() as rig:
        reader = await primed(rig.store)
        rig.fake.muted = rig.fake.watches[0]
        for name in ("b", "c"):
            async with EtcdBackend(rig.url) as other:
                await put(other, thing(name))
        rig.fake.muted = None
        rig.fake.cancel_watches("etcdserver: no leader")
        await names(rig.store)
        last, incarnation, received = rig.store.position, "", 0
        while received < last.revision:
            item = await reader.next()
            if isinstance(item, Changes):
                received = item.changes[-1].revision
                resumed = await reading(rig.store, after=last._replace(session=incarnation, revision=received))
                await resumed.until(last.revision)
            else:
                assert isinstance(item, Bookmark)
                received, incarnation = item.position.revision, item.position.session
    assert incarnation == last.session


async def test_restored_cluster_is_detected_by_its_revision() -> None:
    """Watchers get an error, the store serves nothing of the lost history, and its positions are refused."""
    async with rigged() as rig:
        await put(rig.store, thing("kept"))
        backup = rig.fake.saved()
        lost = await put(rig.store, thing("lost"))
        reader = await primed(rig.store)
        rig.fake.restore(backup)
        await _fails_with_another_history(reader)
        assert await names(rig.store) == ["kept"]
        assert rig.store.counts["other histories"] == 1
        here = rig.store.position
        assert here.store_id == lost.store_id
        assert here.session != lost.session
        await refused(StoreMismatch, reading(rig.store, after=lost), "a position of the lost history")
        await followed(await primed(rig.store), rig.store)


async def test_restored_cluster_is_detected_after_more_writes_than_were_lost() -> None:
    """Another writer has raised the revision above all lost ones, so the revision alone does not show the loss."""
    async with rigged() as rig:
        backup = rig.fake.saved()
        lost = await put(rig.store, thing("lost"))
        reader = await primed(rig.store)
        rig.fake.restore(backup)
        _write_on(rig, 5)
        await _fails_with_another_history(reader)
        assert rig.store.counts["other histories"] == 1
        assert rig.store.position.revision > lost.revision
        assert await names(rig.store) == []


def _write_on(rig: Rig, commits: int) -> None:
    """Commit as an engine that lagged when the backup was made: it began no incarnation."""

    for index in range(commits):
        rig.fake.put(b"/staff/head", head_value([0], b"%8d" % index))


async def test_recreated_store_is_detected_by_its_id() -> None:
    """Its keys were deleted, and a server that started has founded it again. The id differs, whatever the revision.

    An engine that runs founds none: its etcd may have come back without its data.
    """
    async with rigged() as rig:
        before = await put(rig.store, thing("a"))
        reader = await primed(rig.store)
        for key in list(rig.fake.state.keys):
            rig.fake.delete(key)
        with pytest.raises(Unavailable):
            await put(rig.store, thing("a2"))
        calls = len(rig.fake.calls)
        await until(lambda: len(rig.fake.calls) >= calls + 3)
        assert rig.store.position.store_id == before.store_id
        assert not [key for key in rig.fake.state.keys if key.startswith(PREFIX.encode())]
        async with EtcdBackend(rig.url):
            await _fails_with_another_history(reader)
            await until(lambda: rig.store.position.store_id != before.store_id)
        assert await names(rig.store) == []
        at = await put(rig.store, thing("b"))
        assert at.revision > before.revision
        await refused(StoreMismatch, reading(rig.store, after=before), "a position of the store that was deleted")


async def test_commit_is_decided_again_in_the_incarnation_of_another_engine() -> None:
    """Another engine has begun an incarnation. A position always has the incarnation of its commit."""
    async with rigged() as rig:
        # Only this engine's watch misses the beginning: the other engine reads its history by a second watch.
        rig.fake.muted = rig.fake.watches[-1]
        async with EtcdBackend(rig.url) as other:
            rig.fake.muted = None
            rig.fake.cancel_watches("etcdserver: no leader")
            at = await put(rig.store, thing("a"))
            assert at.session == other.position.session
            resumed = await reading(other, after=at)
            await resumed.until(at.revision)


async def test_foreign_bytes_under_a_key_make_the_store_unusable() -> None:
    """The error names the key. The store serves nothing more, and no call is left waiting."""
    async with rigged() as rig:
        reader = await primed(rig.store)
        rig.fake.put(f"{PREFIX}/resource/a/b/c/d/e".encode(), b"\xff\xff")
        rig.fake.put(f"{PREFIX}/head".encode(), (1).to_bytes(4) + bytes(8))

        async def all() -> None:
            while True:
                await reader.next()

        with trio.fail_after(30):
            error = await refused(StoreUnusable, all(), "a watcher of a store that is unreadable")
        assert "/staff/resource/a/b/c/d/e" in str(error)
        await refused(StoreUnusable, names(rig.store), "a read of a store that is unreadable")


async def test_opening_fails_in_bounded_time_when_no_etcd_listens() -> None:
    """The Unavailable error names the address."""
    with trio.fail_after(30):
        store = EtcdBackend("etcd://127.0.0.1:1/staff")
        error = await refused(Unavailable, store.__aenter__(), "opening a store at an unused address")
    assert "127.0.0.1:1" in str(error)


async def test_opening_retries_a_write_with_unknown_outcome() -> None:
    """The store first reads whether the write has happened."""
    async with rigged() as rig:
        rig.fake.on_txn = failing(Status.UNAVAILABLE, "etcdserver: request timed out")
        async with EtcdBackend(rig.url) as other:
            await put(other, thing("a"))
            assert await names(rig.store) == ["a"]
