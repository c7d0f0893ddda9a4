"""Long reads of the tables in memory. They capture a cut at once and let other tasks run while they read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from typing_extensions import override

from headway.base import give_way
from headway.resource import Key, Kind, pb
from headway.storage._metadata_index import MetadataIndex
from headway.storage._operations import Operation, Put, Within
from headway.storage._rules import Rules
from headway.storage._sorted_keys import Cut
from headway.storage._tables import ResourceTables

T = TypeVar("T")

TURN = 2000
"""The number of resources to look at between two checkpoints. It takes some milliseconds."""


async def list_within(
    tables: ResourceTables, kind: Kind, within: Within, after: Key | None, limit: int
) -> Sequence[pb.Resource]:
    """Return the resources for `Backend.list`, as they were at the moment of the call.

    With a ``limit``, the page may include changes made while it is read.
    """
    if not limit:
        return await _read(tables.cut(kind, within, after), within)
    found: list[pb.Resource] = []
    while True:
        more, after = tables.scan(kind, within, after=after, limit=limit - len(found), most=TURN)
        found += more
        if after is None:
            return found
        await give_way()


async def count_for_rules(rules: Rules, operations: Sequence[Operation] | None = None) -> None:
    """Count what the rules need to answer about a commit of these operations, or everything.

    A commit that does not wait for it gets the same answer, but blocks the event loop for as long.
    """
    growing = None if operations is None else [each[:2] for each in operations if isinstance(each, Put)]
    while rules.count(growing):
        await give_way()


async def list_owned(tables: ResourceTables, uid: str) -> Sequence[pb.Resource]:
    """Return the resources for `Backend.list_by_owner`."""
    return await _read(tables.owned(uid), Within())


async def _read(cut: Cut, within: Within) -> list[pb.Resource]:
    found: list[pb.Resource] = []
    while True:
        if not within.every_key:
            cut.skip(within)
        found += within.select_sorted(cut.take())
        if not cut:
            return found
        await give_way()


SNAPSHOT_CHUNK = 1000
"""The number of resources in one chunk of a snapshot."""


class Snapshot(Protocol):
    """The resources that were read for a watch and have not been delivered yet."""

    async def next(self) -> list[pb.Resource]:
        """Return the next chunk, or an empty one if nothing is left. A canceled call has taken nothing."""
        ...


def read_snapshot(tables: ResourceTables, kind: Kind, within: Within) -> Snapshot:
    """Return the resources of a scope, as they are now."""
    found = tables.indexes.find(kind, within) if within.metadata else None
    if found is not None:
        if found.exact and within.every_key and len(within.metadata) == 1:
            return ListedSnapshot(tables.get_all(kind, found.keys))
        return ListedSnapshot(within.select(tables.get_all(kind, dict.fromkeys(found.keys))))
    made = CutSnapshot(tables.cut(kind, within), within)
    if within.metadata and within.every_key:
        made.index = tables.indexes.build(kind, within.metadata[0][0], made)
    return made


class ListedSnapshot(Snapshot):
    """A `Snapshot` that delivers a list of resources."""

    def __init__(self, resources: list[pb.Resource]) -> None:
        self._left = resources

    @override
    async def next(self) -> list[pb.Resource]:
        chunk, self._left = self._left[:SNAPSHOT_CHUNK], self._left[SNAPSHOT_CHUNK:]
        return chunk


class CutSnapshot(Snapshot):
    """A `Snapshot` that delivers the matching resources of a cut, in order of their keys.

    Attributes:
        in_order: True, because all chunks together are in order of key. Other snapshots need not be.
        index: the index that it fills with all resources of the cut, if any.
    """

    in_order = True
    index: MetadataIndex | None = None

    def __init__(self, cut: Cut, within: Within) -> None:
        self._cut = cut
        self._within = None if within.everything else within
        self._taken: list[pb.Resource] = []

    @override
    async def next(self) -> list[pb.Resource]:
        while len(self._taken) < SNAPSHOT_CHUNK and self._cut:
            if self._within is None:
                self._taken += self._cut.take()
            else:
                if not self._within.every_key:
                    self._cut.skip(self._within)
                keys = self._cut.next_keys() if self.index is not None else []
                taken = self._cut.take()
                self._taken += self._within.select_sorted(taken)
                if self.index is not None:
                    self.index.offer(keys, taken)
                # Many resources may not match before the next one does. Let other tasks run.
                await give_way()
        if self.index is not None and not self._cut:
            self.index.finish()
            self.index = None
        chunk, self._taken = self._taken[:SNAPSHOT_CHUNK], self._taken[SNAPSHOT_CHUNK:]
        return chunk
