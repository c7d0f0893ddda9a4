"""The check that the cache is good enough to answer from: it is primed, and was current a short time ago.

Two signs are needed. The cache has its streams, or has lost them for at most ``stale_limit`` seconds. And the server
has answered a call that was sent at most ``stale_limit`` seconds ago: a server that hangs keeps its connections.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

import headway
from catalog.dns.records import Records
from catalog.dns.zone import Zone

_RECHECK = 0.02
"""The seconds for which a look at the streams is good."""


class Source:
    """The catalog from which a DNS server answers.

    Args:
        domain: the domain whose names are answered, such as ``consul``.
        address: the IP address of the name server, at which clients reach it.
        ttl: the time in seconds that a resolver may keep an answer.
        stale_limit: the time in seconds for which a catalog that cannot be reached is still good enough.

    Raises:
        ValueError: the domain, the address, the ttl or the limit cannot be used.
    """

    def __init__(self, domain: str, *, address: str = "127.0.0.1", ttl: int = 0, stale_limit: float = 10.0) -> None:
        if not (0 < stale_limit < math.inf):
            raise ValueError(f"stale_limit is {stale_limit}: it must be a number of seconds above 0, such as 10")
        self.stale_limit = stale_limit
        self._records = Records(domain, ttl, ipaddress.ip_address(address))
        self._cache: headway.notify.PrimedCache | None = None
        self._zone: Zone | None = None
        self._answered_at = -math.inf
        self._checked_at = -math.inf
        self._is_fresh = False

    def zone(self) -> Zone | None:
        """Return the zone, or None before the cache is primed and while it is stale."""
        now = trio.current_time()
        if now - self._checked_at >= _RECHECK:
            self._checked_at, self._is_fresh = now, self._look(now)
        return self._zone if self._is_fresh else None

    def _look(self, now: float) -> bool:
        if self._cache is None or now - self._answered_at > self.stale_limit:
            return False
        status = self._cache.status()
        return status.problem is None and status.cut_off_seconds <= self.stale_limit

    async def follow(
        self, opening: AbstractAsyncContextManager[headway.notify.PrimedCache], ask: Callable[[], Awaitable[object]]
    ) -> None:
        """Answer from a cache until canceled.

        Args:
            opening: opens the cache.
            ask: makes a call that the server must answer.
        """
        async with opening as cache:
            self._zone = Zone(cache, self._records)
            self._cache = cache
            try:
                await self._ask_again_and_again(ask)
            finally:
                self._cache = self._zone = None
                self._is_fresh = False

    async def _ask_again_and_again(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            sent_at = trio.current_time()
            with trio.move_on_after(self.stale_limit / 2):
                try:
                    await ask()
                except headway.errors.PermissionDenied:
                    raise
                except headway.HeadwayError:
                    pass
                else:
                    self._answered_at = sent_at
            await trio.sleep_until(sent_at + self.stale_limit / 4)
