"""Large lists have every resource once and in order, whatever the store's order and however much is encoded already."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status
from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.protobuf import encode
from headway.resource import EndOfSnapshot, Key, Kind, Position, SnapshotChunk, StreamItem, Within, pb, resource_key
from headway.rpc import PIECE
from headway.storage import MemoryBackend, Put, SqliteBackend, Watch, open_store
from tests.helpers.calls import refused
from tests.helpers.declared import NOTE, NOTE_V2, ULID, a_note, a_type, id_of
from tests.service.conftest import reached
from tests.storage.sqlite_kit import count_pages, set_limit

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")
COUNT = 2_500
"""More than two chunks of a snapshot."""


class Shuffled(Watch):
    """A watch whose snapshot is in no order. A store may claim an order for some chunks alone."""

    def __init__(self, inner: Watch, claims: bool) -> None:
        self._inner = inner
        self._claims = claims
        self._snapshot: list[pb.Resource] | None = None
        self._items: list[StreamItem] = []

    @override
    async def next(self) -> StreamItem:
        if self._snapshot is None:
            self._snapshot = []
            while isinstance(item := await self._inner.next(), SnapshotChunk):
                self._snapshot += item.resources
            assert isinstance(item, EndOfSnapshot)
            random.Random(5).shuffle(self._snapshot)
            half = len(self._snapshot) // 2
            chunks = [SnapshotChunk(self._snapshot[:half]), SnapshotChunk(self._snapshot[half:], self._claims)]
            self._items = [item, *reversed(chunks)]
        return self._items.pop() if self._items else await self._inner.next()

    @override
    def close(self) -> None:
        self._inner.close()


class InNoOrder(MemoryBackend):
    claims = False

    @override
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Any:
        return Shuffled(await super().watch(kind, within, resume_after), self.claims)


class LastInOrder(InNoOrder):
    claims = True


def notes(count: int, type: Any = NOTE) -> list[Put]:
    made = []
    for number in range(count):
        note = a_note(f"n{number:05}", partition="default", namespace="default", type=type)
        id_of(note).uid = ULID
        made.append(Put(NOTE.kind, resource_key(note), note, ""))
    return made


@pytest.mark.parametrize("store", [MemoryBackend, pytest.param(InNoOrder, marks=pytest.mark.wide), LastInOrder])
async def test_large_list_is_complete_and_in_order(store: type[MemoryBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first list encodes the resources, and later ones find the bytes of those that have not changed."""
    monkeypatch.setattr("headway.service._pages._JOINED", 700)
    wanted = [f"n{number:05}" for number in range(COUNT)]
    async with reached("network", store()) as calls:
        await calls.backend.commit(notes(COUNT))

        async def listed() -> list[str]:
            resources = (await calls.list_type(a_type(), EVERYWHERE)).resources
            for each in resources:
                assert each == (await calls.backend.read(NOTE.kind, resource_key(each)))[0]
            return [id_of(each).name for each in resources]

        assert await listed() == wanted
        assert await listed() == wanted
        # Only one of the last chunk has no kept bytes now.
        (changed,) = notes(COUNT)[-1:]
        changed.resource.metadata = {"changed": "yes"}
        await calls.backend.commit([changed._replace(expected="1")])
        assert await listed() == wanted
        assert await listed() == wanted


