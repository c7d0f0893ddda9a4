"""The cache of the bytes of resources that watches and lists send, and how cached bytes are joined. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain

from headway.base import joined
from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import PIECE


class ResourceEncodings:
    """A cache of the bytes of recently sent resources, so that each is encoded once for all watchers.

    Entries are found by identity, because stored resources are never modified. The cache holds at most twice ``size``
    bytes, a quarter of them for changes and the rest for snapshots:

    - Changes are in two generations. The older one is dropped when the younger is full.
    - Snapshots fill their part and then evict nothing. Each scan reads the resources in the same order. If they do not
      all fit, a cache that evicts the oldest would lose each resource just before it is needed. All entries are dropped
      together once they are no longer requested.

    Args:
        size: half of the maximum size in bytes.
        snapshots: False for a store that decodes its resources again for each snapshot: an entry would never be found,
            and would hold a decoded resource, which takes many times its bytes.

    Attributes:
        encoded: the number of resources that have been encoded.
    """

    __slots__ = (
        "_found",
        "_generation",
        "_old",
        "_refused",
        "_room",
        "_scanned",
        "_scanned_resources",
        "_used",
        "_young",
        "encoded",
    )

    def __init__(self, size: int = 32 << 20, *, snapshots: bool = True) -> None:
        self.encoded = 0
        self._generation = size // 4
        self._room = 2 * size - 2 * self._generation if snapshots else 0
        # Bytes of the younger generation of changes, and of snapshots.
        self._used = [0, 0]
        # Invariant: the resource of each identity is held here too, so that no other resource can get its identity.
        self._young: dict[int, tuple[pb.Resource, bytes]] = {}
        self._old: dict[int, tuple[pb.Resource, bytes]] = {}
        # Without a tuple for each: the garbage collector would examine 100,000 of them during a snapshot.
        self._scanned: dict[int, bytes] = {}
        self._scanned_resources: list[pb.Resource] = []
        # The number of hits for snapshots, and of resources without room, since the last check of both.
        self._found = 0
        self._refused = 0

    @property
    def held(self) -> int:
        """The approximate size of the cache in bytes."""
        changes = (body for part in (self._young, self._old) for _, body in part.values())
        return sum(len(body) + _ENTRY for body in chain(changes, self._scanned.values()))

    def of(self, resource: pb.Resource) -> bytes:
        """Return a changed resource in protobuf format."""
        identity = id(resource)
        entry = self._young.get(identity)
        if entry is not None:
            return entry[1]
        entry = self._old.get(identity)
        if entry is None:
            body = self._scanned.get(identity)
            if body is None:
                body = encode(resource)
                self.encoded += 1
            entry = (resource, body)
        self._young[identity] = entry
        self._used[0] += len(entry[1]) + _ENTRY
        if self._used[0] > self._generation:
            self._old, self._young, self._used[0] = self._young, {}, 0
        return entry[1]

    def of_scanned(self, resource: pb.Resource) -> bytes:
        """Return a resource of a snapshot in protobuf format."""
        identity = id(resource)
        body = self._scanned.get(identity)
        if body is not None:
            self._found += 1
            return body
        entry = self._young.get(identity) or self._old.get(identity)
        if entry is not None:
            return entry[1]
        body = encode(resource)
        self.encoded += 1
        used = self._used[1] + len(body) + _ENTRY
        if used <= self._room:
            self._scanned[identity] = body
            self._scanned_resources.append(resource)
            self._used[1] = used
        else:
            self._refused += 1
            if self._refused > _SCANS * len(self._scanned):
                self._drop_unused()
        return body

    def kept(self, resources: Sequence[pb.Resource]) -> list[bytes] | None:
        """Return resources of a snapshot in protobuf format, or None unless all of them are in the snapshots' part."""
        # Without a call of a Python function for each resource: these are most of what a repeated snapshot costs.
        try:
            found = [*map(self._scanned.__getitem__, map(id, resources))]
        except KeyError:
            return None
        self._found += len(found)
        return found

    def pieces(self, resources: Sequence[pb.Resource], head: Callable[[int], bytes]) -> Iterator[bytes]:
        """Return resources of a snapshot, each after the head for its length, in pieces of about PIECE bytes.

        Those that are not kept are encoded while the pieces are read.
        """
        bodies = self.kept(resources)
        return joined(self._encoded(resources, head), PIECE) if bodies is None else in_pieces(bodies, head)

    def _encoded(self, resources: Sequence[pb.Resource], head: Callable[[int], bytes]) -> Iterator[bytes]:
        for resource in resources:
            body = self.of_scanned(resource)
            yield head(len(body)) + body

    def _drop_unused(self) -> None:
        """Drop the snapshot entries if they are no longer requested: they were deleted, or another type is read."""
        if self._found < len(self._scanned):
            self._scanned, self._scanned_resources, self._used[1] = {}, [], 0
        self._found = self._refused = 0


# Bytes of an entry beside its contents, at most: a tuple, two numbers, its slot in the dict.
_ENTRY = 200
# The hits are checked once this many resources per entry have found no room.
_SCANS = 8


def in_pieces(bodies: Sequence[bytes], head: Callable[[int], bytes]) -> Iterator[bytes]:
    """Join bodies, each after the head for its length, into pieces of about PIECE bytes, like `joined`."""
    ends = [*accumulate(map(len, bodies))]
    begin = before = 0
    while begin < len(bodies):
        end = bisect_left(ends, before + PIECE, begin) + 1
        some = bodies[begin:end]
        yield b"".join(chain.from_iterable(zip(map(head, map(len, some)), some, strict=True)))
        begin, before = end, ends[min(end, len(ends)) - 1]
