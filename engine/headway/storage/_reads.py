"""Long reads of the tables in memory. They capture a cut at once and let other tasks run while they read it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from typing_extensions import override

from headway.base import give_way
from headway.resource import Key, Kind, pb, resource_key
from headway.storage._operations import Within
from headway.storage._sorted_keys import Cut
from headway.storage._tables import ResourceTables

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


async def list_owned(tables: ResourceTables, uid: str) -> Sequence[pb.Resource]:
    """Return the resources for `Backend.list_by_owner`."""
    return await _read(tables.owned(uid), Within())


async def _read(cut: Cut, within: Within) -> list[pb.Resource]:
    found: list[pb.Resource] = []
    while True:
        taken = cut.take()
        found += taken if within.everything else [each for each in taken if within.matches(resource_key(each))]
        if not cut:
            return found
        await give_way()


async def in_order(resources: Sequence[pb.Resource], key: Callable[[pb.Resource], Any]) -> list[pb.Resource]:
    """Return the resources sorted by key. If they are in order already, this only compares them."""
    runs: list[list[pb.Resource]] = []
    for begin in range(0, len(resources), TURN):
        if begin:
            await give_way()
        run = sorted(resources[begin : begin + TURN], key=key)
        if runs and key(runs[-1][-1]) <= key(run[0]):
            runs[-1] += run
        else:
            runs.append(run)
    if len(runs) <= 1:
        return runs[0] if runs else []
    ordered: list[pb.Resource] = []
    for each in heapq.merge(*runs, key=key):
        ordered.append(each)
        if len(ordered) % TURN == 0:
            await give_way()
    return ordered


SNAPSHOT_CHUNK = 1000
"""The number of resources in one chunk of a snapshot."""


class Snapshot(Protocol):
    """The resources that were read for a watch and have not been delivered yet."""

    async def next(self) -> list[pb.Resource]:
        """Return the next chunk, or an empty one if nothing is left. A canceled call has taken nothing."""
        ...


class CutSnapshot(Snapshot):
    """A `Snapshot` that delivers the matching resources of a cut."""

    def __init__(self, cut: Cut, within: Within) -> None:
        self._cut = cut
        self._within = None if within.everything else within
        self._taken: list[pb.Resource] = []

    @override
    async def next(self) -> list[pb.Resource]:
        while len(self._taken) < SNAPSHOT_CHUNK and self._cut:
            taken = self._cut.take()
            if self._within is None:
                self._taken += taken
            else:
                matches = self._within.matches
                self._taken += [each for each in taken if matches(resource_key(each))]
                # Many resources may not match before the next one does. Let other tasks run.
                await give_way()
        chunk, self._taken = self._taken[:SNAPSHOT_CHUNK], self._taken[SNAPSHOT_CHUNK:]
        return chunk
