"""How much of requests that are not whole yet is kept, and which one is given up when it is too much. Pure."""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """What keeps bytes of one request."""

    def refuse(self) -> None:
        """Forget them, and tell `Budget.held` that there are none any more."""
        ...


class Budget:
    """A bound on what is held together, within another one if there is one: a connection's within its server's.

    Over it, the largest is given up, and of those of about one size the oldest: small requests get through beside any
    number of large ones that never end.

    Attributes:
        taken: bytes held now.
        holders: how many hold some.
    """

    __slots__ = ("_by_size", "_limit", "_within", "holders", "taken")

    def __init__(self, limit: int, within: Budget | None = None) -> None:
        self.taken = 0
        self.holders = 0
        self._limit = limit
        self._within = within
        # Invariant: who holds n > 0 bytes is in the class n.bit_length(), so that finding the largest is no search.
        self._by_size: dict[int, dict[Holder, None]] = {}

    def is_crowded(self, here: int, in_all: int) -> bool:
        """Return True if at least ``here`` hold some of this budget and ``in_all`` of the one that it is within."""
        return self.holders >= here and self._within is not None and self._within.holders >= in_all

    def held(self, holder: Holder, before: int, now: int) -> None:
        """``holder`` held ``before`` bytes and holds ``now``. May make it, or others, refuse."""
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
