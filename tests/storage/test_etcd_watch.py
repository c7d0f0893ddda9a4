"""Known misbehavior of etcd's watches, simulated by a fake etcd: the store loses, repeats and rewinds nothing."""

import functools
from collections.abc import Iterable

import pytest
import trio

from headway._gen.etcdserverpb import RangeRequest, RangeResponse, WatchResponse
from headway._gen.mvccpb import Event
from headway.errors import HistoryCompacted, Unavailable
from headway.storage import EtcdBackend
from headway.storage.etcd import _follow, etcd_revision
from headway.testing.conformance import names, put, putting, reading, refused, remove, summary, thing, uid_of
from tests.helpers.fake_etcd import FakeEtcd
from tests.storage.etcd_kit import followed, primed, rigged, until


async def test_one_watch_serves_all_watchers_of_a_process() -> None:
    """It covers the whole prefix, with fragments, progress notifications and a required leader."""
    async with rigged() as rig:
        readers = [await primed(rig.store) for _ in range(50)]
        at = await put(rig.store, thing("a"))
        for reader in readers:
            await reader.until(at.revision)
        (wanted,) = rig.fake.watches
        assert (wanted.key, wanted.range_end) == (b"/staff/", b"/staff0")
        assert wanted.fragment
        assert wanted.progress_notify


async def test_commit_in_fragments_is_delivered_whole() -> None:
    """A watcher receives the commit when all of its events have arrived, wherever they were split."""

    def cut(response: WatchResponse) -> Iterable[WatchResponse]:
        last = len(response.events) - 1
        for index, event in enumerate(response.events):
            yield WatchResponse(header=response.header, events=[event], fragment=index < last)

    async with rigged() as rig:
        rig.fake.on_watch = cut
        reader = await primed(rig.store)
        at = await rig.store.commit([putting(thing(name)) for name in ("a", "b", "c")])
        await reader.until(at.revision)
        assert summary(reader.changes) == [(at.revision, name, False) for name in ("a", "b", "c")]
        assert [each.more for each in reader.changes] == [True, True, False]
        assert not rig.store.counts


async def test_repeated_events_are_delivered_once() -> None:
    """etcd has sent events twice; the store drops the repetition, and counts it."""
    async with rigged() as rig:
        rig.fake.on_watch = lambda response: [response, response]
        reader = await primed(rig.store)
        at = await put(rig.store, resource := thing("a"))
        await remove(rig.store, resource, str(at.revision))
        await followed(reader, rig.store)
        assert len(reader.changes) == 2
        await until(lambda: rig.store.counts["stale commits"] == 2)
        assert set(rig.store.counts) == {"stale commits", "stale events"}


async def test_watch_that_jumps_back_does_not_rewind_the_store() -> None:
    """After a partition, a watch has repeated old revisions: neither data nor the position go back."""
    async with rigged() as rig:
        heard: list[WatchResponse] = []

        def note(response: WatchResponse) -> Iterable[WatchResponse]:
            heard.append(response)
            return [response]

        rig.fake.on_watch = note
        reader = await primed(rig.store)
        at = await put(rig.store, resource := thing("a", "first"))
        await put(rig.store, thing("a", "second", uid=uid_of(resource)), str(at.revision))
        gone = await remove(rig.store, resource, str(rig.store.position.revision))
        await reader.until(gone.revision)
        for response in heard[:2]:
            rig.fake.respond_on_watches(response)
        await until(lambda: rig.store.counts["stale commits"] >= 2)
        assert await names(rig.store) == []
        assert rig.store.position == gone
        assert len(reader.changes) == 3


