"""The cache of a program that runs no controller: it is primed as long as it can be read, over every restore."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import trio
from typing_extensions import override

from headway.base import BoundedReport, async_block, block_nursery, check_trio, current_run, repr_text
from headway.cache import CachedType, CacheOfTypes, Content, Informer, OnFailure, Pin, View
from headway.errors import HeadwayError, InvalidArgument, NotPrimed, StoreChanged, Unavailable
from headway.events import IndexFailed, Report
from headway.informers import Informers
from headway.notify._checks import Wanted
from headway.notify._cuts import Cuts
from headway.notify._fetches import Answers
from headway.notify._keeper import SHOWN_FAILURES, Keeper
from headway.notify._status import CacheStatus
from headway.notify._updates import Updates
from headway.resource import Key, Position, Resource, TypeName
from headway.run import type_statuses

_ASK_AGAIN = 1.0


class PrimedCache(CacheOfTypes):
    """A cache of a program. You get one from `headway.open_cache` or `Engine.open_cache`.

    It has the reads of a reconciler's cache, with views of several types. Reads never wait, and never return an older
    state than before. When the store has been replaced by another one, or restored and accepted, the cache changes over
    to its content in one step, as soon as it has all of it.
    """

    def __init__(
        self,
        wanted: Wanted,
        informers: Informers,
        held: Mapping[TypeName, Informer],
        nursery: trio.Nursery,
        report: Report,
        accept_store: Callable[[], bool],
    ) -> None:
        super().__init__("this cache", wanted.types, wanted.queries)
        self.isolation = informers.isolation
        self._home = current_run()
        self._wanted = wanted
        self._informers = informers
        self._held = held
        self._nursery = nursery
        self._accept_store = accept_store
        self._bounded = BoundedReport(report)
        self._cuts = Cuts(self, wanted.types, self._position_of, self._age)
        self._keeper = Keeper(wanted, informers, held, self._report_indexes, self._note_stream)
        self._answers = Answers(self._cuts, nursery)
        # The open blocks of notifications, and the waits for a revision. The end of the cache ends all of them.
        self._notified: set[Updates] = set()
        self._waits: set[trio.CancelScope] = set()
        # The ids of the stores that it has shown before the present one.
        self._left: set[str] = set()
        # While the data of a type is void, the states of all types when that was noticed. Another type may not have
        # noticed it yet, and may even follow the restored store, if it had seen nothing that the store has lost.
        self._frozen: dict[TypeName, Pin] = {}

    # --- called by the owner ---

    async def begin(self) -> None:
        """Wait until the cache is primed, and keep it so until the nursery ends."""
        for name, informer in self._held.items():
            self._nursery.start_soon(self._keeper.follow, name, informer, name=f"following the stream of {name}")
        await self._keeper.prime()
        self._show()
        self._nursery.start_soon(self._keeper.keep, self._show, name="keeping a cache primed")
        self._nursery.start_soon(self._cuts.run, name="the notifications of a cache")
        self._nursery.start_soon(self._bounded.report_rest, name="reporting the rest")

    def _show(self) -> None:
        """Show the data that the keeper has primed."""
        if self._subscriptions:
            self._left.add(self._store_id)
        for name, pin in self._frozen.items():
            self._subscriptions[name].unpin(pin)
        self._frozen = {}
        self._cuts.replaced()
        for name, subscription in self._keeper.subscriptions.items():
            subscription.listener = self._cuts.listener(name)
        self.open(self._keeper.subscriptions)
        self._left.discard(self._store_id)

    def _note_stream(self, type: TypeName, error: HeadwayError | None, failures: int) -> None:
        if self._keeper.void is not None and not self._frozen:
            self._frozen = {
                name: each.pin(each.store.newest, lambda: None) for name, each in self._subscriptions.items()
            }
            self._cuts.freeze()
        self._cuts.note_error(type, error, failures)

    @override
    @async_block
    async def view(self, *types: CachedType[Any]) -> AsyncIterator[View]:
        """``async with cache.view(TEAM, ACCOUNT) as view:``, as for a controller's cache.

        While the cache is primed anew after a restore, the view has the types as they were before.
        """
        if not (types and self._frozen):
            async with super().view(*types) as view:
                yield view
            return
        await trio.lowlevel.checkpoint()
        for type in types:
            # Raises for a type that is not cached.
            self._subscription(type)
        pins = {type.name: self._frozen[type.name] for type in types}
        view = View(self._whose, None, self._queries, pins, max(pin.revision for pin in pins.values()))
        self._views.add(view)
        try:
            yield view
        finally:
            self._views.discard(view)
            view.close()

    @override
    def _content(self, type: CachedType[Any]) -> Content:
        content = self._subscription(type)
        return self._frozen.get(type.name, content)

    @override
    def close(self) -> None:
        super().close()
        self._cuts.close()
        self._keeper.close()
        for wait in self._waits:
            wait.cancel()
        for updates in self._notified:
            updates.end_with_cache()

    # --- called by readers ---

    async def wait_for(self, position: Position | Resource[Any] | int) -> None:
        """Wait until every type is complete up to a position.

        Pass a position, a resource as a client's write has returned it, or a revision of the store that the cache
        shows. Raises StoreChanged if the position belongs to a store that the cache has left, also if that happens
        during the wait, and StoreRolledBack if the store was rolled back and may never reach it.
        """
        store_id, revision = _wanted_position(position)
        self._check_call("wait_for")
        await trio.lowlevel.checkpoint()
        with trio.CancelScope() as wait:
            self._waits.add(wait)
            try:
                if store_id:
                    await self._wait_for_store(store_id)
                for name, subscription in list(self._subscriptions.items()):
                    if subscription.reach(revision) < revision:
                        subscription.check()
                        await self._held[name].wait_complete(revision)
            finally:
                self._waits.remove(wait)
        if not self.primed:
            raise NotPrimed(self._why_not())

    async def _wait_for_store(self, store_id: str) -> None:
        """Wait until the cache shows this store, if it is not one that it has left."""
        while self.primed and (here := self._store_id) != store_id:
            foreign = StoreChanged(f"the position belongs to store {store_id}, but the cache shows store {here}")
            if store_id in self._left:
                raise foreign
            if self._keeper.void is None:
                # It may be the store that has just taken the place of the cache's own.
                try:
                    there = await self._informers.linearizable(self._wanted.types[0])
                except Unavailable:
                    await trio.sleep(_ASK_AGAIN)
                    continue
                if there.store_id == here and self._store_id == here:
                    raise foreign
                if self._store_id != here:
                    continue
            await self._keeper.primed_again.park()

    @async_block
    async def notify(self) -> AsyncIterator[Updates]:
        """``async with cache.notify() as updates:`` receives what changes in the cache, or in the program's sources.

        Create handles with the methods of `updates`, and iterate over it. The end of the block closes the handles.
        """
        self._check_call("notify")
        await trio.lowlevel.checkpoint()
        updates = Updates(self, self._cuts, self._answers)
        self._notified.add(updates)
        try:
            yield updates
        finally:
            self._notified.remove(updates)
            updates.close()

    def status(self) -> CacheStatus:
        """Return how current the cache is. Never blocks."""
        if not self.primed:
            raise NotPrimed(self._why_not())
        now = trio.current_time()
        informers = self._held.values()
        types = type_statuses(informers, 0, now)
        present = ((name, self._keeper.interruptions.of(name)) for name in self._held)
        cut_off = [(name, each) for name, each in present if each is not None and each.failures >= SHOWN_FAILURES]
        void = self._keeper.void
        return CacheStatus(
            position=self.position,
            lag=max(each.lag for each in types),
            cut_off="; ".join(f"{name}: {each.why}" for name, each in cut_off),
            cut_off_seconds=max(self._age(name) for name in self._held),
            problem=None if void is None else void[0],
            types=types,
        )

    @property
    def position(self) -> Position:
        """The position up to which every type is complete."""
        if not self.primed:
            raise NotPrimed(self._why_not())
        return self._position_of(min(each.revision for each in self._subscriptions.values()))

    def accept_store(self) -> bool:
        """Accept the present state of a store that was rolled back. This is an operator's decision.

        If the store was rolled back, return True. The cache then changes over to the store's content. Otherwise do
        nothing and return False. In an engine's process, this accepts the store for the whole engine.
        """
        return self._accept_store()

    # --- parts ---

    def _check_call(self, what: str) -> None:
        if not self.primed:
            raise NotPrimed(self._why_not())
        check_trio(what, self._home)

    @property
    def _store_id(self) -> str:
        return next(iter(self._subscriptions.values())).store.store_id

    def _position_of(self, revision: int) -> Position:
        at = next(iter(self._subscriptions.values())).store.position
        return Position(at.store_id, at.session, revision)

    def _age(self, name: TypeName) -> float:
        interruption, void = self._keeper.interruptions.of(name), self._keeper.void
        since = [*([] if interruption is None else [interruption.since]), *([] if void is None else [void[1]])]
        return trio.current_time() - min(since) if since else 0.0

    def _report_indexes(self, type: TypeName) -> OnFailure:
        def report(index: str, key: Key, error: BaseException) -> None:
            whose = "open_cache"
            self._bounded(IndexFailed, of=(type, index), controller=whose, index=index, type=type, key=key, error=error)

        return report

    @override
    def _why_not(self) -> str:
        return "this cache is closed: its block has ended"


def _wanted_position(given: object) -> tuple[str, int]:
    """Return the store id, empty for any, and the revision of an argument of `wait_for`. Raises InvalidArgument."""
    if isinstance(given, Position):
        return given.store_id, given.revision
    if isinstance(given, Resource) and given.version:
        return "", int(given.version)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return "", given
    raise InvalidArgument(
        "wait_for() expects a position, a revision, or a resource as a client's write has returned it, "
        f"not {repr_text(given)}"
    )


@asynccontextmanager
async def open_primed(
    wanted: Wanted, informers: Informers, report: Report, accept_store: Callable[[], bool]
) -> AsyncIterator[PrimedCache]:
    """Open a cache, which is primed when the block begins. The wanted parts must have been checked."""
    with ExitStack() as stack:
        held = {type.name: stack.enter_context(informers.held(type)) for type in wanted.types}
        async with block_nursery() as nursery:
            cache = PrimedCache(wanted, informers, held, nursery, report, accept_store)
            try:
                await cache.begin()
                yield cache
            finally:
                cache.close()
