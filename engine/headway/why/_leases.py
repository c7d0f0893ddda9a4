"""The leases that controllers on standby wait for, as the server's store has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import trio

from headway._gen.headway.observe.v1 import ControllerWhy, LeaseNow, Standby
from headway.base import by_turns, wall_time
from headway.errors import HeadwayError
from headway.storage import CurrentLease

PATIENCE = 2.0
"""The time that all reads of an answer may take together, in seconds. An answer without its leases is better than
none."""
CONTROLLERS = 100
"""The number of controllers whose leases are read for an answer. Each takes one read, also that of many shards."""

ReadLeases = Callable[[str], Awaitable[Sequence[CurrentLease]]]
"""A function that returns the leases that are held and whose names begin so."""


class Leases:
    """The leases of one answer.

    Args:
        read: returns the leases with a prefix; None if the asked process has no store.
        connected: the processes that the server asks, and its own, each with the name of a controller that it runs.
    """

    def __init__(self, read: ReadLeases | None, connected: Collection[tuple[str, str]]) -> None:
        self._read = read
        self._connected = connected
        # By the name of the controller: its leases, one for each shard that is held.
        self._known: dict[str, dict[str, LeaseNow]] = {}

    async def of_parts(self, parts: Sequence[ControllerWhy]) -> list[ControllerWhy]:
        """Return the parts of an answer, with the leases for controllers on standby."""
        await self._read_those_of((each.process, each.name) for each in parts if each.state == "standby")
        return [
            replace(each, lease=self._lease(each.name, each.shard)) if each.state == "standby" else each
            for each in parts
        ]

    async def of_standbys(self, standbys: Sequence[Standby]) -> list[Standby]:
        """Return the controllers whose lease a process holds that the server does not ask."""
        await self._read_those_of((each.process, each.controller) for each in standbys)
        found = [replace(each, lease=self._lease(each.controller)) for each in standbys]
        return [each for each in found if each.lease is not None and not each.lease.connected]

    async def _read_those_of(self, controllers: Iterable[tuple[str, str]]) -> None:
        """Read the leases of controllers, each given with its process, until the time is over."""
        if self._read is None:
            return
        # The processes take turns, so that a process with many controllers does not crowd out the others.
        names = dict.fromkeys(name for _, name in by_turns(controllers, lambda each: each[0]))
        # If the store is unavailable, the rest of the answer is still useful.
        with trio.move_on_after(PATIENCE):
            for name in islice(names, CONTROLLERS):
                with suppress(HeadwayError):
                    self._known[name] = self._leases(name, await self._read(name))

    def _leases(self, controller: str, found: Iterable[CurrentLease]) -> dict[str, LeaseNow]:
        now = wall_time()
        return {
            _without_count(lease.name): LeaseNow(
                lease.name,
                lease.holder,
                lease.acquired_at,
                now + remaining - lease.ttl,
                now + remaining,
                (lease.holder, controller) in self._connected,
            )
            for lease, remaining in found
        }

    def _lease(self, controller: str, shard: int = 0) -> LeaseNow | None:
        known = self._known.get(controller)
        name = lease_name(controller, shard)
        return None if known is None else known.get(name, LeaseNow(name))


def lease_name(controller: str, shard: int) -> str:
    """Return the name of the lease of a controller, or of one of its shards, given as its number plus 1."""
    return f"{controller}#{shard - 1}" if shard else controller


def _without_count(lease: str) -> str:
    """Return the name of a lease, for a shard without the number of all shards: "app/controller#3" of "...#3/16"."""
    return lease.rpartition("/")[0] if "#" in lease else lease
