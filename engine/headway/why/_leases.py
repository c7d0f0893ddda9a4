"""The leases that controllers on standby wait for, as the server's store has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import trio

from headway.base import wall_time
from headway.errors import HeadwayError
from headway.storage import CurrentLease
from headway.why._answer import ControllerWhy, LeaseNow
from headway.why._lists import Standby

PATIENCE = 2.0
"""The time that the store may take, in seconds. An answer without its leases is better than none."""

ReadLeases = Callable[[str], Awaitable[Sequence[CurrentLease]]]
"""A function that returns the leases that are held and whose names begin so."""


class Leases:
    """The leases of one answer. Each is read once.

    Args:
        read: returns the leases with a prefix; None if the asked process has no store.
        connected: the processes that the server asks, and its own.
    """

    def __init__(self, read: ReadLeases | None, connected: Collection[str]) -> None:
        self._read = read
        self._connected = connected
        self._known: dict[str, LeaseNow | None] = {}

    async def of_parts(self, parts: Sequence[ControllerWhy]) -> list[ControllerWhy]:
        """Return the parts of an answer, those on standby with their leases."""
        return [
            replace(each, lease=await self._lease(f"{each.name}#{each.shard - 1}" if each.shard else each.name))
            if each.state == "standby"
            else each
            for each in parts
        ]

    async def of_standbys(self, standbys: Sequence[Standby]) -> tuple[Standby, ...]:
        """Return the controllers whose lease a process holds that the server does not ask."""
        found = [replace(each, lease=await self._lease(each.controller)) for each in standbys]
        return tuple(each for each in found if each.lease is not None and not each.lease.connected)

    async def _lease(self, name: str) -> LeaseNow | None:
        if self._read is None:
            return None
        if name not in self._known:
            self._known[name] = None
            # The store may be away, and the rest of the answer is worth having then.
            with trio.move_on_after(PATIENCE), suppress(HeadwayError):
                self._known[name] = self._now(name, await self._read(name))
        return self._known[name]

    def _now(self, name: str, found: Sequence[CurrentLease]) -> LeaseNow:
        for lease, remaining in found:
            if lease.name == name:
                until = wall_time() + remaining
                connected = lease.holder in self._connected
                return LeaseNow(name, lease.holder, lease.acquired_at, until - lease.ttl, until, connected)
        return LeaseNow(name)
