"""The patrol of a type's streams. It asks the store itself for what no stream shows: that it lags, or has lost data."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from headway.cache import Informer
from headway.errors import StoreChanged, StoreRolledBack, Unavailable
from headway.events import Report, StreamEnded
from headway.informers._stream import StreamMachine
from headway.resource import Position


class Patrol:
    """The patrol of the streams that feed one informer.

    Args:
        linearizable: reads the store's current position, as in `Follower`.
        lag_limit: a stream is left if it is silent for this many seconds while the store advances.

    Attributes:
        advances: the number of items that brought a stream further: a higher frontier, or a part of something larger.
    """

    def __init__(
        self,
        informer: Informer,
        report: Report,
        linearizable: Callable[[Position | None], Awaitable[Position]],
        lag_limit: float,
    ) -> None:
        self._type = informer.type
        self._informer = informer
        self._report = report
        self._linearizable = linearizable
        self._lag_limit = lag_limit
        self.advances = 0

    @asynccontextmanager
    async def patience(self, machine: StreamMachine) -> AsyncIterator[trio.CancelScope]:
        """Provide a scope that is canceled if the stream brings nothing new although the store has advanced.

        The cached data cannot show this for the first stream, nor if all streams lag together.
        """
        patience = trio.CancelScope()
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                self._patrol_stream, machine, patience, name=f"patrolling the stream of {self._type.name}"
            )
            try:
                yield patience
            except Exception as error:  # noqa: BLE001  # raised again below, outside of the nursery's group
                raised = error
            nursery.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _patrol_stream(self, machine: StreamMachine, patience: trio.CancelScope) -> None:
        while True:
            advances = self.advances
            await trio.sleep(self._lag_limit / 2)
            if self.advances > advances:
                continue
            known = 0
            with trio.move_on_after(self._lag_limit), contextlib.suppress(Unavailable):
                known = (await self._linearizable(None)).revision
            # A bookmark may be on its way. A stream that sends one only if it is asked is asked here.
            self._informer.reach(known)
            await trio.sleep(self._lag_limit / 2)
            # Items alone do not count as progress: a server that stands still may repeat its bookmark forever.
            if self.advances == advances and machine.frontier < known:
                patience.cancel()

    async def check_not_rolled_back(self, failures: int, *, refused: bool = False) -> None:
        """Distinguish a server that lags from a store that has lost acknowledged data. Raise an error for the latter.

        ``failures`` counts the streams that have failed in a row. ``refused`` is True if a server answered that its
        store never had the known position. That server may have a copy of the store. The store itself is therefore
        asked as well, since it may have grown past that position.
        """
        known = self._informer.store.known
        if known is None:
            # Nothing was cached that the store could have lost.
            return
        try:
            with trio.move_on_after(self._lag_limit):
                here = await self._linearizable(None)
                if here.store_id != known.store_id:
                    raise StoreChanged(f"the store is now {here.store_id}, no longer {known.store_id}")
                if here.revision < known.revision:
                    raise StoreRolledBack(
                        f"store {here.store_id} is at revision {here.revision}, "
                        f"but has delivered changes up to {known.revision} before"
                    )
                if refused:
                    await self._linearizable(known)
        except Unavailable as error:
            self._report(StreamEnded(self._type.name, str(error), failures))
