"""The cache of encoded resources: what it keeps, and that watches and lists send the same bytes from it."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from headway import rpc
from headway.base import joined
from headway.client import Client
from headway.protobuf import decode
from headway.resource import SnapshotChunk, Within, pb
from headway.rpc import PIECE
from headway.service import ResourceEncodings, WatchEncoder
from headway.service._encodings import in_pieces
from tests.rpc.rpc_kit import THING, Served, Text, app, served

LIST = "/headway.resource.v1.ResourceService/List"
CONSULS = "/hashicorp.consul.resource.ResourceService/List"


def test_resource_is_encoded_once_while_the_cache_has_room() -> None:
    """The size of the cache is bounded."""
    encodings = ResourceEncodings(size=4000)
    resource = pb.Resource(version="x" * 100)
    first = encodings.of(resource)
    assert encodings.of(resource) is first
    others = [pb.Resource(version=str(number) * 100) for number in range(100)]
    for other in others:
        assert decode(pb.Resource, encodings.of(other)) == other
        assert encodings.of(resource) is first
    for other in others:
        encodings.of(other)
    assert encodings.held < 2 * 4000 + 600
    assert encodings.of(resource) is not first


def test_scan_larger_than_the_cache_evicts_nothing() -> None:
    """The same scan is repeated in the same order. An entry evicted for it would be encoded anew each time."""
    encodings = ResourceEncodings(size=4000)
    kept = pb.Resource(version="kept")
    first = encodings.of(kept)
    stored = [pb.Resource(version=f"{number:0100}") for number in range(40)]
    before = 0
    for _ in range(3):
        before = encodings.encoded
        assert [decode(pb.Resource, encodings.of_scanned(each)) for each in stored] == stored
        assert encodings.held <= 2 * 4000 + 600
    assert encodings.encoded - before < 30
    assert encodings.of(kept) is first


def test_scan_that_is_not_repeated_makes_room_for_the_next() -> None:
    """Resources that are deleted or no longer read do not fill the cache forever."""
    encodings = ResourceEncodings(size=4000)
    gone = [pb.Resource(version=f"{number:0100}") for number in range(20)]
    for each in gone:
        encodings.of_scanned(each)
    stored = [pb.Resource(version=f"{number:0100}") for number in range(15)]
    for _ in range(30):
        for each in stored:
            encodings.of_scanned(each)
    before = encodings.encoded
    for each in stored:
        encodings.of_scanned(each)
    assert encodings.encoded == before


def test_resource_that_nobody_else_holds_is_not_mistaken_for_another() -> None:
    """Entries are found by identity, and a freed object's identity is soon that of another one."""
    for encoded in (ResourceEncodings().of, ResourceEncodings().of_scanned):
        for number in range(100):
            assert decode(pb.Resource, encoded(pb.Resource(version=str(number)))).version == str(number)


def test_change_that_is_also_in_a_snapshot_is_encoded_once() -> None:
    """The order of the two doesn't matter."""
    encodings = ResourceEncodings()
    changed, there = pb.Resource(version="1"), pb.Resource(version="2")
    assert encodings.of(changed) is encodings.of_scanned(changed)
    assert encodings.of_scanned(there) is encodings.of(there)
    assert encodings.encoded == 2


def test_resources_are_kept_together_or_not_at_all() -> None:
    encodings = ResourceEncodings()
    stored = [pb.Resource(version=str(number)) for number in range(5)]
    bodies = [encodings.of_scanned(each) for each in stored[:4]]
    assert encodings.kept(stored[:4]) == bodies
    assert encodings.kept(stored) is None
    # An equal resource is another one: only the identity is looked up.
    assert encodings.kept([pb.Resource(version="0")]) is None


def test_snapshot_from_the_cache_has_the_same_bytes() -> None:
    """Its pieces are bounded in the same way."""
    encoder = WatchEncoder()
    chunk = SnapshotChunk([pb.Resource(version="x" * (number * number)) for number in range(200)])
    first = list(encoder(chunk))
    again = list(encoder(chunk))
    assert b"".join(again) == b"".join(first)
    assert max(map(len, again)) < PIECE + 200 * 200
    assert len(again) > 10


@given(st.lists(st.sampled_from([0, 1, 100, 10_000, PIECE // 2, PIECE - 1, PIECE, PIECE + 1]), max_size=20))
def test_pieces_end_where_they_reach_their_size(sizes: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert list(in_pieces(bodies, lambda _: b"")) == list(joined(bodies, PIECE))


@pytest.mark.parametrize("path", [LIST, CONSULS])
async def test_list_is_encoded_once_until_a_resource_changes(path: str) -> None:
    """It shares the bytes with watches, and sends what a reply that is encoded at once contains."""
    async with served() as it, rpc.open_channel(it.where) as channel:
        local = Client(rpc.InProcessChannel(it.services), app.registry)
        for number in range(600):
            await local.write(THING.new(f"thing-{number:03}", Text(text="1")))

        first = await _listed(it, channel, path)
        assert it.encodings.encoded == 600
        assert await _listed(it, channel, path) == first
        assert it.encodings.encoded == 600
        await local.write(THING.new("thing-077", Text(text="2")))
        await local.delete(THING.id("thing-500"))
        changed = await _listed(it, channel, path)
        assert it.encodings.encoded == 601
        assert (len(changed), changed[77].version) == (599, str(it.backend.position.revision - 1))


async def _listed(it: Served, channel: rpc.Channel, path: str) -> list[pb.Resource]:
    """Return the resources of a list over the network. Fail unless the store has the same ones."""
    request = pb.ListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
    with trio.fail_after(20):
        found: list[pb.Resource] = (await channel.unary(path, request, pb.ListResponse)).resources
    stored, _ = await it.backend.list(THING.kind, Within())
    assert found == list(stored)
    return found
