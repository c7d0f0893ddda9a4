"""Token buckets by key, in bounded memory. Pure: the time is an argument, in seconds.

A bucket holds ``burst`` tokens when it is full, and ``per_second`` tokens are added each second until it is. It is
stored as one number: the time when it will be full if nothing more is spent. A bucket that is full again is
dropped without loss, because a new bucket is full.

Invariant: no key ever spends more than its own bucket would allow, however many keys there are. Up to ``capacity`` keys
have a bucket of their own. If all of those are in use, the other keys share one bucket. It is never fuller than a
bucket of their own would be, so a key that gets one later begins with what the shared one has left. Keys may belong to
groups, each with a shared bucket of its own as long as there is room for it. Then a group of many keys holds no other
one back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CAPACITY = 10_000
"""The default number of keys that have a bucket of their own."""

_EARLY = 1e-6
"""The seconds by which a token may be spent too early. A caller who waits as long as `Buckets.wait` says must not be
refused because of rounding."""
_SEARCHED = 16
"""The number of buckets that one new key looks at, to drop those that are full."""


class Buckets(Generic[K]):
    """The buckets of one limit.

    Args:
        group: returns the group of a key. Without it, all keys belong to one.
    """

    __slots__ = ("_burst_seconds", "_capacity", "_full_at", "_group", "_groups", "_shared", "_token_seconds")

    def __init__(
        self,
        per_second: float,
        burst: float,
        capacity: int = CAPACITY,
        *,
        group: Callable[[K], Hashable] | None = None,
    ) -> None:
        self._token_seconds = 1 / per_second
        self._burst_seconds = burst / per_second
        self._capacity = capacity
        # In the order of their last use, or of the last search for full ones. Those that come first are the likeliest
        # to be full.
        self._full_at: OrderedDict[K, float] = OrderedDict()
        self._shared = -math.inf
        self._group = group
        # The buckets that groups share.
        self._groups: Buckets[Hashable] | None = None if group is None else Buckets(per_second, burst, capacity)

    def __len__(self) -> int:
        """Return the number of keys that have a bucket of their own."""
        return len(self._full_at)

    def wait(self, key: K, now: float) -> float:
        """Return the seconds until the key can spend a token, 0.0 if it can now. Nothing is spent."""
        seconds = max(self._level(key), now) + self._token_seconds - now - self._burst_seconds
        return seconds if seconds > _EARLY else 0.0

    def spend(self, key: K, now: float) -> None:
        """Spend a token of the key. Call it only if `wait` returns 0.0 at this time."""
        full_at = max(self._level(key), now) + self._token_seconds
        if key in self._full_at:
            self._full_at.move_to_end(key)
        elif not self._has_room(now):
            if self._group is None or self._groups is None:
                self._shared = full_at
            else:
                self._groups.spend(self._group(key), now)
            return
        self._full_at[key] = full_at

    def _level(self, key: K) -> float:
        """Return the time when the bucket of the key, or the one that it shares, will be full."""
        full_at = self._full_at.get(key)
        if full_at is not None:
            return full_at
        return self._shared if self._group is None or self._groups is None else self._groups._level(self._group(key))

    def _has_room(self, now: float) -> bool:
        """Return True if another key can have a bucket, after dropping the first ones, as far as they are full."""
        if len(self._full_at) >= self._capacity:
            first = [key for key, _ in zip(self._full_at, range(_SEARCHED), strict=False)]
            for key in first:
                if self._full_at[key] <= now:
                    del self._full_at[key]
                else:
                    # A bucket that has been emptied takes long to fill. It must not keep the next search from the rest.
                    self._full_at.move_to_end(key)
        return len(self._full_at) < self._capacity