@pytest.mark.parametrize("store", ["memory:", "sqlite:a.db"])
async def test_list_of_a_store_in_order_is_not_sorted(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To sort it, the server would decode all of it again."""
    monkeypatch.delattr("headway.service._pages.ListReply.sort")
    monkeypatch.chdir(tmp_path)
    async with open_store(store) as backend, reached("network", backend) as calls:
        await backend.commit(notes(COUNT))
        resources = (await calls.list_type(a_type(), EVERYWHERE)).resources
    assert [id_of(each).name for each in resources] == [f"n{number:05}" for number in range(COUNT)]


async def test_other_tasks_run_while_kept_bytes_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    async def give_way() -> None:
        nonlocal turns
        turns += 1
        await trio.lowlevel.checkpoint()

    async with reached("network", MemoryBackend()) as calls:
        await calls.backend.commit(notes(COUNT))
        await calls.list_type(a_type(), EVERYWHERE)
        monkeypatch.setattr("headway.service._pages.give_way", give_way)
        monkeypatch.setattr("headway.service._pages._JOINED_PIECES", 2)
        size = len(encode(await calls.list_type(a_type(), EVERYWHERE)))
    assert turns == size // (2 * PIECE) > 0


async def test_list_whose_last_resource_is_of_another_version_is_complete() -> None:
    """Chunks of a single version are taken as a whole, and others one by one."""
    async with reached("network", MemoryBackend()) as calls:
        await calls.backend.commit([*notes(COUNT - 1), *notes(COUNT, NOTE_V2)[-1:]])
        wanted = [f"n{number:05}" for number in range(COUNT - 1)]
        for _ in range(3):
            assert [id_of(each).name for each in (await calls.list_type(a_type(), EVERYWHERE)).resources] == wanted


async def test_large_list_by_metadata_is_in_order() -> None:
    """The second one finds the resources by an index, which has them in the order of their writes."""
    async with reached("network", MemoryBackend()) as calls:
        puts = notes(COUNT)
        for put in puts:
            put.resource.metadata = {"team": "core"}
        random.Random(3).shuffle(puts)
        for begin in range(0, COUNT, 500):
            await calls.backend.commit(puts[begin : begin + 500])
        for _ in range(3):
            reply = await calls.list_type(a_type(), EVERYWHERE, metadata_filter="team=core")
            assert [id_of(each).name for each in reply.resources] == [f"n{number:05}" for number in range(COUNT)]


async def test_list_that_is_too_large_is_refused_without_reading_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first page that exceeds the limit, the list has been refused."""
    monkeypatch.setattr("headway.service._pages.MAX_REPLY", 25_000)
    set_limit(monkeypatch, "PAGE_BYTES", 10_000)
    async with SqliteBackend(tmp_path / "a.db") as store, reached("network", store) as calls:
        await store.commit(notes(COUNT))
        pages = count_pages(monkeypatch)
        await refused(calls.list_type(a_type(), EVERYWHERE), Status.RESOURCE_EXHAUSTED, "in one reply: ask for pages")
        assert len(pages) == 3
        assert sum(pages) < COUNT / 10


class Counted(MemoryBackend):
    """A store that records how many resources each list asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    @override
    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        self.limits.append(limit)
        return await super().list(kind, within, after=after, limit=limit)


async def test_rest_of_pages_that_is_too_large_is_refused_without_reading_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of size 0 with a token asks for everything that is left."""
    monkeypatch.setattr("headway.service._pages._MOST_READ", 300)
    store = Counted()
    async with reached("network", store) as calls:
        await calls.backend.commit(notes(COUNT))
        first = await calls.list_type(a_type(), EVERYWHERE, page_size=1)
        store.limits.clear()
        rest = await calls.list_type(a_type(), EVERYWHERE, page_token=first.next_page_token)
        assert [id_of(each).name for each in rest.resources] == [f"n{number:05}" for number in range(1, COUNT)]
        assert store.limits == [300] * 9
        store.limits.clear()
        monkeypatch.setattr("headway.service._pages.MAX_REPLY", 50_000)
        call = calls.list_type(a_type(), EVERYWHERE, page_token=first.next_page_token)
        await refused(call, Status.RESOURCE_EXHAUSTED, "in one reply: ask for pages")
        assert store.limits == [300, 300]


async def test_reads_for_a_page_are_neither_too_small_nor_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a single resource that few match does not read one by one, and a large page not all at once."""
    monkeypatch.setattr("headway.service._pages._LEAST_READ", 200)
    monkeypatch.setattr("headway.service._pages._MOST_READ", 300)
    store = Counted()
    async with reached("network", store) as calls:
        await calls.backend.commit(notes(500))
        await calls.list_type(a_type(), EVERYWHERE, page_size=1, metadata_filter="rare")
        assert store.limits == [2, 200, 200, 200]
        store.limits.clear()
        await calls.list_type(a_type(), EVERYWHERE, page_size=1000)
        assert store.limits == [300, 300]


async def test_page_ends_before_its_reply_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token continues with the next resource."""
    monkeypatch.setattr("headway.service._pages.MAX_REPLY", 20_000)
    async with reached("network", MemoryBackend()) as calls:
        await calls.backend.commit(notes(300))
        token, pages = "", list[list[str]]()
        while token or not pages:
            reply = await calls.list_type(a_type(), EVERYWHERE, page_size=1000, page_token=token)
            assert len(encode(reply)) <= 20_000
            pages.append([id_of(each).name for each in reply.resources])
            token = reply.next_page_token
    assert len(pages) < 10
    assert [name for page in pages for name in page] == [f"n{number:05}" for number in range(300)]


async def test_list_that_is_too_large_only_when_it_is_encoded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients accept no larger message. The size that is estimated before that is a lower bound."""
    monkeypatch.setattr("headway.service._pages.MAX_REPLY", 5_000)
    async with reached("network", MemoryBackend()) as calls:
        (put,) = notes(1)
        put.resource.status = {"seen": pb.Status(conditions=[pb.Condition()] * 4_000)}
        await calls.backend.commit([put])
        await refused(calls.list_type(a_type(), EVERYWHERE), Status.RESOURCE_EXHAUSTED, "in one reply: ask for pages")


class CompactedWatch(Watch):
    @override
    async def next(self) -> StreamItem:
        raise HistoryCompacted("read too slowly")

    @override
    def close(self) -> None:
        pass


class Compacted(MemoryBackend):
    """A store that no longer has what is left of a snapshot."""

    @override
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Any:
        return CompactedWatch()


async def test_list_whose_snapshot_is_no_longer_kept_can_be_repeated() -> None:
    """It has no position from which to resume, so OUT_OF_RANGE would not tell its caller what to do."""
    async with reached("network", Compacted()) as calls:
        await refused(calls.list_type(a_type(), EVERYWHERE), Status.UNAVAILABLE, "read too slowly")
