"""A checker of views: each shows every type at one revision, as the store's record has it, and does not change."""

from __future__ import annotations

from typing import Any

import trio

from headway.cache import Cache, CacheReader
from headway.errors import NotPrimed, StoreChanged, StoreRolledBack
from headway.resource import Key, ResourceType
from tests.helpers.contract import Witness
from tests.helpers.harmed_channel import HarmedChannel


class ViewWitness:
    """Opens views and checks them. What it finds goes to the `Witness` as well.

    Attributes:
        compared: the number of views that were compared with the store.
    """

    def __init__(self, witness: Witness, channel: HarmedChannel) -> None:
        self.witness = witness
        self.channel = channel
        self.compared = 0

    async def look(self, cache: Cache, seconds: float) -> None:
        """Check a view when it opens and after some time. Return early if the run ends first."""
        types: tuple[ResourceType[Any], ...] = self.witness.pools.types
        honest, told = all(map(self.channel.is_honest, types)), self._told(types)
        try:
            async with cache.view(*types) as view:
                seen = self._content(view, types)
                if honest and told == self._told(types) and not self.witness.suspended:
                    with self.witness.naming():
                        true = [self.witness.store.versions(type, view.pinned_at) for type in types]
                        assert seen == true, f"C2: a view at {view.pinned_at} shows {seen}, not {true}"
                    self.compared += 1
                await trio.sleep(seconds)
                after = self._content(view, types)
                with self.witness.naming():
                    assert after == seen, f"C2: a view at {view.pinned_at} showed {seen}, and then {after}"
        except (NotPrimed, StoreChanged, StoreRolledBack):
            return

    def _told(self, types: tuple[ResourceType[Any], ...]) -> int:
        return sum(self.channel.streams(type).told for type in types)

    @staticmethod
    def _content(cache: CacheReader, types: tuple[ResourceType[Any], ...]) -> list[dict[Key, int]]:
        return [{each.id.key: int(each.version) for each in cache.list(type)} for type in types]
