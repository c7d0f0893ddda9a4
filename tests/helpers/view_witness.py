"""A checker of views: each shows the recorded state of every type at one revision, and does not change."""

from __future__ import annotations

from typing import Any

import trio

from headway.cache import Cache, CacheReader
from headway.errors import NotPrimed, StoreChanged, StoreRolledBack
from headway.resource import Key, ResourceType
from tests.helpers.contract import Witness
from tests.helpers.faulty_channel import FaultyChannel


class ViewWitness:
    """Opens views and checks them. It reports violations to the `Witness`.

    Attributes:
        compared: the number of views that were compared with the store.
    """

    def __init__(self, witness: Witness, channel: FaultyChannel) -> None:
        self.witness = witness
        self.channel = channel
        self.compared = 0

    async def look(self, cache: Cache, seconds: float) -> None:
        """Check a view when it opens and after some time. Return early if the run ends first."""
        types: tuple[ResourceType[Any], ...] = self.witness.pools.types
        honest, false = all(map(self.witness.is_honest, types)), self._false_bookmarks(types)
        try:
            async with cache.view(*types) as view:
                seen = self._content(view, types)
                if honest and false == self._false_bookmarks(types):
                    with self.witness.naming():
                        ranges, at = self.witness.pools.ranges, view.pinned_at
                        true = [self.witness.record.versions(type, at, ranges[type.kind]) for type in types]
                        assert seen == true, f"C2: a view at {view.pinned_at} shows {seen}, not {true}"
                    self.compared += 1
                await trio.sleep(seconds)
                after = self._content(view, types)
                with self.witness.naming():
                    assert after == seen, f"C2: a view at {view.pinned_at} showed {seen}, and then {after}"
        except (NotPrimed, StoreChanged, StoreRolledBack):
            return

    def _false_bookmarks(self, types: tuple[ResourceType[Any], ...]) -> int:
        return sum(self.channel.streams(type).false_delivered for type in types)

    @staticmethod
    def _content(cache: CacheReader, types: tuple[ResourceType[Any], ...]) -> list[dict[Key, int]]:
        return [{each.id.key: int(each.version) for each in cache.list(type)} for type in types]
