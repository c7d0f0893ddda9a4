"""A budget for memory that peers make this process hold. Over the limit, the largest holder is dropped. No I/O."""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """An object that holds bytes and is charged to a `Budget`."""

    def refuse(self) -> None:
        """Free the bytes, and report that to `Budget.held`."""
        ...


class Budget:
    """A limit on the bytes held by all holders together.

    A budget may be part of another one: a connection's budget is part of its server's.

    Over the limit, the largest holder is refused, and among holders of similar size the oldest. Small requests
    therefore succeed even among any number of large requests that never end.

    Attributes:
        taken: the number of bytes held.
        holders: the number of holders with at least one byte.
    """

    __slots__ = ("_by_size", "_limit", "_within", "holders", "taken")

    def __init__(self, limit: int, within: Budget | None = None) -> None:
        self.taken = 0
        self.holders = 0
        self._limit = limit
        self._within = within
        # Invariant: a holder of n > 0 bytes is in class n.bit_length(). So the largest is found without a search.
        self._by_size: dict[int, dict[Holder, None]] = {}

    def is_crowded(self, here: int, in_all: int) -> bool:
        """Return True if this budget has at least ``here`` holders, and the enclosing budget at least ``in_all``."""
        return self.holders >= here and self._within is not None and self._within.holders >= in_all

    def held(self, holder: Holder, before: int, now: int) -> None:
        """Record that ``holder`` held ``before`` bytes and now holds ``now``. It or others may be refused for it."""
        self.taken += now - before
        self.holders += (now > 0) - (before > 0)
        left, joined = before.bit_length(), now.bit_length()
        if left != joined:
            if left:
                del self._by_size[left][holder]
            if joined:
                self._by_size.setdefault(joined, {})[holder] = None
        if self._within is not None:
            self._within.held(holder, before, now)
        while self.taken > self._limit:
            largest = self._by_size[max(size for size, holders in self._by_size.items() if holders)]
            next(iter(largest)).refuse()
