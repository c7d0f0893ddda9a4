"""StreamItems as WatchEvents on the wire, and back: what betterproto2 would make of each event, written by hand.

A snapshot of 100,000 resources is 100,000 WatchEvents. Making each as a message, and putting each through a frame
of its own, takes far more than the resource in it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from headway.errors import PayloadError
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    SnapshotChunk,
    StreamItem,
    copy_message,
    decode,
    decoder_of,
    encode,
    pb,
    position,
)
from headway.rpc import PIECE, framed

_UPSERT, _DELETE, _RESOURCE = b"\x0a", b"\x12", b"\x0a"
_REVISION, _MORE = b"\xa8\x06", b"\xb0\x06\x01"
_NOWHERE = Position("", "", 0)
_SHORT = 0x80


class ResourceEncodings:
    """The bytes of resources that were sent lately, so that each is encoded once however many watchers it goes to.

    They are found by identity: a stored resource is never written to. At most twice ``size`` bytes are held, a
    quarter of them for changes and the rest for snapshots:

    - Changes are in two generations, of which the older one is dropped when the younger is full.
    - Snapshots fill their part and evict nothing then. A scan of more than fits comes by again in the same order, so
      that a cache which made room would have evicted each resource just before it is asked for. What is held is
      dropped together, once nobody asks for it any more.

    Attributes:
        encoded: how many resources have been encoded.
    """

    __slots__ = ("_found", "_generation", "_old", "_refused", "_room", "_scanned", "_used", "_young", "encoded")

    def __init__(self, size: int = 16 << 20) -> None:
        self.encoded = 0
        self._generation = size // 4
        self._room = 2 * size - 2 * self._generation
        # Bytes of the younger generation of changes, and those of snapshots.
        self._used = [0, 0]
        # Invariant: an entry holds its resource, so that its identity can't become another one's.
        self._young: dict[int, tuple[pb.Resource, bytes]] = {}
        self._old: dict[int, tuple[pb.Resource, bytes]] = {}
        self._scanned: dict[int, tuple[pb.Resource, bytes]] = {}
        # How many of a snapshot's resources were found, and how many had no room, since the last look at both.
        self._found = 0
        self._refused = 0

    @property
    def held(self) -> int:
        """About how many bytes it takes."""
        return sum(
            len(entry[1]) + _ENTRY for part in (self._young, self._old, self._scanned) for entry in part.values()
        )

    def of(self, resource: pb.Resource) -> bytes:
        """Return a changed resource in protobuf's format."""
        identity = id(resource)
        entry = self._young.get(identity)
        if entry is not None:
            return entry[1]
        entry = self._old.get(identity) or self._scanned.get(identity)
        if entry is None:
            entry = (resource, encode(resource))
            self.encoded += 1
        self._young[identity] = entry
        self._used[0] += len(entry[1]) + _ENTRY
        if self._used[0] > self._generation:
            self._old, self._young, self._used[0] = self._young, {}, 0
        return entry[1]

    def of_scanned(self, resource: pb.Resource) -> bytes:
        """Return a resource of a snapshot in protobuf's format."""
        identity = id(resource)
        entry = self._scanned.get(identity)
        if entry is not None:
            self._found += 1
            return entry[1]
        entry = self._young.get(identity) or self._old.get(identity)
        if entry is not None:
            return entry[1]
        body = encode(resource)
        self.encoded += 1
        used = self._used[1] + len(body) + _ENTRY
        if used <= self._room:
            self._scanned[identity] = (resource, body)
            self._used[1] = used
        else:
            self._refused += 1
            if self._refused > _SCANS * len(self._scanned):
                self._look()
        return body

    def _look(self) -> None:
        """Drop what snapshots had encoded if nobody asks for it: the resources are gone, or another type is read."""
        if self._found < len(self._scanned):
            self._scanned, self._used[1] = {}, 0
        self._found = self._refused = 0


# What an entry takes beside its bytes: the tuple, two numbers, its place in the dict.
_ENTRY = 200
# How many resources without room, for each one that is held, are a reason to look whether that one is asked for.
_SCANS = 8


