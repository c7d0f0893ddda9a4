"""The revisions that notifications show, one after the other: each is one revision of all types of a cache.

Rules:
1. All reads show one view of the cache. The next view replaces it in one step, so no reader sees half a commit.
2. A view is requested when something has changed. It opens when all types have reached its revision. In that step,
   every read that the difference between the two views affects is marked. Until then, only the keys of changes are
   kept, because a type without a stream can delay the view for long. Without a read, no view is open or requested, and
   nothing is kept.
3. While the store is void, the last view stays. The first view of another store, or of the accepted one, marks every
   read as restored.
4. While a type has no stream, no view may open. The error of that type is also the error of the reads whose types have
   changes that wait for the view. An error ends with the first view that shows what came after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NoReturn

import trio

from headway.cache import Applied, CachedType, CacheOfTypes, CacheReader, View, state_of
from headway.errors import HeadwayError, NotPrimed, StoreChanged, StoreRolledBack
from headway.notify._reads import AffectedReads, Difference, Read
from headway.resource import Key, Position, TypeName


class Cuts:
    """The reads of a cache's notifications, and the view that they show.

    Args:
        position: returns the position of a revision in the cache's store.
        age: returns the time, in seconds, for which a type has been cut off.
    """

    def __init__(
        self,
        cache: CacheOfTypes,
        types: Sequence[CachedType[Any]],
        position: Callable[[int], Position],
        age: Callable[[TypeName], float],
    ) -> None:
        self.position: Position | None = None
        self._cache = cache
        self._types = types
        self._position_of = position
        self._age_of = age
        self._reads: dict[TypeName, AffectedReads] = {type.name: AffectedReads() for type in types}
        # The keys whose state may differ from the one in the view, in the order of their changes.
        self._pending: dict[TypeName, dict[Key, None]] = {type.name: {} for type in types}
        # The reads that have no value yet.
        self._new: dict[Read[Any], None] = {}
        # Why types are not current, with the number of failures.
        self._errors: dict[TypeName, tuple[HeadwayError, int]] = {}
        # The errors of types that are current again, but not in the view yet.
        self._ending: dict[TypeName, tuple[HeadwayError, int]] = {}
        # The errors that the reads of a type have.
        self._noted: dict[TypeName, HeadwayError] = {}
        self._view: View | None = None
        self._opened = AsyncExitStack()
        # The number of times that the cache has begun to show other data.
        self._generation = 0
        self._restored = False
        # True while the store is void.
        self._frozen = False
        self._due = False
        # The cancel scope in which the next view is being opened; None at other times.
        self._opening: trio.CancelScope | None = None
        self._woken = trio.lowlevel.ParkingLot()

    @property
    def reader(self) -> CacheReader:
        """The cache at the revision that is shown."""
        if self._view is None:
            raise NotPrimed("the handle is closed")
        return self._view

    def age(self, type: TypeName) -> float:
        """Return how long, in seconds, the reads of a type have not been known to be current."""
        held_up = type in self._noted and type not in self._errors
        return max(map(self._age_of, self._errors if held_up and self._errors else (type,)))

    # --- called by the cache ---

    def listener(self, type: TypeName) -> Callable[[Sequence[Applied]], None]:
        """Return the listener of a type's subscription."""
        return partial(self._note, type, self._generation)

    def _note(self, type: TypeName, generation: int, changes: Sequence[Applied]) -> None:
        # A view that is open or about to open may be older than these changes, and may get a read that they affect.
        # Without one, a new read begins with the present state.
        begun = self._view is not None or self._opening is not None or any(self._reads.values())
        if begun and generation == self._generation:
            self._pending[type].update((change.key, None) for change in changes)
            if self._errors:
                self._note_error_of(type)
            self._wake()

    def freeze(self) -> None:
        """Note that the store is void, so that the present view stays until `replaced`."""
        self._frozen = True

    def replaced(self) -> None:
        """Note that the cache will show the data of another store. Subscribe anew after this."""
        self._generation += 1
        self._frozen = False
        self._restored = self._view is not None
        for pending in self._pending.values():
            pending.clear()
        self._wake()

    def note_error(self, type: TypeName, error: HeadwayError | None, failures: int) -> None:
        """Note why a type is not current, or with None that it is."""
        if error is None:
            if type in self._errors:
                self._ending[type] = self._errors.pop(type)
                self._wake()
            return
        self._ending.pop(type, None)
        self._errors[type] = error, failures
        for each, pending in self._pending.items():
            if each == type or pending or self._view is None:
                self._note_error_of(each, again=True)

    def _error_of(self, type: TypeName) -> tuple[HeadwayError | None, int]:
        """Return the error of the reads of a type, and the number of failures."""
        own = self._errors.get(type) or self._ending.get(type)
        if own is None and (self._pending[type] or self._view is None):
            own = next(iter(self._errors.values()), None)
        return own or (None, 0)

    def _note_error_of(self, type: TypeName, *, again: bool = False) -> None:
        """Mark the reads of a type if they have another error now, or if the same error has occurred ``again``."""
        error, failures = self._error_of(type)
        if error is self._noted.get(type) and not again:
            return
        if error is None:
            self._noted.pop(type, None)
        else:
            self._noted[type] = error
        for read in self._reads[type]:
            read.note_error(error, failures)

    def add(self, read: Read[Any]) -> None:
        """Begin a read. If a view is open, the read has its first value at once."""
        self._reads[read.type.name].add(read)
        if self._view is not None:
            read.error, read.failures = self._error_of(read.type.name)
            read.note_value()
        else:
            read.error, read.failures = self._errors.get(read.type.name, (None, 0))
            self._new[read] = None
            self._wake()

    def end_read(self, read: Read[Any]) -> None:
        """End a read without handles."""
        self._reads[read.type.name].remove(read)
        self._new.pop(read, None)
        if self._opening is not None and not any(self._reads.values()):
            self._opening.cancel()
        self._wake()

    def close(self) -> None:
        """Note that the cache has closed."""
        self._view = None

    # --- the task ---

    def _wake(self) -> None:
        self._due = True
        self._woken.unpark_all()

    async def run(self) -> NoReturn:
        """Move the reads from one view to the next, until canceled."""
        try:
            while True:
                while not self._due:
                    await self._woken.park()
                self._due = False
                if any(self._reads.values()):
                    if not self._frozen or self._view is None:
                        await self._advance()
                else:
                    # An open view stores the old state of every resource that changes.
                    self._view, self.position = None, None
                    self._ending = {}
                    self._noted = {type: error for type, (error, _) in self._errors.items()}
                    for pending in self._pending.values():
                        pending.clear()
                    await self._opened.aclose()
        finally:
            with trio.CancelScope(shield=True):
                await self._opened.aclose()

    async def _advance(self) -> None:
        generation = self._generation
        with trio.CancelScope() as self._opening:
            async with AsyncExitStack() as opening:
                try:
                    view = await opening.enter_async_context(self._cache.view(*self._types))
                except (StoreChanged, StoreRolledBack):
                    # The cache wakes this task when it is primed again.
                    return
                except NotPrimed:
                    # The cache has closed, so this task is about to be canceled.
                    return
                finally:
                    self._opening = None
                if generation != self._generation:
                    return
                before, self._opened = self._opened, opening.pop_all()
                self._show(view)
                await before.aclose()

    def _show(self, view: View) -> None:
        """Replace the view and mark the reads. Contains no checkpoint."""
        # It is still open.
        before, self._view = self._view, view
        self.position = self._position_of(view.pinned_at)
        restored, self._restored = self._restored, False
        changed, self._new = self._new, {}
        for type in self._types:
            reads, pending = self._reads[type.name], self._pending[type.name]
            if restored:
                changed.update(dict.fromkeys(reads))
            elif before is not None:
                changed.update(reads.affected(_differences(type, pending, before, view)))
            # Changes that came after the view had been requested wait for the next one.
            left = {each.key: None for each in _differences(type, pending, view, self._cache)}
            self._pending[type.name] = left
            self._due = self._due or (bool(left) and not self._frozen)
        for read in changed:
            read.note_value(restored=restored)
        self._ending = {name: error for name, error in self._ending.items() if self._pending[name]}
        for name in list(self._noted):
            self._note_error_of(name)


def _differences(
    type: CachedType[Any], keys: Iterable[Key], before: CacheReader, after: CacheReader
) -> Iterator[Difference]:
    """Yield the keys whose states differ."""
    for key in keys:
        old, new = state_of(before, type, key), state_of(after, type, key)
        if old is not new:
            yield Difference(key, old, new)
