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
    QuotaUse,
    Use,
    growth_of,
    stored_size,
)

STEP = 200
"""The number of resources that one step of a count looks at: about two milliseconds."""


_REMEMBERED = 4096
"""The number of resources whose sizes are remembered."""


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
        # Invariant: the resources of earlier kinds, and those of this kind up to this key, are counted.
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
        # The sizes of resources that were written last, and of those in the last commit that was examined. Each is for
        # one object, so that no write encodes a resource more than once.
        self._written: dict[tuple[Kind, Key], tuple[pb.Resource, int]] = {}
        self._examined: dict[tuple[Kind, Key], tuple[pb.Resource, int]] = {}

    def change(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
        """Follow a change that the tables have made."""
        if kind == QUOTA_KIND:
            self.limits.declare(key[2], new)
            places = {each.place for each in self.limits}
            self._tallies = {place: self._tallies.get(place) or Tally(place, self._tables) for place in places}
        covering = {each.place: self._tallies[each.place] for each in self.limits.covering(kind, key)}
        following = [tally for tally in covering.values() if tally.has_passed(kind, key)]
        if following:
            growth = self._growth(kind, key, old, new)
            for tally in following:
                tally.use = tally.use.plus(growth.by)
            if len(self._written) >= _REMEMBERED:
                self._written.clear()
            self._written.pop((kind, key), None)
            if new is not None:
                self._written[kind, key] = (new, self._size(kind, key, new))

    def _growth(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> Growth:
        return growth_of(kind, key, old, new, lambda resource: self._size(kind, key, resource))

    def _size(self, kind: Kind, key: Key, resource: pb.Resource) -> int:
        for known in (self._examined.get((kind, key)), self._written.get((kind, key))):
            if known is not None and known[0] is resource:
                return known[1]
        size = stored_size(resource)
        self._examined[kind, key] = (resource, size)
        return size

    def pending(self, growing: Sequence[tuple[Kind, Key]] | None = None) -> Sequence[Tally]:
        """Return the incomplete counts of the quotas of these resources, or of all quotas."""
        if growing is None:
            tallies = list(self._tallies.values())
        else:
            tallies = [self._tallies[each.place] for place in growing for each in self.limits.covering(*place)]
        return [each for each in tallies if not each.complete]

    def use_of(self, place: Place) -> Use:
        """Return the use of the part of a quota. Count what is not counted yet."""
        tally = self._tallies[place]
        while not tally.complete:
            tally.step()
        return tally.use

    def charged(self, changes: Sequence[tuple[Kind, Key, pb.Resource | None, pb.Resource | None]]) -> dict[Limit, Use]:
        """Return the quotas that a commit of these changes needs room in. Raise QuotaExceeded without room."""
        self._examined.clear()
        covered = [self._growth(*each) for each in changes if self.limits.covering(each[0], each[1])]
        return self.limits.charged(covered, self.use_of) if covered else {}

    def uses(self) -> Sequence[QuotaUse]:
        """Return the quotas whose use is counted, with their use, in order of name."""
        counted = [(each, self._tallies[each.place]) for each in self.limits]
        return [QuotaUse(each, tally.use, self.limits.refused(each.name)) for each, tally in counted if tally.complete]
