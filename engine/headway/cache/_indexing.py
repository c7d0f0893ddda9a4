"""Building the indexes of a run in turns with other tasks, while its types change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import trio

from headway.base import give_way
from headway.cache._index_table import IndexTable, OnFailure
from headway.cache._indexes import Index
from headway.cache._informer import Informer, Subscription
from headway.cache._type_store import Applied
from headway.resource import Key, pb

_AT_ONCE = 10
"""The number of resources that are indexed between two looks at the clock."""
_TURN = 0.05
"""The time, in seconds on Trio's clock, after which other tasks have their turns."""


class _Gathering(IndexTable):
    """Stands for the indexes of a subscription while they are built, and gathers its changes."""

    def __init__(self) -> None:
        self.changes: list[Applied] = []

    def apply(self, applied: Iterable[Applied]) -> None:
        """Gather these changes."""
        self.changes += applied


async def subscribe_by_turns(
    informer: Informer, indexes: Sequence[Index[Any, Any]], on_failure: OnFailure, subscribed: dict[Any, Subscription]
) -> None:
    """Subscribe as `Informer.subscribe` does, but let other tasks run while the indexes are built.

    The subscription begins before the first checkpoint, and is in ``subscribed`` then, under the name of the type. The
    indexes are built from the entries of that moment. The changes since then are applied to them at the end.
    """
    subscription = informer.subscribe((), on_failure)
    subscribed[informer.type.name] = subscription
    tables = [IndexTable(each, on_failure, informer.isolation, subscription.is_undecodable) for each in indexes]
    gathering = _Gathering()
    subscription.tables = {"": gathering}
    # Of each resource that has changed since the beginning, the state that it had then.
    before: dict[Key, pb.Resource] = {}
    keys, known = list(subscription.store.entries), 0
    clock = trio.lowlevel.current_clock().current_time
    until = clock() + _TURN
    for begin in range(0, len(keys), _AT_ONCE):
        if clock() >= until:
            await give_way()
            until = clock() + _TURN
            for key, old, _, _ in gathering.changes[known:]:
                if old is not None:
                    before.setdefault(key, old)
            known = len(gathering.changes)
        entries = subscription.store.entries
        at_once = {key: before[key] if key in before else entries[key] for key in keys[begin : begin + _AT_ONCE]}
        for table in tables:
            table.build(at_once)
    for table in tables:
        table.apply(gathering.changes)
    subscription.tables = {table.index.name: table for table in tables}
