"""The encoding: gRPC framing, and WatchEvents compared with betterproto2."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from grpclib import GRPCError
from grpclib.const import Status
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import PayloadError
from headway.protobuf import decode, varint
from headway.resource import (
    AnyMessage,
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    pb,
)
from headway.rpc import PIECE, MessageParser, framed
from headway.service import WatchDecoder, WatchEncoder

revisions = st.one_of(st.integers(1, 300), st.integers(1, (1 << 64) - 1))
positions = st.builds(Position, st.text(max_size=5), st.text(max_size=5), revisions)
resources = st.builds(
    pb.Resource,
    id=st.one_of(
        st.none(), st.builds(pb.Id, name=st.text(max_size=200), type=st.builds(pb.Type, kind=st.text(max_size=5)))
    ),
    version=st.text(max_size=10),
    metadata=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    data=st.one_of(st.none(), st.builds(AnyMessage, type_url=st.text(max_size=5), value=st.binary(max_size=20_000))),
)
changes = st.builds(Change, revisions, resources, st.booleans(), st.booleans())
live = st.one_of(
    st.builds(Changes, st.lists(changes, min_size=1, max_size=5)), st.builds(Bookmark, positions, st.just(False))
)
chunks = st.lists(st.builds(SnapshotChunk, st.lists(resources, min_size=1, max_size=5)), max_size=3)
ends = st.one_of(st.builds(EndOfSnapshot, positions), st.builds(Bookmark, positions, st.just(True)))
streams = st.builds(lambda before, end, after: [*before, end, *after], chunks, ends, st.lists(live, max_size=5))


def events(items: list[StreamItem]) -> list[pb.WatchEvent]:
    """Return the items as messages of the schema."""
    made: list[pb.WatchEvent] = []
    for item in items:
        if isinstance(item, SnapshotChunk):
            made += [pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=each)) for each in item.resources]
        elif isinstance(item, EndOfSnapshot):
            made.append(pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot(position=item.position.message())))
        elif isinstance(item, Bookmark):
            mark = pb.WatchEventBookmark(position=item.position.message(), resumed=item.resumed)
            made.append(pb.WatchEvent(bookmark=mark))
        else:
            made += [_event(change) for change in item.changes]
    return made


def _event(change: Change) -> pb.WatchEvent:
    if change.deleted:
        arm = pb.WatchEventDelete(resource=change.resource)
        return pb.WatchEvent(delete=arm, revision=change.revision, more=change.more)
    return pb.WatchEvent(
        upsert=pb.WatchEventUpsert(resource=change.resource), revision=change.revision, more=change.more
    )


def flat(items: Sequence[StreamItem | ScopeConfirmed]) -> list[object]:
    """Return the single entries of the items, however they are grouped."""
    said: list[object] = []
    for item in items:
        if isinstance(item, SnapshotChunk):
            said += [(0, bytes(each), False, False) for each in item.resources]
        elif isinstance(item, Changes):
            said += [(each.revision, bytes(each.resource), each.deleted, each.more) for each in item.changes]
        else:
            said.append(item)
    return said


def bodies(items: list[StreamItem]) -> list[bytes]:
    encoder, parser = WatchEncoder(), MessageParser(1 << 30)
    return [body for item in items for piece in encoder(item) for body in parser.feed(piece)]


@given(streams)
def test_handwritten_encoder_equals_betterproto2(items: list[StreamItem]) -> None:
    """The bytes are equal to the bytes of the schema's message."""
    assert bodies(items) == [bytes(event) for event in events(items)]


@given(streams, st.data())
def test_handwritten_decoder_reads_any_split_of_the_bytes(items: list[StreamItem], data: st.DataObject) -> None:
    stream = b"".join(piece for item in items for piece in WatchEncoder()(item))
    parser, decoder, got = MessageParser(1 << 30), WatchDecoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        whole = parser.feed(stream[:cut])
        stream = stream[cut:]
        got += decoder(whole) if whole else []
    assert flat(got) == flat(items)
    assert not parser.held


