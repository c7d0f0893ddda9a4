"""The placement by shards, as a program declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typing_extensions import override

from headway.base import Range, checked
from headway.controller import Definition, Division

if TYPE_CHECKING:
    from headway.run import Owed
    from headway.sharding._ownership import Shards

MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class Sharded(Division):
    """A placement by shards. Created by `sharded`."""

    shards: int

    @override
    def ownership(self, definition: Definition, process: str, ttl: float, owed: Owed) -> Shards:
        # Imported here, because most programs have no such placement.
        from headway.sharding._ownership import Shards

        return Shards(definition, self.shards, process, ttl, owed)


@checked()
def sharded(*, shards: Annotated[int, Range(1, MAX_SHARDS)] = 16) -> Sharded:
    """``@app.controller(manages=TEAM, placement=headway.sharded(shards=16))``: run each key in one process at a time.

    The keys are divided into ``shards`` shards, from 1 to 1,024. Each shard belongs to one of the processes that run
    the controller. All of these processes must use the same number, because it determines what the shards' leases
    cover. A few times the number of processes is enough. Raises DeclarationError for an invalid number.
    """
    return Sharded(shards)
