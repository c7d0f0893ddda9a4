"""Long reads of tables in memory, which let others run: what is captured at once is one cut, the rest takes turns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from headway._turns import give_way
from headway.resource import Key, Kind, pb, resource_key
from headway.storage._backend import Within
from headway.storage._tables import ResourceTables

TURN = 2000
"""Resources that are looked at between two checkpoints: some milliseconds."""


async def list_within(
    tables: ResourceTables, kind: Kind, within: Within, after: Key | None, limit: int
) -> Sequence[pb.Resource]:
    """As `Backend.list`. What is captured is of the moment of the call; with a ``limit``, a page may take in what
    changes while it is read.
    """
    if not limit:
        captured = tables.values(kind)
        if after is not None:
            last = after
            return await in_order(captured, resource_key, lambda each: each > last and within.matches(each))
        return await in_order(captured, resource_key, None if within.everything else within.matches)
    found: list[pb.Resource] = []
    while True:
        more, after = tables.scan(kind, within, after=after, limit=limit - len(found), most=TURN)
        found += more
        if after is None:
            return found
        await give_way()


async def list_owned(tables: ResourceTables, uid: str) -> Sequence[pb.Resource]:
    """As `Backend.list_by_owner`."""
    return await in_order(tables.owned(uid), _place)


def _place(resource: pb.Resource) -> tuple[str, str, Key]:
    type = resource.id.type  # type: ignore[union-attr]  # stored ids are whole
    return (type.group, type.kind, resource_key(resource))  # type: ignore[union-attr]  # likewise


async def in_order(
    resources: Sequence[pb.Resource],
    key: Callable[[pb.Resource], Any],
    matches: Callable[[Any], bool] | None = None,
) -> list[pb.Resource]:
    """Those whose key matches, in order of key."""
    runs: list[list[tuple[Any, int]]] = []
    for begin in range(0, len(resources), TURN):
        if begin:
            await give_way()
        keyed = [(key(each), begin + index) for index, each in enumerate(resources[begin : begin + TURN])]
        runs.append(sorted(keyed if matches is None else [each for each in keyed if matches(each[0])]))
    if len(runs) == 1:
        return [resources[place] for _, place in runs[0]]
    ordered: list[pb.Resource] = []
    for _, place in heapq.merge(*runs):
        ordered.append(resources[place])
        if len(ordered) % TURN == 0:
            await give_way()
    return ordered