@given(resources, revisions)
def test_decoder_reads_events_in_any_layout(resource: pb.Resource, revision: int) -> None:
    """Protobuf allows any order of fields, unknown fields, and repeated oneof arms."""
    usual = bytes(pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=resource), revision=revision))
    tail = bytes(pb.WatchEvent(revision=revision))
    odd = [
        tail + usual,
        usual + tail,
        usual + b"\xf8\x3f\x01",
        bytes(pb.WatchEvent(delete=pb.WatchEventDelete())) + usual,
    ]
    for body in odd:
        assert flat(WatchDecoder()([_END, body])) == flat(WatchDecoder()([_END, usual]))


_END = bytes(pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot()))


@given(st.binary(max_size=60))
def test_invalid_bytes_raise_only_payload_error(body: bytes) -> None:
    """Some arbitrary bytes are a valid event."""
    try:
        WatchDecoder()([_END, body])
    except PayloadError:
        with pytest.raises(PayloadError):
            decode(pb.WatchEvent, body)
    else:
        decode(pb.WatchEvent, body)


@given(st.binary(max_size=60), st.booleans())
def test_invalid_events_of_a_snapshot_raise_only_payload_error(body: bytes, framed_as_resource: bool) -> None:
    """An event in the usual layout is recognized by its first bytes, and only the resource in it is decoded."""
    if framed_as_resource:
        inner = b"\x0a" + varint(len(body)) + body
        body = b"\x0a" + varint(len(inner)) + inner
    try:
        items = WatchDecoder()([body])
    except PayloadError:
        return
    if items and isinstance(item := items[0], SnapshotChunk):
        upsert = decode(pb.WatchEvent, body).upsert
        assert upsert is not None
        assert item.resources == [upsert.resource or pb.Resource()]


@pytest.mark.parametrize("number", [9, 15])
def test_events_of_every_size_may_begin_with_unknown_fields(number: int) -> None:
    """No event in the usual layout has 130 bytes, for example: none of that size is recognized by its first bytes."""
    event = bytes(pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=pb.Resource(version="5"))))
    for size in (*range(300), *range(16_300, 16_500)):
        body = varint(number << 3 | 2) + varint(size) + b"9" * size
        assert WatchDecoder()([body]) == []
        assert WatchDecoder()([body + event]) == [SnapshotChunk([pb.Resource(version="5")])]


def test_deletion_within_a_snapshot_is_refused() -> None:
    """A snapshot contains only existing resources."""
    with pytest.raises(PayloadError):
        WatchDecoder()([bytes(pb.WatchEvent(delete=pb.WatchEventDelete(resource=pb.Resource())))])


def test_large_items_are_encoded_in_pieces() -> None:
    """Otherwise a chunk of large resources would take as much memory again in bytes."""
    chunk = SnapshotChunk([pb.Resource(version="x" * 10_000) for _ in range(100)])
    sizes = [len(piece) for piece in WatchEncoder()(chunk)]
    assert max(sizes) < PIECE + 10_100
    assert len(sizes) > 10


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
def test_parser_returns_every_message_once_from_any_split(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(message) for message in messages)
    parser, got = MessageParser(40), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += parser.feed(stream[:cut])
        stream = stream[cut:]
    assert got == messages
    assert not parser.held


def test_message_over_the_limit_is_refused_by_its_length() -> None:
    """It is refused before any of its content has arrived."""
    parser = MessageParser(100)
    assert parser.feed(framed(b"x" * 100)) == [b"x" * 100]
    with pytest.raises(GRPCError) as caught:
        parser.feed((101).to_bytes(5, "big"))
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    with pytest.raises(GRPCError) as caught:
        MessageParser(100).feed(b"\x01\x00\x00\x00\x01x")
    assert caught.value.status is Status.UNIMPLEMENTED
