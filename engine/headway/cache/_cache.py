"""The caches of several types that open when all are primed: a run's cache, and the base of a program's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any

import trio

from headway.base import async_block
from headway.cache._informer import Subscription
from headway.cache._isolation import Isolation
from headway.cache._projection import CachedType, Projection, range_of
from headway.cache._reader import CacheReader, Content, Query, not_a_type
from headway.cache._view import Pin, View
from headway.errors import InvalidArgument, NotPrimed, NotWatched
from headway.resource import Resource, ResourceId, ScopedType, TypeName, Within, is_form_of, pb


class CacheOfTypes(CacheReader):
    """A cache of several types. In addition to the methods of `CacheReader`, it has views of several types.

    Args:
        whose: the subject of errors, such as "controller accounts".
        types: the types, in the forms in which they are cached.
        queries: the queries that may be run.
    """

    # The managed type, if it is the cache of a controller.
    _manages: CachedType[Any] | None = None
    # The end of the error for a type that is not cached.
    _lacks = "doesn't watch"

    def __init__(self, whose: str, types: Iterable[CachedType[Any]], queries: Collection[Query[Any, Any]] = ()) -> None:
        self._whose = whose
        self._queries = queries
        self._declared = {type.name: type for type in types}
        self._subscriptions: Mapping[TypeName, Subscription] = {}
        self._views: set[View] = set()
        # The tasks that wait until the cache is primed, or until the types of a view have reached its revision.
        self._moved = trio.lowlevel.ParkingLot()

    # --- called by the owner ---

    def open(self, subscriptions: Mapping[TypeName, Subscription]) -> None:
        """Open the cache to reads, because it is primed. From then on, it shows the content of these subscriptions."""
        self._subscriptions = subscriptions
        self._moved.unpark_all()

    def close(self) -> None:
        """Close the cache. Later reads raise NotPrimed."""
        self._subscriptions = {}
        for view in self._views:
            view.close()
        # Wake all waiters so that they raise NotPrimed.
        self._moved.unpark_all()

    def find(self, resource: Resource[Any]) -> pb.Resource | None:
        """Return the cached message of this incarnation, or None if it is not cached as a whole.

        This does not count as a read of the reconcile.
        """
        subscription = self._subscriptions.get(resource.type.name)
        if subscription is None or isinstance(self._declared.get(resource.type.name), Projection):
            return None
        stored = subscription.find(resource.id.key)
        if stored is None or stored.id is None or resource.uid not in ("", stored.id.uid):
            return None
        return stored

    @property
    def newest(self) -> int:
        """The highest revision of any state that can be read; 0 before the cache is primed."""
        return max((each.store.newest for each in self._subscriptions.values()), default=0)

    # --- called by readers ---

    @property
    def primed(self) -> bool:
        """True if it can be read."""
        return bool(self._subscriptions)

    def range_of(self, type: CachedType[Any]) -> Within:
        """Return the filter of what is cached of a type."""
        return range_of(self._declared.get(type.name))

    def may_lack(self, id: ResourceId) -> bool:
        """Return True if a resource that is not cached may exist, because only a scope of its type is cached."""
        declared = self._declared.get(id.type)
        if not isinstance(declared, ScopedType):
            return False
        return bool(declared.range.metadata) or not declared.range.matches(id.key)

    @async_block
    async def view(self, *types: CachedType[Any]) -> AsyncIterator[View]:
        """``async with cache.view(TEAM, ACCOUNT) as view:`` reads these types as they were at one revision.

        Use a view for consistent reads with an ``await`` between them, because it does not change while it is open. It
        is never older than what the cache has shown before, including the controller's own writes, but later writes
        are not in it. An open view stores the old state of every resource that changes, so close it soon.

        Opening a view waits, if necessary, until each of the types has reached the highest revision known for any of
        them. It raises InvalidArgument if no type is given, and StoreChanged or StoreRolledBack if the data becomes
        void during the wait. NotWatched and NotPrimed are raised as for other reads.
        """
        if not types:
            raise InvalidArgument("a view needs at least one type: cache.view(TEAM, ACCOUNT)")
        asked = [(self._subscription(type), type.name) for type in types]
        subscriptions = {name: subscription for subscription, name in asked}
        await trio.lowlevel.checkpoint()
        while True:
            revision = max(each.store.newest for each in subscriptions.values())
            pins = {name: each.pin(revision, self._moved.unpark_all) for name, each in subscriptions.items()}
            try:
                if await self._reached(pins.values()):
                    view = View(self._whose, self._manages, self._queries, pins, revision)
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

    async def _reached(self, pins: Collection[Pin]) -> bool:
        """Wait until all pins are reached, and return True; return False if one never will be."""
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

    def _content(self, type: CachedType[Any]) -> Content:
        return self._subscription(type)

    def _subscription(self, type: CachedType[Any]) -> Subscription:
        try:
            subscription = self._subscriptions.get(type.name)
        except AttributeError:
            # Checked only here, because every read passes this point.
            raise not_a_type(type) from None
        declared = self._declared.get(type.name)
        if not is_form_of(declared, type):
            if declared is None:
                raise NotWatched(
                    f"{self._whose} {self._lacks} {type.name}: add it to `watches`, or read it with the client"
                )
            if isinstance(declared, Projection | ScopedType) or isinstance(type, Projection | ScopedType):
                raise NotWatched(f"{self._whose} caches {declared!r}, not {type!r}: read that")
        if subscription is None:
            raise NotPrimed(self._why_not())
        return subscription

    @abstractmethod
    def _why_not(self) -> str:
        """Return why the cache cannot be read now."""


class Cache(CacheOfTypes):
    """The cache of a reconciler, which opens when the run is primed and closes when it ends.

    A read sees every change that triggered the reconcile, for every type of the controller, and every write that the
    controller has had acknowledged. Reads never return an older state than before (C2, C4, C5).
    """

    _lacks = "neither manages nor watches"

    def __init__(
        self,
        controller: str,
        manages: CachedType[Any],
        watches: Iterable[CachedType[Any]],
        queries: Collection[Query[Any, Any]] = (),
        isolation: Isolation | None = None,
    ) -> None:
        super().__init__(f"controller {controller}", (manages, *watches), queries)
        self._controller = controller
        self.isolation = isolation
        self.manages = self._manages = manages
        self._not_yet = "is not primed yet"
        # True if it will be primed without the waiting task. An initialiser would wait for itself.
        self._waitable = False

    # --- called by the run ---

    def begin_priming(self) -> None:
        """Note that the initialiser has ended, so that waiting for the cache makes sense."""
        self._waitable = True

    def open(self, subscriptions: Mapping[TypeName, Subscription]) -> None:
        """Open the cache to reads, because the run is primed."""
        self._waitable = True
        super().open(subscriptions)

    def close(self) -> None:
        """Close the cache, because the run has ended. Later reads raise NotPrimed."""
        self._waitable = False
        self._not_yet = "is closed: its run has ended"
        super().close()

    # --- called by readers ---

    async def wait_primed(self) -> None:
        """Wait until the cache can be read.

        Raises NotPrimed if the wait would never end. This is so in the initialiser, which runs before priming, and
        after the run's end.
        """
        await trio.lowlevel.checkpoint()
        while not self.primed and self._waitable:
            await self._moved.park()
        if not self.primed:
            raise NotPrimed(self._why_not())

    def _why_not(self) -> str:
        hint = "" if self._waitable else "; an initialiser runs before it is primed, and reads with rt.client"
        return f"the cache of {self._controller} {self._not_yet}{hint}"