async def test_watch_at_a_lagging_member_delivers_nothing_old() -> None:
    """A watch opened at a future revision at a lagging member has sent earlier events: the store drops them."""
    async with rigged() as rig:
        at = await put(rig.store, thing("a"))
        reader = await primed(rig.store)
        old = rig.fake.state.history[-1][1]

        def first_of_the_past(response: WatchResponse) -> Iterable[WatchResponse]:
            if response.events:
                yield WatchResponse(header=response.header, events=old)
            yield response

        rig.fake.on_watch = first_of_the_past
        rig.fake.cancel_watches("etcdserver: no leader")
        await until(lambda: len(rig.fake.watches) == 2 and rig.fake.watchers)
        assert rig.fake.watches[1].start_revision == etcd_revision(at.revision) + 1
        await put(rig.store, thing("b"))
        await followed(reader, rig.store)
        assert [name for _, name, _ in summary(reader.changes)] == ["b"]
        assert rig.store.counts["stale commits"] == 1


def _are_open(fake: FakeEtcd, count: int) -> bool:
    return len(fake.watches) == count


async def test_canceled_watch_resumes_where_it_was() -> None:
    """A member without a leader ends its watches. The store receives later commits, and its watchers notice nothing."""
    async with rigged() as rig:
        reader = await primed(rig.store)
        async with EtcdBackend(rig.url) as other:
            # One watch of `rig.store`, and two of `other`: its current one, and an earlier one that read the history.
            begun = 3
            for index in range(3):
                await until(functools.partial(_are_open, rig.fake, begun + 2 * index))
                await put(other, thing(f"before-{index}"))
                rig.fake.cancel_watches("etcdserver: no leader")
                await put(other, thing(f"after-{index}"))
            await followed(reader, rig.store)
        assert len(reader.changes) == 6
        assert rig.store.counts["watches cancelled"] == 3
        assert not rig.store.counts["snapshots"]


@pytest.mark.parametrize("lost", ["a change", "the head", "a commit"])
async def test_lost_events_are_detected(lost: str) -> None:
    """Starved streams have lost events: every watcher gets a gap, and reads return the truth."""
    async with rigged() as rig:
        reader = await primed(rig.store)

        def lose(response: WatchResponse) -> Iterable[WatchResponse]:
            kept = [event for event in response.events if not _is_lost(event, lost)]
            if kept or not response.events:
                yield WatchResponse(header=response.header, events=kept)

        async with EtcdBackend(rig.url) as other:
            rig.fake.on_watch = lose
            await other.commit([putting(thing("a")), putting(thing("b"))])
            rig.fake.on_watch = lambda response: [response]
            await put(other, thing("c"))
        await refused(HistoryCompacted, _all_of(reader), "a watcher of a store that has a gap")
        assert not reader.held.keys() & {("default", "default", "a"), ("default", "default", "b")}
        assert await names(rig.store) == ["a", "b", "c"]
        assert rig.store.counts["snapshots"] == 1
        await followed(await primed(rig.store), rig.store)


def _is_lost(event: Event, lost: str) -> bool:
    assert event.kv is not None
    key = event.kv.key
    return lost == "a commit" or (key.endswith(b"/head") if lost == "the head" else key.endswith(b"/a"))


async def _all_of(reader: object) -> None:
    with trio.fail_after(30):
        while True:
            await reader.next()  # type: ignore[attr-defined]


async def test_store_is_read_again_after_a_compaction() -> None:
    """The missed events are compacted: watchers get an error and resume by a snapshot without the deleted resources."""
    async with rigged() as rig:
        at = await put(rig.store, doomed := thing("doomed"))
        reader = await primed(rig.store)
        async with EtcdBackend(rig.url) as other:
            rig.fake.on_watch = lambda response: [] if response.events else [response]
            await remove(other, doomed, str(at.revision))
            here = await put(other, thing("a"))
            rig.fake.on_watch = lambda response: [response]
            rig.fake.compact(etcd_revision(here.revision))
            rig.fake.cancel_watches(
                "mvcc: required revision has been compacted", compact_revision=etcd_revision(here.revision)
            )
            assert await names(rig.store) == ["a"]
        await refused(HistoryCompacted, _all_of(reader), "a watch whose changes are compacted")
        await refused(HistoryCompacted, reading(rig.store, after=at), "a position before the compaction")
        assert rig.store.counts["snapshots"] == 1


