"""The controllers that an operator has paused, as one process knows them from the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from headway.base import retry_delay, wall_time
from headway.cache import Informers
from headway.errors import HeadwayError
from headway.events import Paused, Report, Resumed
from headway.queue import WaitingQueue
from headway.reconcile import Reason
from headway.resource import PAUSE, Key, Resource, created_at, pause_name
from headway.run._priming import wait_primed

UNREADABLE = "the payload of its pause does not decode"
"""The reason of a pause that this program cannot read."""


class Pauses:
    """The pauses of a store. Call `follow` in a task; every run asks here.

    A pause stays in force while the store cannot be read. One that does not decode is reported, and in force, too: its
    name says which controller an operator has paused.
    """

    def __init__(self, informers: Informers) -> None:
        self._informer = informers.informer_for(PAUSE)
        # By the names of the pauses.
        self._reasons: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._changed = trio.lowlevel.ParkingLot()

    async def follow(self) -> None:
        """Follow the store's pauses, until canceled."""
        failures = 0
        while True:
            subscription = self._informer.subscribe((), lambda *_: None)
            try:
                while True:
                    self._read()
                    await subscription.next()
                    failures = 0
            except HeadwayError:
                # The store was replaced or rolled back. The informer reports it, and begins anew.
                await trio.sleep(retry_delay(failures))
                failures += 1
            finally:
                subscription.close()

    def _read(self) -> None:
        store = self._informer.store
        if not store.primed:
            # Keep what was known of the store before.
            return
        reasons, since = dict[str, str](), dict[str, float]()
        for key, message in store.entries.items():
            pause = Resource(PAUSE, message)
            if not pause.is_deleting:
                undecodable = self._informer.is_undecodable(key, message)
                reasons[pause.name] = UNREADABLE if undecodable else pause.data.reason
                since[pause.name] = created_at(pause.id.uid)
        self._since = since
        if reasons != self._reasons:
            self._reasons = reasons
            self._changed.unpark_all()

    async def wait_known(self, stall_limit: float) -> None:
        """Wait until the pauses are known. Until then, a run must not reconcile.

        The stream may be older than the run, and a pause that it has not delivered yet comes as any other change does.

        Raises PrimingStalled if nothing arrives for ``stall_limit`` seconds, and the errors of a store that was
        replaced or rolled back.
        """
        await wait_primed(self._informer, 0, stall_limit)
        self._read()

    async def wait_read(self, revision: int) -> None:
        """Wait until the pauses are known up to a revision, or until the store is replaced or rolled back."""
        with suppress(HeadwayError):
            await self._informer.wait_complete(revision)
        self._read()

    def reason(self, controller: str) -> str | None:
        """Return why a controller is paused, which may be empty; None if it is not."""
        return self._reasons.get(pause_name(controller))

    def seconds(self, controller: str) -> float:
        """Return for how long a controller has been paused, on the clock of who paused it; 0 if it is not."""
        since = self._since.get(pause_name(controller), 0.0)
        return max(wall_time() - since, 0.0) if since else 0.0

    async def each_change(self, apply: Callable[[], None]) -> None:
        """Call ``apply`` now and after every change, until canceled."""
        while True:
            apply()
            await self._changed.park()


def apply_pause(controller: str, reason: str | None, queue: WaitingQueue[Key, Reason], report: Report) -> None:
    """Pause a run's queue, or resume it if ``reason`` is None. Keys are still added, and running reconciles finish."""
    if reason is None:
        queue.release(apply_pause)
        report(Resumed(controller, queue.statistics().ready))
    else:
        queue.hold(apply_pause)
        report(Paused(controller, reason))
