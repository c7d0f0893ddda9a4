"""The placement of a controller: where it runs if several processes share a store.

``"singleton"``: only the process that holds the controller's lease reconciles (`_leading.py`). ``"every_process"``:
each process reconciles every key, under a fence of its own. ``sharded(shards)``: each key is reconciled by one process
at a time, and the keys are spread over all (`_sharded.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway._keywords import check_keywords
from headway.errors import DeclarationError

MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class Sharded:
    """A placement by shards. Created by `sharded`."""

    shards: int


Placement = Literal["singleton", "every_process"] | Sharded


@check_keywords
def sharded(*, shards: int = 16) -> Sharded:
    """``@app.controller(manages=TEAM, placement=headway.sharded(shards=16))``: run each key in one process at a time.

    The keys are divided into ``shards`` shards, from 1 to 1,024. Each shard belongs to one of the processes that run
    the controller. All of these processes must use the same number, because it determines what the shards' leases
    cover. A few times the number of processes is enough. Raises DeclarationError for an invalid number.
    """
    given: object = shards
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_SHARDS:
        raise DeclarationError(
            f"shards must be a whole number from 1 to {MAX_SHARDS}, not {given!r}: headway.sharded(shards=16)"
        )
    return Sharded(given)


def placement_problem(given: object) -> str | None:
    """Return the problem of a placement, or None."""
    if isinstance(given, Sharded) or given in ("singleton", "every_process"):
        return None
    return f'placement must be "singleton", "every_process" or headway.sharded(shards=16), not {given!r}'
