"""Python's garbage collector beside an engine: off until the first pass is over, and then without what was primed.

The collector belongs to the process. Several engines of a process keep it off together, until the last of them has
ended its first pass.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from headway.controller import Supervisor
from headway.events import Report, RunStarted, hears_successes

LIMIT = 600.0
"""Seconds after which collection is on again, even if some controller is not done: failed reconciles leave garbage."""


class _Collector:
    """What engines have done to the collector of this process."""

    def __init__(self) -> None:
        self._pauses = 0
        self._enabled = True
        self._users = 0
        self._frozen = False

    def pause(self) -> None:
        """Switch collection off."""
        if not self._pauses:
            self._enabled = gc.isenabled()
            gc.disable()
        self._pauses += 1

    def resume(self) -> None:
        """End a pause. After the last one collection is as it was before the first."""
        self._pauses -= 1
        if not self._pauses and self._enabled:
            gc.enable()

    def enter(self) -> None:
        """Begin to use `gc.freeze`."""
        if not self._users:
            # `gc.freeze` would have frozen this as well. A count says less: Python 3.12 has hundreds of its own.
            self._frozen = not any(each is sys.modules for each in gc.get_objects())
        self._users += 1

    def leave(self) -> None:
        """Unfreeze when nobody uses it any more, unless the program had frozen objects before."""
        self._users -= 1
        if not self._users and not self._frozen:
            gc.unfreeze()


_COLLECTOR = _Collector()


class GcFreeze:
    """Collection is off from the beginning of the block until `first_pass` has returned, or the block has ended."""

    def __init__(self) -> None:
        self._paused = False
        self._started: set[str] = set()

    def _pause(self) -> None:
        self._paused = True
        _COLLECTOR.pause()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            _COLLECTOR.resume()

    def hearing(self, report: Report) -> Report:
        """Return a report that freezes what is in memory whenever a controller is primed for the first time."""

        def heard(event: object) -> None:
            if isinstance(event, RunStarted) and self._paused and event.controller not in self._started:
                self._started.add(event.controller)
                # Priming leaves no garbage. To look for some would be the very stop that this is to spare.
                gc.freeze()
            report(event)

        heard.failures_only = not hears_successes(report)  # type: ignore[attr-defined]  # see `events.Report`
        return heard

    async def first_pass(self, supervisors: Sequence[Supervisor]) -> None:
        """Switch collection on, and freeze what is in memory, when the controllers have nothing left to do."""
        with trio.move_on_after(LIMIT):
            for each in supervisors:
                await each.wait_idle(1)
        # Garbage that users' reconciles have left is among the objects that were made since priming.
        gc.collect()
        gc.freeze()
        self._resume()


@asynccontextmanager
async def gc_freezing(wanted: bool) -> AsyncIterator[GcFreeze | None]:
    """Keep collection off in the block, up to the end of its `GcFreeze.first_pass`; None unless it is wanted."""
    if not wanted:
        yield None
        return
    freeze = GcFreeze()
    _COLLECTOR.enter()
    freeze._pause()
    try:
        yield freeze
    finally:
        freeze._resume()
        _COLLECTOR.leave()
