"""Python's garbage collector within an engine: off during the first pass, then rare and without the primed objects.

While the first copies from another engine arrive, only young objects are collected, and then they are excluded too.

The collector belongs to the process. If a process has several engines, it is off until the last of them has finished
its first pass.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import trio

from headway.errors import ControllerStopped
from headway.events import Report, RunStarted, receives_successes
from headway.run import Supervisor

LIMIT = 600.0
"""The time, in seconds, after which collection is on again even if a controller is not done. Failures leave garbage."""

RARELY = 50
"""The collections of younger objects between two full ones, where Python has 10. Stored resources stay, so a full
collection would traverse each of them again and again while their number grows, and find nothing."""

_NEVER = 1 << 30
"""The threshold of the oldest objects with which there is no full collection."""


class _Collector:
    """The changes that engines have made to the collector of this process."""

    def __init__(self) -> None:
        self._loads = 0
        self._threshold = 0
        self._usual = 0
        self._pauses = 0
        self._enabled = True
        self._users = 0
        self._frozen = False

    def pause(self) -> None:
        """Turn collection off."""
        if not self._pauses:
            self._enabled = gc.isenabled()
            gc.disable()
        self._pauses += 1

    def resume(self) -> None:
        """End a pause. After the last one, collection is as it was before the first."""
        self._pauses -= 1
        if not self._pauses and self._enabled:
            gc.enable()

    def begin_load(self) -> None:
        """Collect only young objects until `end_load`."""
        if not self._loads:
            youngest, young, self._threshold = gc.get_threshold()
            gc.set_threshold(youngest, young, _NEVER)
        self._loads += 1

    def end_load(self) -> None:
        """Allow full collections again, once every load has ended."""
        self._loads -= 1
        youngest, young, oldest = gc.get_threshold()
        if not self._loads and oldest == _NEVER:
            gc.set_threshold(youngest, young, self._threshold)

    def enter(self) -> None:
        """Begin to use `gc.freeze`, and rarer full collections."""
        if not self._users:
            youngest, young, self._usual = gc.get_threshold()
            gc.set_threshold(youngest, young, max(RARELY, self._usual))
            # `gc.freeze` would have frozen this object too. The number of frozen objects doesn't show it: Python 3.12
            # has hundreds.
            self._frozen = not any(each is sys.modules for each in gc.get_objects())
        self._users += 1

    def leave(self) -> None:
        """After the last use, unfreeze, unless the program had frozen objects before, and collect as before."""
        self._users -= 1
        if not self._users:
            youngest, young, oldest = gc.get_threshold()
            if oldest == max(RARELY, self._usual):
                gc.set_threshold(youngest, young, self._usual)
            if not self._frozen:
                gc.unfreeze()


_COLLECTOR = _Collector()


class GcFreeze:
    """A pause of collection, from the start of the block until `first_pass` has returned or the block has ended.

    Attributes:
        wanted: False if collection stays as it is. Then `first_pass` must not be called.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._paused = False
        self._started: set[str] = set()

    def __enter__(self) -> GcFreeze:
        if self.wanted:
            _COLLECTOR.enter()
            _COLLECTOR.pause()
            self._paused = True
        return self

    def __exit__(self, *_: object) -> None:
        if self.wanted:
            self._resume()
            _COLLECTOR.leave()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            _COLLECTOR.resume()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Avoid full collections within the block, and freeze the existing objects at its end.

        The block receives many objects that stay. Each time that their number has grown by a quarter, a full collection
        would traverse all of them.
        """
        if not self.wanted:
            yield
            return
        _COLLECTOR.begin_load()
        try:
            yield
        finally:
            _COLLECTOR.end_load()
            gc.freeze()

    def wrap(self, report: Report) -> Report:
        """Return a report that freezes the existing objects whenever a controller is primed for the first time."""
        if not self.wanted:
            return report

        def wrapped(event: object) -> None:
            if isinstance(event, RunStarted) and self._paused and event.controller not in self._started:
                self._started.add(event.controller)
                # Priming leaves no garbage, and a search for some would cause the very pause that freezing is to avoid.
                gc.freeze()
            report(event)

        wrapped.failures_only = not receives_successes(report)  # type: ignore[attr-defined]  # see `events.Report`
        return wrapped

    async def first_pass(self, supervisors: Sequence[Supervisor]) -> None:
        """Turn collection on, and freeze the existing objects, once the controllers are idle or stopped."""
        with trio.move_on_after(LIMIT):
            for each in supervisors:
                # It may be stopped for days. What it reconciles after that is like any later work.
                with suppress(ControllerStopped):
                    await each.wait_idle(1, each.run)
        # Garbage of users' reconciles is among the objects created since priming.
        gc.collect()
        gc.freeze()
        self._resume()
