"""The keeper of a program's cache: it primes the cache, and again when its store has been replaced.

Rules:
1. A cache opens when every type is complete up to the position that the store had when the opening began, and then up
   to one revision of them all.
2. If the data of any type becomes void, the cache keeps showing what it has, of all types. When all types are primed
   from the present store, it changes over to them in one step.
3. A store that was rolled back is not read until it is accepted or has another id.
4. A type that the server denies ends the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import trio

from headway.base import retry_delay
from headway.cache import CachedType, Informer, OnFailure, Subscription
from headway.errors import HeadwayError, PermissionDenied, StoreChanged, StoreRolledBack, Unavailable
from headway.informers import Informers
from headway.notify._checks import Wanted
from headway.resource import TypeName

SHOWN_FAILURES = 2
"""The number of streams that end in a row before a type counts as cut off. A server that restarts is back sooner."""


class Keeper:
    """The streams and subscriptions of one cache.

    Args:
        held: the informer of each type.
        on_index_failure: returns the report of the failures of a type's indexes.
        stream_changed: called with a type, why its content is not current (None if it is), and the number of failures.

    Attributes:
        void: why the subscriptions are void, and since when on Trio's clock; None while they are not.
        primed_again: wakes the tasks that wait until the cache shows another store.
        interruptions: why types are not current.
    """

    def __init__(
        self,
        wanted: Wanted,
        informers: Informers,
        held: Mapping[TypeName, Informer],
        on_index_failure: Callable[[TypeName], OnFailure],
        stream_changed: Callable[[TypeName, HeadwayError | None, int], object],
    ) -> None:
        self.void: tuple[HeadwayError, float] | None = None
        self.subscriptions: dict[TypeName, Subscription] = {}
        self.primed_again = trio.lowlevel.ParkingLot()
        self.interruptions = Interruptions()
        self._wanted = wanted
        self._informers = informers
        self._held = held
        self._on_index_failure = on_index_failure
        self._stream_changed = stream_changed
        self._voided = trio.lowlevel.ParkingLot()

    async def prime(self) -> None:
        """Wait until every type is primed, and subscribe to it. Raises StoreRolledBack or PermissionDenied."""
        failures = 0
        while True:
            try:
                await self._prime()
                return
            except PermissionDenied:
                raise
            except (StoreChanged, Unavailable):
                # The streams report their own failures.
                await trio.sleep(retry_delay(failures))
                failures += 1

    async def _prime(self) -> None:
        first = self._wanted.types[0]
        start = await self._informers.linearizable(first)
        held, revision = self._held.values(), start.revision
        for _ in range(2):
            for informer in held:
                await informer.wait_complete(revision)
                # Otherwise the second round would wait for the revision of a store that another type is about to leave.
                self._check(informer, start.store_id, 0)
            revision, reached = max(informer.store.frontier for informer in held), revision
        # The last wait and the block of the cache may end in one step.
        await trio.lowlevel.checkpoint_if_cancelled()
        for informer in held:
            self._check(informer, start.store_id, reached)
        # No checkpoint from the check on, so the subscriptions begin with what was waited for.
        self.subscriptions = {type.name: self._subscribe(type) for type in self._wanted.types}

    def _check(self, informer: Informer, store_id: str, revision: int) -> None:
        if informer.store.store_id != store_id or informer.store.frontier < revision:
            raise StoreChanged(f"the store of {informer.type.name} was replaced while it was being primed")

    def _subscribe(self, type: CachedType[Any]) -> Subscription:
        return self._held[type.name].subscribe(self._wanted.indexes_of(type), self._on_index_failure(type.name))

    async def keep(self, show: Callable[[], object]) -> NoReturn:
        """Prime the types again whenever their data has become void, and call ``show`` in the same step."""
        while True:
            while self.void is None:
                await self._voided.park()
            void = self.subscriptions
            while True:
                try:
                    await self.prime()
                    break
                except StoreRolledBack:
                    await self._wait_accepted()
            for subscription in void.values():
                subscription.close()
            self.void = None
            show()
            for name, informer in self._held.items():
                self._note_stream(name, informer)
            self.primed_again.unpark_all()

    async def _wait_accepted(self) -> None:
        while rolled_back := [each for each in self._held.values() if each.rolled_back]:
            await rolled_back[0].stream_changed.park()

    async def follow(self, name: TypeName, informer: Informer) -> NoReturn:
        """Follow the state of a type's stream. Raises PermissionDenied if the server denies it."""
        while True:
            if informer.denied:
                raise PermissionDenied(f"{name} cannot be watched: {informer.denied}")
            self._note_stream(name, informer)
            await informer.stream_changed.park()

    def _note_stream(self, name: TypeName, informer: Informer) -> None:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return
        if self.void is None:
            try:
                subscription.check()
            except HeadwayError as error:
                self.void = error, trio.current_time()
                self._voided.unpark_all()
                for each in self._held:
                    self._stream_changed(each, error, 1)
        interruption = self.interruptions.note(name, informer)
        if self.void is None:
            why, failures = None, 0
            if interruption is not None and interruption.failures >= SHOWN_FAILURES:
                why, failures = Unavailable(f"{name} has no stream: {interruption.why}"), interruption.failures
            self._stream_changed(name, why, failures)

    def close(self) -> None:
        """End the subscriptions."""
        for subscription in self.subscriptions.values():
            subscription.close()


@dataclass(slots=True)
class Interruption:
    """An interruption of a type's stream.

    Attributes:
        why: the reason that the last stream ended.
        since: the time, on Trio's clock, at which the first one ended.
        failures: the number of streams that have ended since the type was complete.
    """

    why: str
    since: float
    failures: int = 0


class Interruptions:
    """The interruptions of several types."""

    def __init__(self) -> None:
        self._present: dict[TypeName, Interruption] = {}
        # The counts of the informer of each interrupted type, when they were last seen.
        self._seen: dict[TypeName, tuple[int, int]] = {}

    def note(self, type: TypeName, informer: Informer) -> Interruption | None:
        """Note the state of a type's stream. Return the interruption, or None if there is none."""
        present = self._present.get(type)
        if informer.cut_off is not None:
            why, since = informer.cut_off
            if present is None:
                present = self._present[type] = Interruption(why, since)
                self._seen[type] = 0, informer.received
            present.why = why
            failures, received = self._seen[type]
            # An informer counts anew once a stream has delivered something.
            present.failures += informer.failures - (failures if informer.received == received else 0)
            self._seen[type] = informer.failures, informer.received
        elif present is not None and not (informer.store.primed and informer.store.gathered):
            del self._present[type], self._seen[type]
            present = None
        return present

    def of(self, type: TypeName) -> Interruption | None:
        """Return the interruption of a type, as it was last noted."""
        return self._present.get(type)
