"""Pinned views: several types as they were at one revision, regardless of later changes. No I/O.

A view's *pin* is a revision R: the highest revision known for any of its types when the view is requested, including
replies to the controller's own writes. The view is therefore never behind what the cache has shown. It is a cut: for
every type it contains exactly the state at R, and nothing later, not even the controller's own writes.

Rules:
1. A type below R is followed until its frontier has reached R. From the start, the old state of every key that changes
   beyond R is kept in the *overlay*, once for each key.
2. A change at or below R that a reply beyond R has overtaken is the state at R. It enters the overlay, unless a reply
   at or below R that was applied is later still.
3. After R is reached, every change is kept out, whatever its revision. A view does not change, even if the cached data
   was based on a server's false claim.
4. A snapshot that arrives below R and advances the type merges the changes in between. The state at R cannot be derived
   from it. The pin is missed, and a new one is set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from typing_extensions import override

from headway.cache._index_table import IndexTable
from headway.cache._indexes import Index, Path, Table
from headway.cache._projection import CachedType
from headway.cache._reader import CacheReader, Content, Query, R, not_a_type
from headway.cache._reading import READING, LookingUp
from headway.cache._type_store import Applied, TypeStore
from headway.errors import HeadwayError, NotPrimed, NotWatched
from headway.resource import Key, ResourceId, TypeName, pb


class Pin:
    """The part of a view for one type.

    Attributes:
        reached: True if the type has reached the revision. Reads then show its state at that revision.
        missed: True if the type can never show that state.
        failure: the error that made the type's data void, if any.
    """

    def __init__(
        self, store: TypeStore, tables: Mapping[str, IndexTable], revision: int, on_change: Callable[[], object]
    ) -> None:
        self.revision = revision
        self.reached = store.frontier >= revision
        self.missed = False
        self.failure: HeadwayError | None = None
        self._store = store
        self._tables = tables
        self._on_change = on_change
        # Invariant: the state at the pin of every key whose current entry differs from it; None for an absent key.
        self._overlay: dict[Key, pb.Resource | None] = {}
        self._pinned_tables: dict[str, PinnedTable] = {}
        # The replies at or below the pin that are ahead of the frontier. A change that such a reply overtook is not the
        # state at the pin.
        self._replies = store.ahead() if not self.reached else {}

    def replied(self, key: Key, revision: int) -> None:
        """Note that a reply at that revision has been applied."""
        if not self.reached and revision <= self.revision:
            self._replies[key] = revision

    def follow(self, applied: Sequence[Applied], overtaken: Sequence[Applied], snapshot: bool) -> None:
        """Follow the store's changes; called in the same step. ``snapshot`` is True if it applied a whole snapshot."""
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
        self.reached = self._store.frontier >= revision
        if self.reached or self.missed:
            self._on_change()

    def fail(self, error: HeadwayError) -> None:
        """Note that the data is void. A pin that was reached stays readable."""
        self.failure = error
        self._on_change()

    # --- called by readers ---

    def find(self, key: Key) -> pb.Resource | None:
        """Return the resource with this key at the pin, or None."""
        overlay = self._overlay
        return overlay[key] if key in overlay else self._store.entries.get(key)

    def everything(self) -> Mapping[Key, pb.Resource]:
        """Return all resources at the pin."""
        if not self._overlay:
            return self._store.entries
        pinned = {**self._store.entries, **self._overlay}
        return {key: stored for key, stored in pinned.items() if stored is not None}

    def table(self, name: str) -> Table | None:
        """Return the index of this name, or None."""
        pinned = self._pinned_tables.get(name)
        if pinned is None:
            table = self._tables.get(name)
            if table is None:
                return None
            pinned = self._pinned_tables[name] = PinnedTable(table, self._overlay)
        pinned.catch_up()
        return pinned


class PinnedTable:
    """An implementation of `Table` for an index at a pin: the current index, except for the keys in the overlay."""

    def __init__(self, present: IndexTable, overlay: Mapping[Key, pb.Resource | None]) -> None:
        self.index: Index[Any, Any] = present.index
        self._present = present
        self._overlay = overlay
        # Failures for these states were already reported when they were first indexed.
        self._aside = IndexTable(present.index, lambda *_: None, is_undecodable=present.is_undecodable)
        self._indexed = 0

    @property
    def reads_status(self) -> bool:
        """True if the function has read what the write of a status changes, or if that is not known."""
        return self._present.reads_status

    def catch_up(self) -> None:
        """Index the additions to the overlay since the last call. After a pin is reached, its keys do not change."""
        if self._indexed < len(self._overlay):
            new = list(self._overlay.items())[self._indexed :]
            self._aside.apply(Applied(key, None, stored, 0) for key, stored in new)
            self._indexed = len(self._overlay)

    @property
    def failed(self) -> Collection[Key]:
        """The keys that exist at the pin but are missing here, because the function raised."""
        return (self._present.failed - self._overlay.keys()) | self._aside.failed

    def keys(self, value: Hashable) -> Collection[Key]:
        """Return the keys under a value, in no particular order."""
        present = self._present.keys(value)
        if not self._overlay:
            return present
        return {*(key for key in present if key not in self._overlay), *self._aside.keys(value)}

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """Yield every value that begins with the prefix, in order, together with its keys."""
        both = merge(self._present.starting(prefix), self._aside.starting(prefix), key=itemgetter(0))
        for value, _ in groupby(both, key=itemgetter(0)):
            yield value, self.keys(value)

    def parents(self, value: Path) -> Iterator[Collection[Key]]:
        """Yield the keys of each value that is a prefix of this one or equal to it, the shortest first."""
        for length in range(len(value) + 1):
            if keys := self.keys(value[:length]):
                yield keys


class View(CacheReader):
    """Several types at one revision. Created by `Cache.view`.

    Attributes:
        pinned_at: the revision.

    Reads raise NotWatched for a type that the view was opened without, and NotPrimed after its block has ended.
    """

    def __init__(
        self,
        whose: str,
        manages: CachedType[Any] | None,
        queries: Collection[Query[Any, Any]],
        pins: Mapping[TypeName, Pin],
        pinned_at: int,
    ) -> None:
        self._whose = whose
        if manages is not None:
            self.manages = manages
        self._queries = queries
        self._pins: Mapping[TypeName, Pin] | None = pins
        self.pinned_at = pinned_at

    def close(self) -> None:
        """Close the view, because its block or the run has ended."""
        self._pins = None

    @override
    def get(self, type: CachedType[R], id: str | ResourceId, *, partition: str = "", namespace: str = "") -> R | None:
        reads = READING.get()
        if isinstance(reads, LookingUp):
            find = self._content(type).find
            with reads.through(lambda _, key: find(key)):
                return super().get(type, id, partition=partition, namespace=namespace)
        return super().get(type, id, partition=partition, namespace=namespace)

    def _content(self, type: CachedType[Any]) -> Content:
        if self._pins is None:
            raise NotPrimed(f"a view of {self._whose} was read after its block, or its run, had ended")
        try:
            pin = self._pins.get(type.name)
        except AttributeError:
            raise not_a_type(type) from None
        if pin is None:
            raise NotWatched(f"the view was opened without {type.name}: name it in cache.view(...)")
        return pin
