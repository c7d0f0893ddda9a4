"""Encoding of a subscription's items as SubscribeResponses, and decoding. Pure.

A snapshot is sent in batches of at most `PIECE` bytes, or of one event, because clients limit the size of a message.
The bytes of resources are shared with the streams of WatchList.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.errors import PayloadError
from headway.protobuf import decode, encode, varint
from headway.resource import AnyMessage, Change, pb
from headway.rpc import PIECE, framed
from headway.service._watch_wire import ResourceEncodings
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionEvent,
    SubscriptionItem,
    SubscriptionPosition,
    TopicEvent,
    subscription_position,
)

# The tags of SubscribeResponse.batch, Batch.events, Batch.position, and of the arms of Event.
_BATCH, _EVENTS, _POSITION = b"\x0a", b"\x0a", b"\x12"
_UPSERT, _DELETE, _PUBLISHED = b"\x0a", b"\x12", b"\x1a"


class SubscribeEncoder:
    """An encoder of items as framed messages, in pieces of whole messages. All streams share one."""

    def __init__(self, encodings: ResourceEncodings) -> None:
        self._of, self._of_scanned = encodings.of, encodings.of_scanned

    def __call__(self, item: SubscriptionItem) -> Iterable[bytes]:
        """Return the item's messages."""
        if isinstance(item, Commits):
            return self._commits(item.commits)
        if isinstance(item, SnapshotPart):
            return self._parts(item.events)
        return (framed(encode(_mark(item))),)

    def _commits(self, commits: list[Commit]) -> Iterator[bytes]:
        held: list[bytes] = []
        size = 0
        for events, position in commits:
            at = encode(position.message())
            body = [self._event(each, scanned=False) for each in events]
            message = _batch(b"".join([*body, _POSITION, varint(len(at)), at]))
            held.append(message)
            size += len(message)
            if size >= PIECE:
                yield b"".join(held)
                held, size = [], 0
        if held:
            yield b"".join(held)

    def _parts(self, events: list[SubscriptionEvent]) -> Iterator[bytes]:
        held: list[bytes] = []
        size = 0
        for event in events:
            body = self._event(event, scanned=True)
            if held and size + len(body) > PIECE:
                yield _batch(b"".join(held))
                held, size = [], 0
            held.append(body)
            size += len(body)
        if held:
            yield _batch(b"".join(held))

    def _event(self, event: SubscriptionEvent, *, scanned: bool) -> bytes:
        if isinstance(event, Change):
            inner = self._of_scanned(event.resource) if scanned else self._of(event.resource)
            arm = _DELETE if event.deleted else _UPSERT
        else:
            published = subscribe_pb.Published(topic=event.topic, subject=event.subject, data=event.data)
            inner, arm = encode(published), _PUBLISHED
        length = varint(len(inner))
        return b"".join((_EVENTS, varint(len(arm) + len(length) + len(inner)), arm, length, inner))


def _batch(body: bytes) -> bytes:
    return framed(_BATCH + varint(len(body)) + body)


def _mark(item: SnapshotComplete | NewSnapshot | Reached) -> subscribe_pb.SubscribeResponse:
    if isinstance(item, NewSnapshot):
        follows = subscribe_pb.NewSnapshotToFollow(reason=item.reason)
        return subscribe_pb.SubscribeResponse(new_snapshot_to_follow=follows)
    at = item.position.message()
    if isinstance(item, SnapshotComplete):
        return subscribe_pb.SubscribeResponse(end_of_snapshot=subscribe_pb.EndOfSnapshot(position=at))
    return subscribe_pb.SubscribeResponse(progress=subscribe_pb.Progress(position=at))


class SubscribeDecoder:
    """A decoder of one stream's SubscribeResponses. Batches that arrive together become one item."""

    def __call__(self, bodies: list[bytes]) -> list[SubscriptionItem]:
        """Return the items of messages that arrived together. Raises PayloadError if a message does not decode."""
        items: list[SubscriptionItem] = []
        commits: list[Commit] = []
        for body in bodies:
            response = decode(subscribe_pb.SubscribeResponse, body)
            batch = response.batch
            if batch is not None and batch.position is not None:
                position = subscription_position(batch.position)
                commits.append(Commit([_event(each, position) for each in batch.events], position))
                continue
            if commits:
                items.append(Commits(commits))
                commits = []
            item = SnapshotPart([_event(each, _NOWHERE) for each in batch.events]) if batch else _marked(response)
            if item is not None:
                items.append(item)
        if commits:
            items.append(Commits(commits))
        return items


_NOWHERE = SubscriptionPosition()


def _event(event: subscribe_pb.Event, position: SubscriptionPosition) -> SubscriptionEvent:
    resource = event.upsert or event.delete
    if resource is not None:
        return _change(resource, position, deleted=event.upsert is None)
    if event.published is not None:
        published = event.published
        return TopicEvent(published.topic, published.subject, published.data or AnyMessage())
    raise PayloadError("an event has no content that this client knows")


def _change(resource: pb.Resource, position: SubscriptionPosition, *, deleted: bool) -> Change:
    if resource.id is None or resource.id.type is None:
        raise PayloadError("an event has a resource without an id")
    if position.store is not None:
        return Change(position.store.revision, resource, deleted, False)
    return Change(int(resource.version) if resource.version.isdecimal() else 0, resource, deleted, False)


def _marked(response: subscribe_pb.SubscribeResponse) -> SubscriptionItem | None:
    end, follows, progress = response.end_of_snapshot, response.new_snapshot_to_follow, response.progress
    if end is not None:
        return SnapshotComplete(subscription_position(end.position or subscribe_pb.Position()))
    if follows is not None:
        return NewSnapshot(follows.reason)
    if progress is not None:
        return Reached(subscription_position(progress.position or subscribe_pb.Position()))
    # A message of an unknown kind is ignored.
    return None
