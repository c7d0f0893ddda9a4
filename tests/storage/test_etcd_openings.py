"""The history that a newly opened etcd store has: as much as etcd holds, up to a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway._gen.etcdserverpb import (
    CompactionRequest,
    CompactionResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    WatchResponse,
)
from headway._gen.mvccpb import Event, KeyValue
from headway.errors import HistoryCompacted
from headway.events import DeletionsUnknown
from headway.resource import Position
from headway.rpc import RemoteChannel, open_channel
from headway.storage import EtcdBackend
from headway.storage.etcd import _follow, etcd_revision
from headway.testing.conformance import names, put, reading, refused, remove, thing
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd
from tests.helpers.pools import Pool
from tests.storage.etcd_kit import PREFIX, followed, primed


class Past(NamedTuple):
    """A store that no process has open, and its positions from first to last."""

    url: str
    positions: list[Position]


@pytest.fixture
def url(etcd: EtcdServer) -> str:
    return f"etcd://{etcd.endpoint}{etcd.new_prefix()}"


async def _with_a_past(url: str) -> Past:
    """Make a store in two openings: the second changes and deletes resources of the first, and a lease ends."""
    async with EtcdBackend(url) as store:
        positions = [await put(store, gone := thing("gone")), await put(store, thing("kept"))]
        term = (await store.acquire_lease("c", "a", 60)).held.lease.term
        await store.raise_fence("c", "", term, 1)
    async with EtcdBackend(url) as store:
        positions.append(await remove(store, gone, str(positions[0].revision)))
        await store.release_lease("c", "a", term)
        positions.append(await put(store, thing("last")))
    return Past(url, positions)


async def _received(store: EtcdBackend, after: Position) -> list[tuple[str, bool]]:
    """Return the names that a watch receives from this position up to the head, and whether each was deleted."""
    await names(store)
    reader = await reading(store, after=after)
    await reader.until(store.position.revision)
    return [(change.resource.id.name, change.deleted) for change in reader.changes if change.resource.id is not None]


async def test_watch_resumed_in_a_new_opening_receives_earlier_deletions(url: str) -> None:
    """The position may be of any earlier opening. The current state is the same as for any other watch."""
    past = await _with_a_past(url)
    async with EtcdBackend(url) as store:
        first, second, removed, last = past.positions
        assert await _received(store, first) == [("kept", False), ("gone", True), ("last", False)]
        assert await _received(store, second) == [("gone", True), ("last", False)]
        assert await _received(store, removed) == [("last", False)]
        assert await _received(store, last) == []
        assert await names(store) == ["kept", "last"]
        assert await store.list_fences()
        assert not (await store.list_leases())[0]
        await put(store, thing("new"))
        await followed(await primed(store), store)
        assert not store.counts["openings without history"]


async def test_controller_receives_deletions_made_while_it_was_away(url: str) -> None:
    """They come from the history of its engine (C6), though the engine has only just been opened."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)
    gone: list[str] = []
    reported: list[object] = []

    @app.controller(manages=pool)
    async def look(rt: headway.Runtime, request: headway.Request[Pool]) -> None:
        if rt.resource(request) is None:
            gone.append(request.id.name)

    async with headway.open_engine(url, app, report=reported.append) as engine:
        for name in ("kept", "deleted"):
            await engine.client.write(pool.new(name))
        await engine.wait_idle()
    others = headway.App("pools")
    others.type("pools", "v1", "Pool", Pool)
    async with headway.open_engine(url, others, report=reported.append) as engine:
        await engine.client.delete(pool.id("deleted"))
    assert gone == []
    async with headway.open_engine(url, app, report=reported.append) as engine:
        await engine.wait_idle()
    assert gone == ["deleted"]
    assert not any(isinstance(event, DeletionsUnknown) for event in reported)


async def test_history_begins_at_the_compaction_of_etcd(url: str, etcd: EtcdServer) -> None:
    """An earlier position gets an error, a later one resumes, even with keys of other programs in between."""
    past = await _with_a_past(url)
    first, second, _, last = past.positions
    async with open_channel(etcd.endpoint) as channel:
        await _compact(channel, etcd_revision(second.revision))
        async with EtcdBackend(url) as store:
            assert await _received(store, second) == [("gone", True), ("last", False)]
            await refused(HistoryCompacted, reading(store, after=first), "resuming before the compaction")
            stood = await put(store, thing("later"))
        for _ in range(3):
            put_elsewhere = PutRequest(key=b"/elsewhere", value=b"")
            here = (await channel.unary("/etcdserverpb.KV/Put", put_elsewhere, PutResponse)).header
        assert here is not None
        await _compact(channel, here.revision)
    async with EtcdBackend(url) as store:
        assert not store.counts
        assert await _received(store, stood) == []
        await refused(HistoryCompacted, reading(store, after=last), "resuming before the compaction")


