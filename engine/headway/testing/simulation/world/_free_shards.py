"""The shards of sharded controllers that belong to no process for some seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headway.controller import App
from headway.sharding import Sharded
from headway.testing.simulation.world._process import Process


class FreeShards:
    """The sharded controllers of a program."""

    def __init__(self, app: App) -> None:
        self.note(app)

    def note(self, app: App) -> None:
        """Note the number of shards of each sharded controller of a program."""
        self._shards = {
            each.full_name: each.placement.shards
            for each in app.controllers.values()
            if isinstance(each.placement, Sharded)
        }

    def are_left(self, processes: Sequence[Process]) -> bool:
        """Return True if a shard is held by no process, although no process is dead."""
        if any(process.held for process in processes):
            return False
        held: Counter[str] = Counter()
        for process in processes:
            for status in process.status():
                held[status.name] += len(status.shards or ())
        return any(held[name] < shards for name, shards in self._shards.items())
