"""Pinned views: several types as they were at one revision, whatever arrives meanwhile. Pure.

Rules. A view's *pin* is a revision R: the highest that is known of any of its types when it is asked for, replies to
the controller's own writes included. So it is never behind what the cache has shown, and it is a cut: of every type
exactly what was there at R, and nothing of what came later, own writes included.

1. A type that stands below R is followed until its frontier has reached R. From the first moment on the old state of
   whatever goes beyond R is kept aside, once for each key: the *overlay*.
2. A change at or below R that a reply beyond R has overtaken is what was there at R: it goes into the overlay, unless
   a reply that was applied, at or below R, is later still.
3. From R on every change is kept out, whatever revision it says: a view doesn't change, even if what the cache held was
   a server's lie.
4. A snapshot that arrives below R and takes the type on compresses what happened between: what was there at R can't be
   told from it. The pin is missed, and a new one is set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Any

from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index, IndexTable, Path, Table
from headway.cache._query import Query
from headway.cache._reader import CacheReader, Held
from headway.cache._type_store import Applied, TypeStore
from headway.errors import HeadwayError, NotPrimed, NotWatched
from headway.resource import Key, TypeName, pb


class Pin:
    """One type's part of a view.

    Attributes:
        reached: the type has reached the revision, and reads show it as it was then.
        missed: it never will.
        failure: what has made the type's data void meanwhile.
    """

    def __init__(
        self, gate: TypeStore, tables: Mapping[str, IndexTable], revision: int, on_change: Callable[[], None]
    ) -> None:
        self.revision = revision
        self.reached = gate.frontier >= revision
        self.missed = False
        self.failure: HeadwayError | None = None
        self._gate = gate
        self._tables = tables
        self._on_change = on_change
        # Invariant: for every key whose held state is not the one at the pin, that one; None: there was nothing.
        self._overlay: dict[Key, pb.Resource | None] = {}
        self._pinned_tables: dict[str, PinnedTable] = {}
        # The replies at or below the pin that are ahead of the frontier: what they have overtaken was gone at the pin.
        self._replies = gate.ahead() if not self.reached else {}

    def replied(self, key: Key, revision: int) -> None:
        """A reply at that revision has been applied."""
        if not self.reached and revision <= self.revision:
            self._replies[key] = revision

    def follow(self, applied: Sequence[Applied], overtaken: Sequence[Applied], snapshot: bool) -> None:
        """The gate has changed so; called in the same step. ``snapshot``: it has applied a whole one."""
        overlay, revision = self._overlay, self.revision
        if self.reached:
            for key, old, _, _ in applied:
                overlay.setdefault(key, old)
            return
        self.missed = self.missed or snapshot
        for key, old, _, at in applied:
            if at > revision:
                overlay.setdefault(key, old)
        for key, _, new, at in overtaken:
            if self._replies.get(key, 0) < at <= revision:
                overlay[key] = new
        self.reached = self._gate.frontier >= revision
        if self.reached or self.missed:
            self._on_change()

    def fail(self, error: HeadwayError) -> None:
        """The data is void; what has been reached stays readable."""
        self.failure = error
        self._on_change()

    # --- as what is read ---

    def find(self, key: Key) -> pb.Resource | None:
        """See `Held`."""
        overlay = self._overlay
        return overlay[key] if key in overlay else self._gate.entries.get(key)

    def everything(self) -> Mapping[Key, pb.Resource]:
        """See `Held`."""
        if not self._overlay:
            return self._gate.entries
        pinned = {**self._gate.entries, **self._overlay}
        return {key: stored for key, stored in pinned.items() if stored is not None}

    def table(self, name: str) -> Table | None:
        """See `Held`."""
        pinned = self._pinned_tables.get(name)
        if pinned is None:
            table = self._tables.get(name)
            if table is None:
                return None
            pinned = self._pinned_tables[name] = PinnedTable(table, self._overlay)
        pinned.catch_up()
        return pinned


class PinnedTable:
    """Meets `Table`: what an index was at a pin, which is what it is now but for the overlay's keys."""

    def __init__(self, present: IndexTable, overlay: Mapping[Key, pb.Resource | None]) -> None:
        self.index: Index[Any, Any] = present.index
        self._present = present
        self._overlay = overlay
        # What is kept aside failed, or not, when it was indexed; that has been reported.
        self._aside = IndexTable(present.index, _ignore, is_undecodable=present.is_undecodable)
        self._indexed = 0

    def catch_up(self) -> None:
        """Index what has been put into the overlay since last time. Once a pin is reached nothing there changes."""
        if self._indexed < len(self._overlay):
            new = list(self._overlay.items())[self._indexed :]
            self._aside.apply(Applied(key, None, stored, 0) for key, stored in new)
            self._indexed = len(self._overlay)

    @property
    def failed(self) -> Collection[Key]:
        """See `Table`."""
        return (self._present.failed - self._overlay.keys()) | self._aside.failed

    def keys(self, value: Hashable) -> Collection[Key]:
        """See `Table`."""
        return self._now(self._present.keys(value), self._aside.keys(value))

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """See `Table`."""
        both = merge(self._present.starting(prefix), self._aside.starting(prefix), key=_value)
        for value, _ in groupby(both, key=_value):
            yield value, self.keys(value)

    def _now(self, present: Collection[Key], aside: Collection[Key]) -> Collection[Key]:
        return present if not self._overlay else {*(key for key in present if key not in self._overlay), *aside}


def _value(item: tuple[Any, object]) -> Any:
    return item[0]


def _ignore(name: str, key: Key, error: BaseException) -> None:
    """See `PinnedTable`."""


class View(CacheReader):
    """Several types at one revision, made by `Cache.view`.

    Attributes:
        pinned_at: the revision.

    Reads raise NotWatched for a type that the view was opened without, and NotPrimed after its block.
    """

    def __init__(
        self,
        controller: str,
        manages: CachedType[Any],
        queries: Collection[Query[Any, Any]],
        pins: Mapping[TypeName, Pin],
        pinned_at: int,
    ) -> None:
        self._controller = controller
        self.manages = manages
        self._queries = queries
        self._pins: Mapping[TypeName, Pin] | None = pins
        self.pinned_at = pinned_at

    def close(self) -> None:
        """The block, or the run, has ended."""
        self._pins = None

    def _held(self, type: CachedType[Any]) -> Held:
        if self._pins is None:
            raise NotPrimed(f"a view of {self._controller} was read after its block, or its run, had ended")
        pin = self._pins.get(type.name)
        if pin is None:
            raise NotWatched(f"the view was opened without {type.name}: name it in rt.cache.view(...)")
        return pin
