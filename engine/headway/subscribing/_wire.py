"""Encoding of a subscription's items as SubscribeResponses, and decoding. Pure.

A snapshot is sent in batches of at most `PIECE` bytes, or of one event, because clients limit the size of a message.
The bytes of resources are shared with the streams of WatchList.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.base import joined
from headway.errors import PayloadError
from headway.protobuf import decode, decoder_of, encode, varint
from headway.resource import AnyMessage, Change, SnapshotChunk, pb, resource_decoder
from headway.rpc import PIECE, framed
from headway.service import ResourceEncodings, read_varint
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
            return joined(map(self._commit, item.commits), PIECE)
        if isinstance(item, SnapshotChunk):
            return self._parts(map(self._scanned, item.resources))
        if isinstance(item, SnapshotPart):
            return self._parts(map(self._event, item.events))
        return (framed(encode(_mark(item))),)

    def _commit(self, commit: Commit) -> bytes:
        at = encode(commit.position.message())
        return _batch(b"".join([*map(self._event, commit.events), _POSITION, varint(len(at)), at]))

    def _parts(self, bodies: Iterable[bytes]) -> Iterator[bytes]:
        held: list[bytes] = []
        size = 0
        for body in bodies:
            if held and size + len(body) > PIECE:
                yield _batch(b"".join(held))
                held, size = [], 0
            held.append(body)
            size += len(body)
        if held:
            yield _batch(b"".join(held))

    def _scanned(self, resource: pb.Resource) -> bytes:
        body = self._of_scanned(resource)
        return _head(_UPSERT, len(body)) + body

    def _event(self, event: SubscriptionEvent) -> bytes:
        if isinstance(event, Change):
            body = self._of(event.resource)
            return _head(_DELETE if event.deleted else _UPSERT, len(body)) + body
        body = encode(subscribe_pb.Published(topic=event.topic, subject=event.subject, data=event.data))
        return _head(_PUBLISHED, len(body)) + body


@lru_cache(4096)
def _head(arm: bytes, size: int) -> bytes:
    """Return the bytes before what an event contains. Resources of one type have only a few different lengths."""
    inner = arm + varint(size)
    return _EVENTS + varint(len(inner) + size) + inner


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
    """A decoder of one stream's SubscribeResponses. Batches that arrive together become one item.

    A batch with another layout than our server's takes the slow path.
    """

    def __init__(self) -> None:
        self._resource = resource_decoder()
        self._position = decoder_of(subscribe_pb.Position)

    def __call__(self, bodies: list[bytes]) -> list[SubscriptionItem]:
        """Return the items of messages that arrived together. Raises PayloadError if a message does not decode."""
        items: list[SubscriptionItem] = []
        commits: list[Commit] = []
        for body in bodies:
            item = self._quick(body) or _slow(decode(subscribe_pb.SubscribeResponse, body))
            if isinstance(item, Commit):
                commits.append(item)
                continue
            if commits:
                items.append(Commits(commits))
                commits = []
            if item is not None:
                items.append(item)
        if commits:
            items.append(Commits(commits))
        return items

    def _quick(self, body: bytes) -> Commit | SnapshotChunk | None:
        """Return a batch of resources if its fields are in the order of their numbers; otherwise None."""
        end = len(body)
        # Two lists: a tuple for each would be an object that the garbage collector examines.
        resources: list[pb.Resource] = []
        arms: list[int] = []
        position: SubscriptionPosition | None = None
        try:
            if body[0] != _BATCH[0]:
                return None
            size, at = read_varint(body, 1)
            if at + size != end:
                return None
            while at < end:
                tag = body[at]
                size, at = read_varint(body, at + 1)
                if tag == _POSITION[0] and at + size == end:
                    position = subscription_position(self._position(body, at, end))
                    break
                arm = body[at]
                inner, begin = read_varint(body, at + 1)
                if tag != _EVENTS[0] or arm not in (_UPSERT[0], _DELETE[0]) or begin + inner != at + size:
                    return None
                at += size
                if at > end:
                    return None
                resources.append(_checked(self._resource(body, begin, at)))
                arms.append(arm)
        except IndexError:
            return None
        if position is None:
            # A snapshot's own deletions take the slow path.
            return None if _DELETE[0] in arms else SnapshotChunk(resources)
        changes = zip(resources, arms, strict=True)
        return Commit([_change(each, position, deleted=arm == _DELETE[0]) for each, arm in changes], position)


def _slow(response: subscribe_pb.SubscribeResponse) -> Commit | SubscriptionItem | None:
    batch = response.batch
    if batch is None:
        return _marked(response)
    if batch.position is None:
        return SnapshotPart([_event(each, _NOWHERE) for each in batch.events])
    position = subscription_position(batch.position)
    return Commit([_event(each, position) for each in batch.events], position)


_NOWHERE = SubscriptionPosition()


def _event(event: subscribe_pb.Event, position: SubscriptionPosition) -> SubscriptionEvent:
    resource = event.upsert or event.delete
    if resource is not None:
        return _change(_checked(resource), position, deleted=event.upsert is None)
    if event.published is not None:
        published = event.published
        return TopicEvent(published.topic, published.subject, published.data or AnyMessage())
    raise PayloadError("an event has no content that this client knows")


def _change(resource: pb.Resource, position: SubscriptionPosition, *, deleted: bool) -> Change:
    revision = int(resource.version) if position.store is None else position.store.revision
    return Change(revision, resource, deleted, False)


def _checked(resource: pb.Resource) -> pb.Resource:
    """Return a resource. Raise PayloadError without an id or a version, which every stored one has."""
    if (
        resource.id is None
        or resource.id.type is None
        or not (resource.version.isascii() and resource.version.isdigit())
    ):
        raise PayloadError("an event has a resource without an id or a version")
    return resource


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