async def _compact(channel: RemoteChannel, revision: int) -> None:
    request = CompactionRequest(revision=revision, physical=True)
    await channel.unary("/etcdserverpb.KV/Compact", request, CompactionResponse)


async def test_opening_reads_a_bounded_number_of_commits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never reads more commits than its history keeps. The store serves no call until it has read them."""
    past = await _with_a_past(url)
    *_, removed, last = past.positions
    # Each opening ends with a commit of its own.
    for bound, max_changes in ((1, 100), (100, 2)):
        monkeypatch.setattr(_follow, "AN_OPENINGS_HISTORY", bound)
        async with EtcdBackend(url, max_changes=max_changes) as store:
            assert await _received(store, last) == []
            await refused(HistoryCompacted, reading(store, after=removed), "resuming before the history that was read")
    monkeypatch.undo()
    async with EtcdBackend(url) as store:
        assert await _received(store, removed) == [("last", False)]


@asynccontextmanager
async def _fake() -> AsyncIterator[tuple[FakeEtcd, Past]]:
    async with serving_etcd() as (fake, endpoint):
        yield fake, await _with_a_past(f"etcd://{endpoint}{PREFIX}")


@pytest.mark.parametrize("trouble", ["a lost commit", "a canceled watch", "a silent watch", "a compaction in between"])
async def test_opening_without_readable_history_still_serves(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store holds the current state, and an earlier position gets an error."""
    monkeypatch.setattr(_follow, "_READING_HISTORY", 0.5)
    async with _fake() as (fake, past):

        def spoil(response: WatchResponse) -> list[WatchResponse]:
            if len(fake.watches) > begun + 1 or response.created:
                return [response]
            match trouble:
                case "a lost commit":
                    return [] if any(event.kv and b"kept" in event.kv.key for event in response.events) else [response]
                case "a canceled watch":
                    return [WatchResponse(header=response.header, canceled=True, compact_revision=5)]
                case _:
                    return []

        def compacted(request: RangeRequest, response: RangeResponse) -> RangeResponse:
            if request.key.startswith(f"{PREFIX}/resource/".encode()) and request.revision < fake.state.revision:
                raise GRPCError(Status.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
            return response

        begun = len(fake.watches)
        if trouble == "a compaction in between":
            fake.on_range = compacted
        else:
            fake.on_watch = spoil
        async with EtcdBackend(past.url) as store:
            assert store.counts["openings without history"] == 1
            assert await names(store) == ["kept", "last"]
            await refused(HistoryCompacted, reading(store, after=past.positions[-1]), "resuming without history")
            await put(store, thing("new"))
            await followed(await primed(store), store)


async def test_opening_reads_recent_history_within_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """If reading all of it would take too long, as with many commits per transaction, the store has the newest part."""
    monkeypatch.setattr(_follow, "_READING_HISTORY", 0.5)
    async with _fake() as (fake, past):
        responses = 0

        def slow(response: WatchResponse) -> list[WatchResponse]:
            nonlocal responses
            if len(fake.watches) == begun + 1 and response.events:
                responses += 1
                return [response] if responses <= 2 else []
            return [response]

        begun = len(fake.watches)
        fake.on_watch = slow
        async with EtcdBackend(past.url) as store:
            assert not store.counts
            *_, removed, last = past.positions
            assert await _received(store, last) == []
            await refused(HistoryCompacted, reading(store, after=removed), "resuming before the history that was read")
            await put(store, thing("new"))
            await followed(await primed(store), store)


async def test_commit_split_at_the_end_of_the_history_is_received_once() -> None:
    """The watch for the history ends within a commit. The next watch delivers that commit from its start."""
    async with _fake() as (fake, past):

        def half_a_commit_more(response: WatchResponse) -> list[WatchResponse]:
            last = response.events[-1].kv if response.events else None
            if len(fake.watches) == begun + 1 and last is not None and last.mod_revision == fake.state.revision:
                key = f"{PREFIX}/resource/conformance/Thing/default/default/new".encode()
                response.events.append(Event(kv=KeyValue(key=key, mod_revision=fake.state.revision + 1)))
            return [response]

        begun = len(fake.watches)
        fake.on_watch = half_a_commit_more
        async with EtcdBackend(past.url) as store:
            await put(store, thing("new"))
            await followed(await primed(store), store)
            assert not store.counts, "the watch has lost, repeated or rejected an event"