class WatchEncoder:
    """StreamItems as framed WatchEvents, in pieces of whole ones. One for all streams of a process."""

    def __init__(self, encodings: ResourceEncodings | None = None) -> None:
        encodings = encodings or ResourceEncodings()
        self._of, self._of_scanned = encodings.of, encodings.of_scanned

    def __call__(self, item: StreamItem) -> Iterable[bytes]:
        """The item's events, one framed message each, about PIECE bytes at a time."""
        if isinstance(item, Changes):
            return _pieces(map(self._change, item.changes))
        if isinstance(item, SnapshotChunk):
            return _pieces(map(self._there, item.resources))
        return (framed(encode(_mark(item))),)

    def _there(self, resource: pb.Resource) -> bytes:
        body = self._of_scanned(resource)
        return _head(_UPSERT, len(body), 0) + body

    def _change(self, change: Change) -> bytes:
        body = self._of(change.resource)
        tail = _REVISION + _varint(change.revision) if change.revision else b""
        if change.more:
            tail += _MORE
        return _head(_DELETE if change.deleted else _UPSERT, len(body), len(tail)) + body + tail


@lru_cache(4096)
def _head(arm: bytes, size: int, tail: int) -> bytes:
    """What stands before a resource of so many bytes: the frame's prefix, the arm's tag and length, its own.

    Resources of one type have few lengths between them, so that this is mostly looked up.
    """
    length = _varint(size)
    inner = _RESOURCE + length
    outer = _varint(len(inner) + size)
    total = len(arm) + len(outer) + len(inner) + size + tail
    return total.to_bytes(5, "big") + arm + outer + inner


def _pieces(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Joined to pieces that are sent in one go; a stream between two of them lets others run."""
    held: list[bytes] = []
    size = 0
    for message in messages:
        held.append(message)
        size += len(message)
        if size >= PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _varint(value: int) -> bytes:
    if value < _SHORT:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= _SHORT:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _mark(item: EndOfSnapshot | Bookmark) -> pb.WatchEvent:
    at = item.position.message()
    if isinstance(item, EndOfSnapshot):
        return pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot(position=at))
    return pb.WatchEvent(bookmark=pb.WatchEventBookmark(position=at, resumed=item.resumed))


class WatchDecoder:
    """The WatchEvents of one stream as StreamItems, as many to an item as came together.

    An event that isn't laid out as ours are is decoded the long way.
    """

    def __init__(self) -> None:
        self._live = False
        self._resource = decoder_of(pb.Resource)

    def __call__(self, bodies: list[bytes]) -> list[StreamItem]:
        """The items of messages that came together. A PayloadError says what can't be read."""
        items: list[StreamItem] = []
        resources: list[pb.Resource] = []
        changes: list[Change] = []
        for body in bodies:
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
                self._live = True
                items.append(change)
        _hand_over(items, resources, changes)
        return items

    def _event(self, body: bytes) -> Change | EndOfSnapshot | Bookmark | None:
        return self._quick(body) or _slow(decode(pb.WatchEvent, body))

    def _quick(self, body: bytes) -> Change | None:
        """An upsert or a deletion with its fields in the order of their numbers, else None."""
        end = len(body)
        try:
            arm = body[0]
            if arm != 0x0A and arm != 0x12:
                return None
            outer, at = _read_varint(body, 1)
            ends = at + outer
            if body[at] != 0x0A:
                return None
            inner, begin = _read_varint(body, at + 1)
            if begin + inner != ends:
                return None
            revision, more, at = 0, False, ends
            if at < end and body[at : at + 2] == _REVISION:
                revision, at = _read_varint(body, at + 2)
            if at < end and body[at : at + 3] == _MORE:
                more, at = True, at + 3
            if at != end:
                return None
        except IndexError:
            return None
        return Change(revision, self._resource(body, begin, ends), arm == 0x12, more)


def _read_varint(data: bytes, index: int) -> tuple[int, int]:
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


def _slow(event: pb.WatchEvent) -> Change | EndOfSnapshot | Bookmark | None:
    if event.upsert is not None:
        return Change(event.revision, event.upsert.resource or pb.Resource(), False, event.more)
    if event.delete is not None:
        return Change(event.revision, event.delete.resource or pb.Resource(), True, event.more)
    if event.end_of_snapshot is not None:
        return EndOfSnapshot(position(event.end_of_snapshot.position) or _NOWHERE)
    if event.bookmark is not None:
        return Bookmark(position(event.bookmark.position) or _NOWHERE, event.bookmark.resumed)
    # An event of a kind that this version doesn't know: nothing to apply.
    return None


def copied(said: Any) -> Any:
    """A message, or a StreamItem, that shares nothing with this one that can be changed."""
    if isinstance(said, SnapshotChunk):
        return SnapshotChunk([copy_message(resource) for resource in said.resources])
    if isinstance(said, Changes):
        return Changes([change._replace(resource=copy_message(change.resource)) for change in said.changes])
    return said if isinstance(said, EndOfSnapshot | Bookmark) else copy_message(said)