async def test_compaction_of_received_history_costs_nothing() -> None:
    """The head of an idle store may be compacted. Without later commits the watch resumes without a snapshot."""
    async with rigged() as rig:
        await put(rig.store, thing("a"))
        reader = await primed(rig.store)
        for _ in range(20):
            rig.fake.put(b"/elsewhere", b"")
        rig.fake.compact(rig.fake.state.revision)
        rig.fake.cancel_watches("etcdserver: no leader")
        await until(lambda: len(rig.fake.watches) == 2)
        await put(rig.store, thing("b"))
        await followed(reader, rig.store)
        assert not rig.store.counts["snapshots"]


async def test_lease_that_expires_between_two_watches_has_ended() -> None:
    """The end of a lease is not a commit, so no revision shows that an event was missed."""
    async with rigged() as rig:
        term = (await rig.store.acquire_lease("c", "a", 60)).held.lease.term
        await names(rig.store)
        rig.fake.on_watch = lambda response: [] if response.events else [response]
        rig.fake.end_lease(next(iter(rig.fake.state.leases)))
        rig.fake.compact(rig.fake.state.revision)
        rig.fake.cancel_watches("etcdserver: no leader")
        rig.fake.on_watch = lambda response: [response]
        with trio.fail_after(30):
            await rig.store.wait_lease_ended("c", term)


async def test_progress_notification_moves_no_position() -> None:
    """A notification ahead of the events moves no watcher."""
    async with rigged() as rig:
        here = await put(rig.store, thing("a"))
        reader = await primed(rig.store)
        header = rig.fake._header()
        header.revision += 1000
        rig.fake.respond_on_watches(WatchResponse(header=header))
        at = await put(rig.store, thing("b"))
        await reader.until(at.revision)
        assert summary(reader.changes) == [(at.revision, "b", False)]
        assert reader.bookmarks == []
        assert etcd_revision(at.revision) == etcd_revision(here.revision) + 1
        assert len(rig.fake.watches) == 1


async def test_false_progress_notification_ends_the_watch() -> None:
    """It is at a revision whose commit the watch has not delivered; another watch delivers it."""
    async with rigged() as rig:
        reader = await primed(rig.store)
        rig.fake.on_watch = lambda response: [] if response.events else [response]
        at = await put(rig.store, thing("a"))
        rig.fake.on_watch = lambda response: [response]
        rig.fake.respond_on_watches(WatchResponse(header=rig.fake._header()))
        await reader.until(at.revision)
        assert summary(reader.changes) == [(at.revision, "a", False)]
        assert rig.store.counts["false progress"] == 1
        assert not rig.store.counts["snapshots"]


async def test_silent_watch_is_probed_and_then_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without reads and without events, the store itself checks whether there is anything to receive."""
    monkeypatch.setattr(_follow, "SILENCE", 0.05)
    async with rigged() as rig:
        reader = await primed(rig.store)
        async with EtcdBackend(rig.url) as other:
            rig.fake.on_watch = lambda response: [] if response.events else [response]
            rig.fake.on_progress = lambda _: None
            at = await put(other, thing("a"))
            rig.fake.on_watch = lambda response: [response]
            with trio.fail_after(30):
                await reader.until(at.revision)
        assert rig.fake.progress_requests
        assert rig.store.counts["watches stalled"] == 1


async def test_stale_read_is_rejected() -> None:
    """A linearizable read below the received revision is not used, and the store compares its state again."""
    async with rigged() as rig:
        await put(rig.store, thing("a"))
        await names(rig.store)
        before = rig.fake._range(RangeRequest(key=b"/staff/head"))
        at = await put(rig.store, thing("b"))
        await names(rig.store)

        def past(request: RangeRequest, response: RangeResponse) -> RangeResponse:
            return before if request.key == b"/staff/head" else response

        rig.fake.on_range = past
        await refused(Unavailable, names(rig.store), "a read below the received revision")
        rig.fake.on_range = lambda _, response: response
        await until(lambda: len(rig.fake.watches) == 2)
        assert await names(rig.store) == ["a", "b"]
        assert rig.store.position == at
        assert not rig.store.counts["other histories"]
