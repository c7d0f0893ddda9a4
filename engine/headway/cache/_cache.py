"""A run's cache: opened when the run is primed, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway.cache._cached_type import CachedType
from headway.cache._isolation import Isolation
from headway.cache._projection import Projection
from headway.cache._query import Query
from headway.cache._reader import CacheReader, Held
from headway.cache._subscription import Subscription
from headway.cache._view import Pin, View
from headway.errors import InvalidArgument, NotPrimed, NotWatched
from headway.resource import TypeName


class Cache(CacheReader):
    """What a reconciler reads: `CacheReader`, and views of several types at one revision.

    Reads see every change that triggered the reconcile, of every type of the controller, and every write that the
    controller has had acknowledged; they never go back (C2, C4, C5).
    """

    def __init__(
        self,
        controller: str,
        manages: CachedType[Any],
        watches: Iterable[CachedType[Any]],
        queries: Collection[Query[Any, Any]] = (),
        isolation: Isolation | None = None,
    ) -> None:
        self._controller = controller
        self.isolation = isolation
        self.manages = manages
        self._queries = queries
        self._declared = {type.name: type for type in (manages, *watches)}
        self._subscriptions: Mapping[TypeName, Subscription] = {}
        self._views: set[View] = set()
        self._not_yet = "is not primed yet"
        # Whether it will be primed if one waits; an initialiser would wait for itself.
        self._waitable = False
        # Holds those who wait for the cache to be primed, or for a view's types to have reached its revision.
        self._moved = trio.lowlevel.ParkingLot()

    # --- for the run ---

    def begin_priming(self) -> None:
        """The initialiser is done: who waits from now on waits for what is on its way."""
        self._waitable = True

    def open(self, subscriptions: Mapping[TypeName, Subscription]) -> None:
        """The run is primed: let reads through."""
        self._subscriptions = subscriptions
        self._waitable = True
        self._moved.unpark_all()

    def close(self) -> None:
        """The run has ended: reads raise NotPrimed from now on."""
        self._subscriptions = {}
        self._waitable = False
        self._not_yet = "is not there any more: its run has ended"
        for view in self._views:
            view.close()
        # Who waits is woken to be told so.
        self._moved.unpark_all()

    @property
    def newest(self) -> int:
        """No state that can be read is above this revision; 0 before the cache is primed."""
        return max((each.gate.newest for each in self._subscriptions.values()), default=0)

    # --- for its readers ---

    @property
    def primed(self) -> bool:
        """Whether it can be read: from the run's first reconcile, or source, to its end."""
        return bool(self._subscriptions)

    async def wait_primed(self) -> None:
        """Wait until it can be read.

        Raises NotPrimed when it won't be: in the initialiser, which runs before, and after the run's end.
        """
        await trio.lowlevel.checkpoint()
        while not self.primed and self._waitable:
            await self._moved.park()
        if not self.primed:
            raise NotPrimed(self._why_not())

    @asynccontextmanager
    async def view(self, *types: CachedType[Any]) -> AsyncIterator[View]:
        """``async with rt.cache.view(TEAM, ACCOUNT) as view:`` reads these types as they were at one revision.

        Whatever arrives meanwhile, the view stays as it is, across waiting too. It is not behind what the cache showed
        when it was asked for, the controller's own writes included; what is written later isn't in it. While it is
        open, the old state of what changes is kept, so don't hold it for long.

        Opening it waits until each of the types has reached the highest revision that is known of any of them: at
        once, where all do; else as long as that takes to arrive. Raises InvalidArgument for no types, NotWatched,
        NotPrimed, and StoreChanged or StoreRolledBack when the data becomes void meanwhile.
        """
        if not types:
            raise InvalidArgument("a view is of some types: rt.cache.view(TEAM, ACCOUNT)")
        subscriptions = {type.name: self._subscription(type) for type in types}
        await trio.lowlevel.checkpoint()
        while True:
            revision = max(each.gate.newest for each in subscriptions.values())
            pins = {name: each.pin(revision, self._wake) for name, each in subscriptions.items()}
            try:
                if await self._reached(pins.values()):
                    view = View(self._controller, self.manages, self._queries, pins, revision)
                    self._views.add(view)
                    try:
                        yield view
                    finally:
                        self._views.discard(view)
                        view.close()
                    return
            finally:
                for name, pin in pins.items():
                    subscriptions[name].unpin(pin)

    def _wake(self) -> None:
        self._moved.unpark_all()

    async def _reached(self, pins: Collection[Pin]) -> bool:
        """Wait until all pins are reached (True) or one never will be (False)."""
        while True:
            for pin in pins:
                if pin.failure is not None:
                    raise pin.failure
            if not self.primed:
                raise NotPrimed(self._why_not())
            if any(pin.missed for pin in pins):
                return False
            if all(pin.reached for pin in pins):
                return True
            await self._moved.park()

    def _held(self, type: CachedType[Any]) -> Held:
        return self._subscription(type)

    def _subscription(self, type: CachedType[Any]) -> Subscription:
        try:
            subscription = self._subscriptions.get(type.name)
        except AttributeError:
            # Asked for only now: every read comes by here.
            raise InvalidArgument(f"a cache is read by a type, as app.type(...) returned it, not by {type!r}") from None
        declared = self._declared.get(type.name)
        if declared is not type:
            if declared is None:
                raise NotWatched(
                    f"controller {self._controller} neither manages nor watches {type.name}: add it to `watches`, "
                    "or read it by the client"
                )
            if isinstance(declared, Projection) or isinstance(type, Projection):
                raise NotWatched(f"controller {self._controller} has {declared!r} of it, not {type!r}: read that")
        if subscription is None:
            raise NotPrimed(self._why_not())
        return subscription

    def _why_not(self) -> str:
        hint = "" if self._waitable else "; an initialiser runs before it, and reads by rt.client"
        return f"the cache of {self._controller} {self._not_yet}{hint}"
