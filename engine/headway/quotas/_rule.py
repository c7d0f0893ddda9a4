"""The rule of commits that keeps quotas, and the use of each, counted from what a store has. Pure.

The use is never stored: it is counted from the resources once, and then follows each change. So it is right after a
crash, a restore or a copy. A count of many resources takes long. It is made in steps, and the changes in between are
added if the count has passed their keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from headway.errors import CommitRefused, QuotaExceeded
from headway.quotas._limits import Growth, Limits, Place, QuotaUse, Use, is_exempt
from headway.quotas._type import QUOTA
from headway.resource import Key, Kind
from headway.storage import Change, Claim, CommitRule, Stored


class Tally:
    """The use of one part of a store.

    Attributes:
        use: the use, as far as it is counted.
        complete: True once everything is counted.
    """

    __slots__ = ("_after", "_kind", "_place", "_stored", "complete", "use")

    def __init__(self, place: Place, stored: Stored) -> None:
        self.use = Use()
        self.complete = False
        self._place = place
        self._stored = stored
        # Invariant: all resources of earlier kinds are counted, and the resources of this kind up to this key.
        self._kind: Kind = ("", "")
        self._after: Key | None = None

    def step(self) -> None:
        """Count some resources."""
        place = self._place
        if self._after is None:
            kind = self._stored.next_kind(self._kind)
            if kind is None:
                self.complete = True
                return
            self._kind = kind
        after: Key | None = None
        if place.covers(self._kind, (place.partition, place.namespace, "")):
            resources, size, after = self._stored.measure(self._kind, place.partition, place.namespace, self._after)
            self.use = self.use.plus(Use(resources, size))
        self._after = after
        if after is None:
            # Behind this kind, and before every other.
            self._kind = (self._kind[0], self._kind[1] + "\0")

    def has_passed(self, kind: Kind, key: Key) -> bool:
        """Return True if the resource is counted. Otherwise the rest of the count will include it."""
        if self.complete or kind != self._kind:
            return self.complete or kind < self._kind
        return self._after is not None and key <= self._after


class QuotaRule(CommitRule):
    """The quotas of one store, and their use.

    Attributes:
        limits: the declared quotas.
    """

    kinds = frozenset({QUOTA.kind})

    def __init__(self) -> None:
        self.limits = Limits()
        # Invariant: a tally for the part of each quota.
        self._tallies: dict[Place, Tally] = {}
        # Those that are not known to be complete.
        self._incomplete: dict[Place, Tally] = {}

    @property
    @override
    def active(self) -> bool:
        return bool(self.limits)

    @override
    def begin(self, stored: Stored) -> None:
        self._stored = stored
        declared = {each.id.name: each for each in stored.every(QUOTA.kind) if each.id is not None}
        for name in {each.name for each in self.limits} | declared.keys():
            self.limits.declare(name, declared.get(name))
        self._tallies = {each.place: Tally(each.place, stored) for each in self.limits}
        self._incomplete = dict(self._tallies)

    @override
    def claims(self, changes: Sequence[Change]) -> Sequence[Claim]:
        growths: list[Growth] = []
        for each in changes:
            if self.limits.covering(each.kind, each.key):
                by = Use(each.resources, each.bytes)
                exempt = each.new is None
                if each.new is not None and (by.resources > 0 or by.bytes > 0):
                    exempt = is_exempt(each.old, each.new)
                growths.append(Growth(each.kind, each.key, by, exempt))
        return self.limits.claims(growths, self.use_of) if growths else ()

    @override
    def follow(self, changes: Sequence[Change]) -> None:
        for each in changes:
            if each.kind == QUOTA.kind:
                self._declare(each)
            covering = self.limits.covering(each.kind, each.key)
            followed = covering if len(covering) < 2 else {limit.place: limit for limit in covering}.values()
            for limit in followed:
                tally = self._tallies[limit.place]
                if tally.has_passed(each.kind, each.key):
                    tally.use = tally.use.plus(Use(each.resources, each.bytes))

    def _declare(self, change: Change) -> None:
        for place in self.limits.declare(change.key[2], change.new):
            if not self.limits.has(place):
                del self._tallies[place]
                self._incomplete.pop(place, None)
            elif place not in self._tallies:
                self._tallies[place] = self._incomplete[place] = Tally(place, self._stored)

    @override
    def count(self, growing: Sequence[tuple[Kind, Key]] | None) -> bool:
        while self._incomplete:
            if growing is None:
                place: Place | None = next(iter(self._incomplete))
            else:
                places = (limit.place for where in growing for limit in self.limits.covering(*where))
                place = next((each for each in places if each in self._incomplete), None)
            if place is None:
                break
            tally = self._incomplete[place]
            if not tally.complete:
                tally.step()
                return True
            del self._incomplete[place]
        return False

    def use_of(self, place: Place) -> Use:
        """Return the use of the part of a quota. Count what is not counted yet."""
        tally = self._tallies[place]
        while not tally.complete:
            tally.step()
        return tally.use

    @override
    def refused(self, error: CommitRefused) -> None:
        if isinstance(error, QuotaExceeded):
            self.limits.count_refusal(error)

    def uses(self) -> Sequence[QuotaUse]:
        """Return the quotas whose use is counted, with their use, in order of name. Any thread may call it."""
        counted = [(each, self._tallies.get(each.place)) for each in self.limits]
        return [
            QuotaUse(each, tally.use, self.limits.refused(each.name))
            for each, tally in counted
            if tally is not None and tally.complete
        ]
