"""Python's garbage collector within an engine: no full collection during a load, and then rare ones without its result.

A load is the first pass of the controllers, or the first copy from another engine. Its objects stay, so full
collections would traverse them again and again while their number grows. Young objects are collected as always.

The collector belongs to the process, and so to the program. What the program sets remains:

1. Only the threshold of full collections changes, and only until the last engine ends.
2. Objects are frozen (`gc.freeze`) only after a load so large that a full collection is due, and neither while the
   program has turned collection off nor if it has frozen objects itself. The end of an engine unfreezes all.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import trio

from headway.errors import ControllerStopped
from headway.events import Report, RunStarted, receives_successes
from headway.run import Supervisor

LIMIT = 600.0
"""The time, in seconds, after which the first pass counts as done even if a controller is not. Failures leave
garbage."""

RARELY = 50
"""The collections of younger objects between two full ones, where Python has 10. Stored resources stay, so a full
collection would traverse each of them again and again while their number grows, and find nothing."""

_NEVER = 1 << 30
"""The threshold of the oldest objects with which there is no full collection."""


class _Collector:
    """The changes that engines have made to the collector of this process."""

    def __init__(self) -> None:
        self._users = 0
        self._loads = 0
        # The thresholds of full collections before the first user, and the one that was set last.
        self._usual = 0
        self._set = 0
        self._frozen = False
        # The number of frozen objects when the program was seen to have frozen its own.
        self._of_program = 0

    def enter(self) -> None:
        """Begin to use the collector."""
        if not self._users:
            self._usual = self._set = gc.get_threshold()[2]
        self._users += 1

    def leave(self) -> None:
        """Unfreeze, because what has ended leaves garbage. After the last use, collect as before."""
        self._users -= 1
        if self._frozen:
            self._frozen = False
            gc.unfreeze()
        if not self._users:
            self._change(self._usual)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Collect only young objects within the block. Full collections are rarer after it."""
        if not self._loads:
            self._change(_NEVER)
        self._loads += 1
        try:
            yield
        finally:
            self._loads -= 1
            if not self._loads:
                self._change(max(RARELY, self._usual))

    def freeze(self, *, collect: bool = False) -> None:
        """If a full collection is due, exclude the existing objects from collections. ``collect`` does it before."""
        # After so many collections of young objects, Python would have made a full one if it had been allowed to.
        if gc.get_count()[2] <= self._usual or not gc.isenabled():
            return
        if self._frozen or not self._program_froze():
            if collect:
                gc.collect()
            gc.freeze()
            self._frozen = True

    def _program_froze(self) -> bool:
        """Return True if the program has frozen objects itself."""
        # The number alone doesn't show it: Python 3.12 has hundreds. It falls as such objects are freed, and to nearly
        # nothing when the program unfreezes them. Until then the answer stays, because each look traverses all objects.
        number = gc.get_freeze_count()
        if not 0 < self._of_program < 2 * number:
            # `gc.freeze` would have frozen this object too.
            if any(each is sys.modules for each in gc.get_objects()):
                return False
            self._of_program = number
        return True

    def _change(self, threshold: int) -> None:
        """Set the threshold of full collections, unless the program has set another one meanwhile."""
        youngest, young, oldest = gc.get_threshold()
        if oldest == self._set:
            gc.set_threshold(youngest, young, threshold)
            self._set = threshold


_COLLECTOR = _Collector()


class GcFreeze:
    """A load from the start of the block until `first_pass` has returned or the block has ended.

    Attributes:
        wanted: False if collection stays as it is. Then `first_pass` must not be called.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._first = ExitStack()
        self._started: set[str] = set()

    def __enter__(self) -> GcFreeze:
        if self.wanted:
            _COLLECTOR.enter()
            self._first.enter_context(_COLLECTOR.load())
        return self

    def __exit__(self, *_: object) -> None:
        if self.wanted:
            self._first.close()
            _COLLECTOR.leave()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Avoid full collections within the block, and freeze the existing objects at its end.

        The block receives many objects that stay. Each time that their number has grown by a quarter, a full collection
        would traverse all of them.
        """
        if not self.wanted:
            yield
            return
        with _COLLECTOR.load():
            try:
                yield
            finally:
                _COLLECTOR.freeze()

    def wrap(self, report: Report) -> Report:
        """Return a report that freezes the existing objects whenever a controller is primed for the first time."""
        if not self.wanted:
            return report

        def wrapped(event: object) -> None:
            if isinstance(event, RunStarted) and event.controller not in self._started:
                self._started.add(event.controller)
                # Priming leaves no garbage, and a search for some would cause the very pause that freezing is to avoid.
                _COLLECTOR.freeze()
            report(event)

        wrapped.failures_only = not receives_successes(report)  # type: ignore[attr-defined]  # see `events.Report`
        return wrapped

    async def first_pass(self, supervisors: Sequence[Supervisor]) -> None:
        """End the load, and freeze the existing objects, once the controllers are idle or stopped."""
        with trio.move_on_after(LIMIT):
            for each in supervisors:
                # It may be stopped for days. What it reconciles after that is like any later work.
                with suppress(ControllerStopped):
                    await each.wait_idle(1, each.run)
        # Garbage of users' reconciles is among the objects created since priming.
        _COLLECTOR.freeze(collect=True)
        self._first.close()
