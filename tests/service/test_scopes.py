"""WatchList by metadata: confirmed first, filtered before anything is encoded, and refused if the filter is invalid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from grpclib.const import Status
from typing_extensions import override

from headway.client import open_watch_list
from headway.protobuf import encode
from headway.resource import Bookmark, Changes, EndOfSnapshot, ScopeConfirmed, SnapshotChunk, pb, position
from headway.rpc import InProcessChannel, PassingChannel
from headway.service import ResourceService, WatchDecoder, WatchEncoder
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import NOTE, Note, a_note, a_type, id_of, registry
from tests.service.test_access import Guard

GOLD = "tier=gold"


def gold(name: str, tier: str = "gold", text: str = "") -> pb.Resource:
    return NOTE.new(name, Note(text=text), metadata={"tier": tier}).message()


async def test_watch_by_metadata_confirms_its_filter_before_anything_else(calls: Calls) -> None:
    """Then it has the snapshot and the changes of its scope. Other commits are bookmarks."""
    ada = await calls.stored(gold("ada"))
    await calls.stored(gold("bob", "free"))
    async with calls.watch(a_type(), metadata_filter=GOLD) as items:
        confirmed: object = await anext(items)
        assert confirmed == ScopeConfirmed(GOLD)
        there, end = await take(items, 2)
        assert there == SnapshotChunk([ada])
        assert isinstance(end, EndOfSnapshot)
        left = await calls.stored(gold("ada", "free"))
        (gone,) = await take(items, 1)
        assert isinstance(gone, Changes)
        assert [(each.resource, each.revision, each.deleted) for each in gone.changes] == [
            (ada, int(left.version), True)
        ]
        quiet = await calls.stored(gold("bob", "silver"))
        mark = await anext(items)
        assert isinstance(mark, Bookmark)
        assert mark.position.revision == int(quiet.version)
        back = await calls.stored(gold("ada"))
        (entered,) = await take(items, 1)
        assert isinstance(entered, Changes)
        assert [(each.resource, each.deleted) for each in entered.changes] == [(back, False)]


async def test_resumed_watch_by_metadata_has_the_leavings_since(calls: Calls) -> None:
    ada = await calls.stored(gold("ada"))
    begun = calls.backend.position
    left = await calls.stored(gold("ada", "free"))
    async with calls.watch(a_type(), metadata_filter=GOLD, resume_after=begun.message()) as items:
        confirmed: object = await anext(items)
        assert confirmed == ScopeConfirmed(GOLD)
        resumed, gone = await take(items, 2)
        assert resumed == Bookmark(begun, resumed=True)
        assert isinstance(gone, Changes)
        [only] = gone.changes
        assert (only.resource, only.revision, only.deleted) == (ada, int(left.version), True)


async def test_watch_without_a_filter_has_no_confirmation(calls: Calls) -> None:
    """A client that does not know scopes gets what it has always got."""
    await calls.stored(gold("ada"))
    async with calls.watch(a_type()) as items:
        assert isinstance((await take(items, 1))[0], SnapshotChunk)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tier", "metadata_filter 'tier': 'tier' is not key=value: use key=value, with commas"),
        ("tier!=gold", "'tier!=gold' is not key=value"),
        ("a=1,a=2", "selects two values of 'a'"),
        (",".join(f"k{number}=" for number in range(40)), "has 40 entries: it must have at most 32"),
        ("a=" + "x" * 5000, "must have at most 4096"),
    ],
)
async def test_invalid_filter_of_a_watch_is_refused_with_the_field(in_memory: Calls, text: str, said: str) -> None:
    async with in_memory.watch(a_type(), metadata_filter=text) as items:
        await refused(anext(items), Status.INVALID_ARGUMENT, said)


async def test_filter_is_not_read_for_a_caller_without_rights() -> None:
    """A caller who may not watch the type learns nothing about the filter, valid or not."""
    guard = Guard()
    guard.unlisted.add(NOTE.name)
    calls = Calls(MemoryBackend(), registry(), guard)
    for text in (GOLD, "!!"):
        async with calls.watch(a_type(), metadata_filter=text) as items:
            await refused(anext(items), Status.PERMISSION_DENIED, "you may not watch")


async def test_resources_outside_a_scope_are_not_encoded() -> None:
    """The encoder sees only what is sent."""
    backend = MemoryBackend()
    calls = Calls(backend, registry())
    for number in range(50):
        await calls.stored(gold(f"n{number}", "gold" if number == 7 else "free", text="x" * 100))
    encoder = WatchEncoder()
    sent = 0
    async with calls.watch(a_type(), metadata_filter=GOLD, snapshot_only=True) as items:
        async for item in items:
            sent += sum(len(piece) for piece in encoder(item))
    assert sent < 500


async def test_confirmation_is_one_event_on_the_wire() -> None:
    """A decoder that does not know it ignores it, as every event of an unknown kind."""
    [framed] = WatchEncoder()(ScopeConfirmed(GOLD))
    body = framed[5:]
    assert body == encode(pb.WatchEvent(scoped=pb.WatchEventScoped(metadata_filter=GOLD)))
    decoder = WatchDecoder()
    assert decoder([body]) == [ScopeConfirmed(GOLD)]
    # The snapshot has not begun with it.
    [chunk] = decoder([encode(pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=a_note("one"))))])
    assert isinstance(chunk, SnapshotChunk)


class OldServer(PassingChannel):
    """A channel to a server that ignores `metadata_filter`, as one from before scopes does, until it is updated."""

    updated = False

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if isinstance(request, pb.WatchListRequest) and not self.updated:
            request = pb.WatchListRequest(
                type=request.type, tenancy=request.tenancy, resume_after=request.resume_after, bookmarks=True
            )
        return super().stream(path, request, **options)


@pytest.mark.parametrize("resumed", [False, True])
async def test_server_that_ignores_the_filter_is_noticed_before_it_gives_more(resumed: bool) -> None:
    """The reader gets an error in place of the first item, be it a snapshot or the beginning of a resumed watch."""
    backend = MemoryBackend()
    channel = InProcessChannel(ResourceService(backend, registry()))
    await Calls(backend, registry()).stored(gold("bob", "free"))
    request = pb.WatchListRequest(type=a_type(), bookmarks=True, metadata_filter=GOLD)
    if resumed:
        request.resume_after = backend.position.message()
    async with open_watch_list(OldServer(channel), request) as items:
        message = await refused(anext(items), Status.FAILED_PRECONDITION, "did not apply metadata_filter 'tier=gold'")
        assert "update the server" in message
    async with open_watch_list(channel, request) as items:
        assert not isinstance(await anext(items), ScopeConfirmed)


async def test_list_by_metadata_reads_a_filtered_snapshot(calls: Calls) -> None:
    """Terms that a scope cannot have still work in a list."""
    for name, tier in (("ada", "gold"), ("bob", "free"), ("eve", "gold")):
        await calls.stored(gold(name, tier))
    for text, wanted in (
        ("tier=gold", ["ada", "eve"]),
        ("tier!=gold", ["bob"]),
        ("tier", ["ada", "bob", "eve"]),
        ("tier=gold,tier=free", []),
    ):
        reply = await calls.list_type(a_type(), pb.Tenancy(partition="*", namespace="*"), metadata_filter=text)
        assert [id_of(each).name for each in reply.resources] == wanted
        assert position(reply.position) == calls.backend.position
