"""Encoding of StreamItems as WatchEvents on the wire, and decoding: a hand-written replacement for betterproto2.

A snapshot of 100,000 resources is 100,000 WatchEvents. Building a message for each, and framing each on its own, costs
far more than the resource in it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from headway.base import joined
from headway.errors import PayloadError
from headway.protobuf import decode, encode, varint
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
    resource_decoder,
)
from headway.rpc import PIECE, framed
from headway.service._encodings import ResourceEncodings

_UPSERT, _DELETE, _RESOURCE = b"\x0a", b"\x12", b"\x0a"
_REVISION, _MORE = b"\xa8\x06", b"\xb0\x06\x01"
_NOWHERE = Position("", "", 0)
_SHORT = 0x80


class WatchEncoder:
    """An encoder of StreamItems as framed WatchEvents, in pieces of whole events. All streams share one."""

    def __init__(self, encodings: ResourceEncodings | None = None) -> None:
        encodings = encodings or ResourceEncodings()
        self._of, self._pieces = encodings.of, encodings.pieces

    def __call__(self, item: StreamItem | ScopeConfirmed) -> Iterable[bytes]:
        """Return the item's events, each as a framed message, in pieces of about PIECE bytes."""
        if isinstance(item, Changes):
            return joined(map(self._change, item.changes), PIECE)
        if isinstance(item, SnapshotChunk):
            return self._pieces(item.resources, _upsert_head)
        return (framed(encode(_mark(item))),)

    def _change(self, change: Change) -> bytes:
        body = self._of(change.resource)
        tail = _REVISION + varint(change.revision) if change.revision else b""
        if change.more:
            tail += _MORE
        return _head(_DELETE if change.deleted else _UPSERT, len(body), len(tail)) + body + tail


@lru_cache(4096)
def _head(arm: bytes, size: int, tail: int) -> bytes:
    """Return the bytes before a resource: the frame's prefix, and the tags and lengths of the arm and the resource.

    Resources of one type have only a few different lengths, so this is mostly a cache hit.
    """
    length = varint(size)
    inner = _RESOURCE + length
    outer = varint(len(inner) + size)
    total = len(arm) + len(outer) + len(inner) + size + tail
    return total.to_bytes(5, "big") + arm + outer + inner


@lru_cache(4096)
def _upsert_head(size: int) -> bytes:
    return _head(_UPSERT, size, 0)


def _mark(item: EndOfSnapshot | Bookmark | ScopeConfirmed) -> pb.WatchEvent:
    if isinstance(item, ScopeConfirmed):
        return pb.WatchEvent(scoped=pb.WatchEventScoped(metadata_filter=item.selector))
    at = item.position.message()
    if isinstance(item, EndOfSnapshot):
        return pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot(position=at))
    return pb.WatchEvent(bookmark=pb.WatchEventBookmark(position=at, resumed=item.resumed))


@lru_cache(4096)
def _snapshot_head(size: int) -> bytes | tuple[()]:
    """Return the bytes before the resource in an event of a snapshot with ``size`` bytes, if it has the usual layout.

    If no such event has this size, return an empty tuple: ``startswith`` is false for it.
    """
    for taken in range(1, 6):
        outer = varint(size - 1 - taken) if size > taken else b""
        if len(outer) == taken:
            for other in range(1, 6):
                inner = varint(size - 2 - taken - other) if size > 1 + taken + other else b""
                if len(inner) == other:
                    return _UPSERT + outer + _RESOURCE + inner
    return ()


class WatchDecoder:
    """A decoder of one stream's WatchEvents as StreamItems. Events that arrive together become one item.

    An event with another layout than our server's takes the slow path.
    """

    def __init__(self) -> None:
        self._live = False
        self._resource = resource_decoder()

    def __call__(self, bodies: list[bytes]) -> list[StreamItem | ScopeConfirmed]:
        """Return the items of messages that arrived together. Raises PayloadError if a message does not decode."""
        items: list[StreamItem | ScopeConfirmed] = []
        resources: list[pb.Resource] = []
        changes: list[Change] = []
        for body in bodies:
            if not self._live and body.startswith(head := _snapshot_head(len(body))):
                resources.append(self._resource(body, len(head), len(body)))
                continue
            change = self._event(body)
            if isinstance(change, Change):
                if self._live:
                    changes.append(change)
                elif change.deleted:
                    raise PayloadError("a deletion came before the end of the snapshot")
                else:
                    resources.append(change.resource)
                continue
            _hand_over(items, resources, changes)
            resources, changes = [], []
            if change is not None:
                self._live = self._live or not isinstance(change, ScopeConfirmed)
                items.append(change)
        _hand_over(items, resources, changes)
        return items

    def _event(self, body: bytes) -> Change | EndOfSnapshot | Bookmark | ScopeConfirmed | None:
        return self._quick(body) or event_content(decode(pb.WatchEvent, body))

    def _quick(self, body: bytes) -> Change | None:
        """Return the change if its fields are in the order of their numbers; otherwise None."""
        end = len(body)
        try:
            arm = body[0]
            if arm != 0x0A and arm != 0x12:
                return None
            outer, at = read_varint(body, 1)
            ends = at + outer
            if body[at] != 0x0A:
                return None
            inner, begin = read_varint(body, at + 1)
            if begin + inner != ends:
                return None
            revision, more, at = 0, False, ends
            if at < end and body[at : at + 2] == _REVISION:
                revision, at = read_varint(body, at + 2)
            if at < end and body[at : at + 3] == _MORE:
                more, at = True, at + 3
            if at != end:
                return None
        except IndexError:
            return None
        return Change(revision, self._resource(body, begin, ends), arm == 0x12, more)


def read_varint(data: bytes, index: int) -> tuple[int, int]:
    """Return the varint at an index, and the index after it. Raises IndexError at the end of the data."""
    byte = data[index]
    if byte < _SHORT:
        return byte, index + 1
    value = shift = 0
    while True:
        value |= (byte & 0x7F) << shift
        index += 1
        if byte < _SHORT:
            return value, index
        shift += 7
        if shift > 63:
            raise PayloadError("a varint is longer than ten bytes")
        byte = data[index]


def _hand_over(items: list[Any], resources: list[pb.Resource], changes: list[Change]) -> None:
    if resources:
        items.append(SnapshotChunk(resources))
    if changes:
        items.append(Changes(changes))


def event_content(event: pb.WatchEvent) -> Change | EndOfSnapshot | Bookmark | ScopeConfirmed | None:
    """Return what an event says, or None for an event of an unknown kind, which is ignored."""
    if event.upsert is not None:
        return Change(event.revision, event.upsert.resource or pb.Resource(), False, event.more)
    if event.delete is not None:
        return Change(event.revision, event.delete.resource or pb.Resource(), True, event.more)
    if event.end_of_snapshot is not None:
        return EndOfSnapshot(position(event.end_of_snapshot.position) or _NOWHERE)
    if event.bookmark is not None:
        return Bookmark(position(event.bookmark.position) or _NOWHERE, event.bookmark.resumed)
    if event.scoped is not None:
        return ScopeConfirmed(event.scoped.metadata_filter)
    return None
