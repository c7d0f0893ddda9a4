"""Token buckets, alone and by key in bounded memory. Pure: the time is an argument, in seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CAPACITY = 10_000
"""The default number of keys that have a bucket of their own."""

_EARLY = 1e-6
"""The seconds by which a token may be spent too early. A caller who waits as long as `Bucket.wait` says must not be
refused because of rounding."""
_SEARCHED = 16
"""The number of buckets that one new key looks at, to drop those that are full."""


class Bucket:
    """A token bucket. It is full with ``burst`` tokens, and gets ``per_second`` tokens each second until it is full.

    Args:
        left: the number of tokens that it has at first; ``burst`` unless given.
    """

    __slots__ = ("_at", "_left", "_per_second", "burst")

    def __init__(self, burst: float, per_second: float, now: float, left: float | None = None) -> None:
        self.burst = float(burst)
        self._per_second = per_second
        self._left = self.burst if left is None else left
        self._at = now

    def left(self, now: float) -> float:
        """Return the number of tokens left."""
        return min(self.burst, self._left + (now - self._at) * self._per_second)

    def is_full(self, now: float) -> bool:
        """Return True if the bucket is as full as a new one."""
        return self.left(now) >= self.burst

    def wait(self, now: float) -> float:
        """Return the seconds until a token can be spent, 0.0 if it can now. Nothing is spent."""
        seconds = (1.0 - self.left(now)) / self._per_second
        return seconds if seconds > _EARLY else 0.0

    def spend(self, now: float, cost: float = 1.0) -> bool:
        """Spend one token, or ``cost`` tokens. Return False if fewer are left."""
        left = self.left(now)
        if left < cost:
            return False
        self._left, self._at = left - cost, now
        return True

    def charge(self, now: float, cost: float = 1.0) -> None:
        """Spend one token, or ``cost`` tokens, even if that makes the balance negative."""
        self._left = self.left(now) - cost
        self._at = now

    def earn(self, amount: float) -> None:
        """Return ``amount`` tokens to the bucket, up to the burst."""
        left, most = self._left + amount, self.burst
        self._left = left if left < most else most

    def renew(self) -> None:
        """Refill the bucket."""
        self._left = self.burst


class Buckets(Generic[K]):
    """The buckets of one limit by key. A bucket that is full again is dropped, because a new bucket is full.

    Invariant: no key ever spends more than its own bucket would allow, however many keys there are. Up to ``capacity``
    keys have a bucket of their own. If all of those are in use, the other keys share one bucket. It is never fuller
    than a bucket of their own would be, so a key that gets one later begins with what the shared one has left. Keys may
    belong to groups, each with a shared bucket of its own as long as there is room for it. Then a group of many keys
    holds no other one back.

    Args:
        group: returns the group of a key. Without it, all keys belong to one.
    """

    __slots__ = ("_burst", "_capacity", "_group", "_groups", "_of", "_per_second", "_shared")

    def __init__(
        self,
        per_second: float,
        burst: float,
        capacity: int = CAPACITY,
        *,
        group: Callable[[K], Hashable] | None = None,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._capacity = capacity
        # In the order of their last use, or of the last search for full ones. Those that come first are the likeliest
        # to be full.
        self._of: OrderedDict[K, Bucket] = OrderedDict()
        self._shared = Bucket(burst, per_second, 0.0)
        self._group = group
        # The buckets that groups share.
        self._groups: Buckets[Hashable] | None = None if group is None else Buckets(per_second, burst, capacity)

    def __len__(self) -> int:
        """Return the number of keys that have a bucket of their own."""
        return len(self._of)

    def wait(self, key: K, now: float) -> float:
        """Return the seconds until the key can spend a token, 0.0 if it can now. Nothing is spent."""
        return self._bucket(key).wait(now)

    def spend(self, key: K, now: float) -> None:
        """Spend a token of the key. Call it only if `wait` returns 0.0 at this time."""
        bucket = self._bucket(key)
        if key in self._of:
            self._of.move_to_end(key)
        elif self._has_room(now):
            bucket = self._of[key] = Bucket(self._burst, self._per_second, now, bucket.left(now))
        elif self._group is not None and self._groups is not None:
            return self._groups.spend(self._group(key), now)
        bucket.charge(now)
        return None

    def _bucket(self, key: K) -> Bucket:
        """Return the bucket of the key, or the one that it shares."""
        own = self._of.get(key)
        if own is not None:
            return own
        return self._shared if self._group is None or self._groups is None else self._groups._bucket(self._group(key))

    def _has_room(self, now: float) -> bool:
        """Return True if another key can have a bucket, after dropping the first ones, as far as they are full."""
        if len(self._of) >= self._capacity:
            first = [key for key, _ in zip(self._of, range(_SEARCHED), strict=False)]
            for key in first:
                if self._of[key].is_full(now):
                    del self._of[key]
                else:
                    # A bucket that has been emptied takes long to fill. It must not keep the next search from the rest.
                    self._of.move_to_end(key)
        return len(self._of) < self._capacity
