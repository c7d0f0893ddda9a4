"""The caches and subscriptions that a program has open in one life of a process, and whether they show everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from headway.api import Code
from headway.engine import Engine
from headway.errors import HeadwayError
from headway.notify import PrimedCache
from headway.protobuf import copy_message
from headway.resource import Kind, Position
from headway.subscription import Commits, Reached, SnapshotComplete, SubscriptionPosition
from headway.testing.simulation.world._wire import Opened, Wire, WireBroken, WireStream

_PATIENCE = 120.0
"""The seconds after which a subscription counts as one that the program does not read: longer than any delay."""
_AGAIN = 1.0


class Readers:
    """The caches and subscriptions of a program in one life of a process, apart from the caches of its controllers."""

    def __init__(self) -> None:
        self._caches: set[PrimedCache] = set()
        # The number of caches that are being opened.
        self._opening = 0
        # The last position of each open stream of a subscription; None before the first.
        self._streams: dict[SubscriptionStream, SubscriptionPosition | None] = {}
        # The history before this revision is lost.
        self._kept_from = 0

    def watch_caches(self, engine: Engine) -> None:
        """Note every cache that is opened in an engine."""
        bare = engine.open_cache

        @asynccontextmanager
        async def open_cache(**options: Any) -> AsyncIterator[PrimedCache]:
            with self._being_opened() as opened:
                async with bare(**options) as cache:
                    opened()
                    self._caches.add(cache)
                    try:
                        yield cache
                    finally:
                        self._caches.discard(cache)

        engine.open_cache = open_cache  # type: ignore[method-assign]  # for this engine alone

    @contextmanager
    def _being_opened(self) -> Iterator[Callable[[], None]]:
        """Count a cache that is being opened, until the function is called or the block ends."""
        self._opening += 1
        over = False

        def opened() -> None:
            nonlocal over
            self._opening -= not over
            over = True

        try:
            yield opened
        finally:
            opened()

    def note(self, stream: SubscriptionStream, position: SubscriptionPosition | None) -> None:
        """Note the position of a subscription's stream."""
        self._streams[stream] = position

    def lose_history(self, kinds: Collection[Kind], revision: int) -> None:
        """Break the subscriptions of these kinds, and let none resume from before a revision."""
        self._kept_from = revision
        for stream in self._streams:
            if not stream.kinds.isdisjoint(kinds):
                stream.cut()

    def admitted(self, request: Any) -> Any:
        """Return a request to subscribe, as the server sees it: a position before lost history fits nothing."""
        after = request.resume_after
        if after is None or after.store is None or after.store.revision >= self._kept_from:
            return request
        lost = copy_message(request)
        lost.resume_after.selection = "before lost history"
        return lost

    def forget(self, stream: SubscriptionStream) -> None:
        """Note that a subscription's stream has ended."""
        self._streams.pop(stream, None)

    async def wait_shown(self, position: Position, count_subscriptions: Callable[[], int]) -> None:
        """Wait until all of them show a position of the store, and the program waits for the next change.

        A subscription that the program does not read is not waited for.

        Args:
            count_subscriptions: returns the number of open subscriptions, with a stream or without.
        """
        # A function that has just been called may be about to open one.
        await wait_all_tasks_blocked()
        with trio.move_on_after(_PATIENCE):
            while self._opening:  # noqa: ASYNC110  # several caches may be opened
                await trio.sleep(_AGAIN)
        subscriptions = count_subscriptions()
        if not self._caches and not subscriptions:
            return
        for cache in list(self._caches):
            try:
                await cache.wait_for(position)
            except HeadwayError:
                # It was closed, or its store was replaced.
                await trio.sleep(_AGAIN)
        with trio.move_on_after(_PATIENCE):
            while len(self._current(position)) < subscriptions:  # noqa: ASYNC110  # several streams may change
                await trio.sleep(_AGAIN)
        await wait_all_tasks_blocked()

    def _current(self, position: Position) -> list[SubscriptionPosition]:
        """Return the positions of the streams that have reached a position of the store."""
        return [
            at
            for at in self._streams.values()
            if at is not None
            and (
                at.store is None or (at.store.store_id == position.store_id and at.store.revision >= position.revision)
            )
        ]


class SubscriptionStream(WireStream):
    """A stream of a subscription, whose positions `Readers` knows.

    Attributes:
        kinds: the kinds that it shows.
    """

    def __init__(self, wire: Wire, opened: Opened, readers: Readers, request: Any) -> None:
        super().__init__(wire, opened, self._note_item)
        self._readers = readers
        types = [each.type for each in request.subjects if each.type is not None]
        self.kinds = frozenset((type.group, type.kind) for type in types)
        self._is_cut = False
        self._reading = trio.CancelScope()

    def cut(self) -> None:
        """Break the stream."""
        self._is_cut = True
        self._reading.cancel()

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._readers.note(self, None)
        return await super().__aenter__()

    async def __aexit__(self, *why: Any) -> bool | None:
        self._readers.forget(self)
        return await super().__aexit__(*why)

    async def __anext__(self) -> Any:
        if not self._is_cut:
            with trio.CancelScope() as self._reading:
                item = await super().__anext__()
                # What has arrived in the same turn as the cut is lost with it.
                if not self._is_cut:
                    return item
        await trio.lowlevel.checkpoint()
        raise WireBroken(Code.UNAVAILABLE, "the connection broke")

    def _note_item(self, item: object) -> None:
        if isinstance(item, Commits):
            self._readers.note(self, item.commits[-1].position)
        elif isinstance(item, SnapshotComplete | Reached):
            self._readers.note(self, item.position)
