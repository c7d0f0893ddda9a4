"""The use of quotas, counted from the tables of a store in memory. Pure.

The use is never stored: it is counted from the resources once, and then follows each change. So it is right after a
crash, a restore or a copy. A count of many resources takes long. It is made in steps, and the changes in between are
added if the count has passed their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.resource import Key, Kind, Within, pb
from headway.storage._quotas import (
    QUOTA_KIND,
    Growth,
    Limit,
    Limits,
    Place,
    QuotaExceeded,
    QuotaUse,
    Use,
    is_exempt,
    stored_size,
)

STEP = 200
"""The number of resources that one step of a count looks at: about two milliseconds."""


_REMEMBERED = 4096
"""The number of resources whose sizes are remembered."""


Effect = tuple[Kind, Key, pb.Resource | None, pb.Resource | None]
"""A change (kind, key, stored before, stored now)."""


class CountedTables(Protocol):
    """The tables that a count reads."""

    def kinds(self) -> Sequence[Kind]:
        """Return the kinds that have resources, in order."""
        ...

    def scan(
        self, kind: Kind, within: Within, *, after: Key | None, limit: int, most: int
    ) -> tuple[list[pb.Resource], Key | None]:
        """Return resources of a kind behind ``after``, in order of key, and the key to continue after."""
        ...


_FIRST: Kind = ("", "")


class Tally:
    """The use of one part of a store.

    Attributes:
        use: the use, as far as it is counted.
        complete: True once everything is counted.
    """

    __slots__ = ("_after", "_kind", "_place", "_tables", "_within", "complete", "use")

    def __init__(self, place: Place, tables: CountedTables) -> None:
        self.use = Use()
        self.complete = False
        self._place = place
        self._tables = tables
        self._within = Within(place.partition, place.namespace or "*")
        # Invariant: all resources of earlier kinds are counted, and the resources of this kind up to this key.
        self._kind = _FIRST
        self._after: Key | None = None

    def step(self, most: int = STEP) -> None:
        """Count some resources. Look at ``most`` of them at most."""
        kind = next((each for each in self._tables.kinds() if each >= self._kind), None)
        if kind is None:
            self.complete = True
            return
        if kind != self._kind:
            self._kind, self._after = kind, None
        if not self._place.covers(kind, (self._place.partition, self._place.namespace, "")):
            self._end_kind()
            return
        found, after = self._tables.scan(kind, self._within, after=self._after, limit=0, most=most)
        for resource in found:
            self.use = self.use.plus(Use(1, stored_size(resource)))
        if after is None:
            self._end_kind()
        else:
            self._after = after

    def _end_kind(self) -> None:
        # The first kind behind this one.
        self._kind, self._after = (self._kind[0], self._kind[1] + "\0"), None

    def has_passed(self, kind: Kind, key: Key) -> bool:
        """Return True if the resource is counted. Otherwise the rest of the count will include it."""
        if self.complete or kind != self._kind:
            return self.complete or kind < self._kind
        return self._after is not None and key <= self._after


class TableQuotas:
    """The quotas of the store that has these tables, and their use.

    Attributes:
        limits: the declared quotas.
    """

    def __init__(self, tables: CountedTables) -> None:
        self.limits = Limits()
        self._tables = tables
        self._tallies: dict[Place, Tally] = {}
        # Those that are not known to be complete.
        self._incomplete: dict[Place, Tally] = {}
        # The sizes of the resources that were written or examined last, by the ids of the objects, which it keeps
        # alive. So no write encodes a resource twice, and the next one does not encode what it replaces.
        self._sizes: dict[int, tuple[pb.Resource, int]] = {}

    def change(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
        """Follow a change that the tables have made."""
        if kind == QUOTA_KIND:
            for place in self.limits.declare(key[2], new):
                if not self.limits.has(place):
                    del self._tallies[place]
                    self._incomplete.pop(place, None)
                elif place not in self._tallies:
                    self._tallies[place] = self._incomplete[place] = Tally(place, self._tables)
        covering = self.limits.covering(kind, key)
        if not covering:
            return
        followed = covering if len(covering) == 1 else {each.place: each for each in covering}.values()
        tallies = [tally for each in followed if (tally := self._tallies[each.place]).has_passed(kind, key)]
        if tallies:
            by = self._difference(old, new)
            for tally in tallies:
                tally.use = tally.use.plus(by)
        if old is not None:
            self._sizes.pop(id(old), None)

    @property
    def is_counting(self) -> bool:
        """True unless every count is known to be complete."""
        return bool(self._incomplete)

    def pending(self, growing: Sequence[tuple[Kind, Key]] | None = None) -> Sequence[Tally]:
        """Return the incomplete counts of the quotas of these resources, or of all quotas."""
        places = self._incomplete if growing is None else self._places(growing)
        found: list[Tally] = []
        for place in [each for each in places if each in self._incomplete]:
            tally = self._incomplete[place]
            if tally.complete:
                del self._incomplete[place]
            else:
                found.append(tally)
        return found

    def _places(self, growing: Sequence[tuple[Kind, Key]]) -> set[Place]:
        return {each.place for where in growing for each in self.limits.covering(*where)}

    def use_of(self, place: Place) -> Use:
        """Return the use of the part of a quota. Count what is not counted yet."""
        tally = self._tallies[place]
        while not tally.complete:
            tally.step()
        return tally.use

    def charge(self, changes: Sequence[Effect]) -> None:
        """Raise QuotaExceeded if a commit of these changes has no room, and count the refusal."""
        try:
            self.charged(changes)
        except QuotaExceeded as error:
            self.limits.count_refusal(error)
            raise

    def charged(self, changes: Sequence[Effect]) -> Sequence[tuple[Limit, Use]]:
        """Return the quotas that a commit of these changes needs room in. Raise QuotaExceeded without room."""
        growths: list[Growth] = []
        for kind, key, old, new in changes:
            if new is not None and self.limits.covering(kind, key):
                by = self._difference(old, new)
                grows = by.resources > 0 or by.bytes > 0
                growths.append(Growth(kind, key, by, grows and is_exempt(old, new)))
            elif old is not None and len(changes) > 1:
                growths.append(Growth(kind, key, self._difference(old, None), True))
        return self.limits.charged(growths, self.use_of) if growths else ()

    def uses(self) -> Sequence[QuotaUse]:
        """Return the quotas whose use is counted, with their use, in order of name."""
        counted = [(each, self._tallies[each.place]) for each in self.limits]
        return [QuotaUse(each, tally.use, self.limits.refused(each.name)) for each, tally in counted if tally.complete]

    def _difference(self, old: pb.Resource | None, new: pb.Resource | None) -> Use:
        size = (0 if new is None else self._size(new)) - (0 if old is None else self._size(old))
        return Use((new is not None) - (old is not None), size)

    def _size(self, resource: pb.Resource) -> int:
        known = self._sizes.get(id(resource))
        if known is None:
            if len(self._sizes) >= _REMEMBERED:
                self._sizes.clear()
            known = self._sizes[id(resource)] = (resource, stored_size(resource))
        return known[1]
