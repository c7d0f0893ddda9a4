"""Looks at the controllers of an engine: every second for a reader, and every five seconds without one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn

import trio

from headway._gen.headway.observe.v1 import ControllerNow
from headway.access import Refused
from headway.base import BoundedReport, wall_time
from headway.controller import App
from headway.errors import HeadwayError
from headway.events import HandlerFailed, Report, ignore
from headway.graphs import Graph, graph
from headway.page._others import ASKED, STUCK_ASKED, UNWATCHED, Others
from headway.page._parts import Parts
from headway.page._priming import PrimingTimes
from headway.page._ring import INTERVAL, Ring, rates
from headway.page._search import Cursors
from headway.page._whys import SharedWhys
from headway.resource import Kind, Registry
from headway.run import ControllerStatus, Supervisor
from headway.versions import Versions
from headway.why import ObserveHost, controllers_now

LOOK, ELSEWHERE, STUCK = "page: look", "page: other processes", "page: what is stuck"
COUNTS = "page: numbers of resources"
"""The paths under which failures are reported."""
_REPORTED = 60.0
"""The time between two reports of one failure, in seconds."""
COUNTED = 10.0
"""The time between two counts of the store's resources while somebody watches, in seconds."""
TICK = 1.0
"""The time between two looks while somebody watches, in seconds."""


class Seen(NamedTuple):
    """A controller at the last look.

    Attributes:
        now: its numbers and failures, as other processes send theirs.
        priming: the progress of each of its types while it is priming.
        rate: reconciles per second since the look before; None at the first one. ``failures`` are the failed ones.
    """

    supervisor: Supervisor
    status: ControllerStatus
    now: ControllerNow
    priming: list[dict[str, Any]]
    rate: float | None = None
    failures: float | None = None


class PageHost:
    """The state of an engine, as the page knows it.

    Args:
        apps: the apps whose graph it shows.
        observe: the controllers, and the answers about them.
        parts: reads the resources.
        writes: True if callers may also change things.
        lacks: the lists that it does not have, such as ``quotas``, and the types without an editor.
        report: receives the failures of looks, as `HandlerFailed`.
        refused: returns what the limits on callers have refused.

    Attributes:
        graph: the controllers and types of the apps.
        counts: the number of stored resources of each kind; None if the store has not counted them.
        ring: the numbers of the last 15 minutes.
        seen: the controllers at the last look, by name.
        others: the controllers of other processes, and what is stuck.
        whys: the answers that viewers of a resource share.
        number: the number of the last look.
        at: the time of the last look, in seconds since 1970.
        searching: the number of searches in progress of each caller.
        cursors: where searches go on.
        forms: resources as each version of their kind.
    """

    def __init__(
        self,
        apps: Sequence[App],
        observe: ObserveHost,
        registry: Registry,
        parts: Parts,
        *,
        writes: bool = False,
        lacks: Sequence[str] = (),
        report: Report = ignore,
        refused: Callable[[], Sequence[Refused]] = tuple,
    ) -> None:
        self.graph: Graph = graph(*apps)
        self.counts: Mapping[Kind, int] | None = None
        self.observe = observe
        self.registry = registry
        self.parts = parts
        self.lacks = lacks
        self.writes = writes
        self.refused = refused
        self.ring = Ring()
        self.seen: Mapping[str, Seen] = {}
        self.others = Others(observe)
        self.whys = SharedWhys(observe)
        self.number = 0
        self.at = 0.0
        self.searching: dict[str, int] = {}
        self.cursors = Cursors()
        self.forms = Versions(registry)
        self._report = BoundedReport(report, _REPORTED)
        # The time of the first failure in a row, by path.
        self._failing: dict[str, float] = {}
        self._priming = PrimingTimes()
        self._watching = 0
        self._time = 0.0
        self._looked = trio.Event()
        self._wanted = trio.Event()
        self._unwatched = trio.lowlevel.ParkingLot()

    async def follow(self) -> None:
        """Look again and again, until canceled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_on)
            nursery.start_soon(self._while_watched, ELSEWHERE, self.others.ask, ASKED, UNWATCHED)
            nursery.start_soon(self._while_watched, STUCK, self.others.ask_stuck, STUCK_ASKED)
            nursery.start_soon(self._while_watched, COUNTS, self._count, COUNTED)

    async def _look_on(self) -> NoReturn:
        while True:
            began = trio.current_time()
            await self._contained(LOOK, self.look)
            if not self._watching:
                self._wanted = trio.Event()
                with trio.move_on_after(INTERVAL):
                    await self._wanted.wait()
            with trio.move_on_at(began + TICK):
                await trio.sleep_forever()

    async def _while_watched(
        self, path: str, ask: Callable[[], Awaitable[None]], seconds: float, otherwise: float = math.inf
    ) -> NoReturn:
        """Ask again after ``seconds`` while somebody watches, and after ``otherwise`` without a viewer."""
        while True:
            if not self._watching:
                with trio.move_on_after(otherwise):
                    await self._unwatched.park()
            await self._contained(path, ask)
            await trio.sleep(seconds)

    async def _contained(self, path: str, look: Callable[[], Awaitable[None]]) -> None:
        """Look, and report a failure without raising it, because the page must never end the engine.

        Viewers see that the numbers are old.
        """
        try:
            await look()
        except Exception as error:  # noqa: BLE001  # whatever the status of a controller raises
            self._failing.setdefault(path, wall_time())
            self._report(HandlerFailed, of=path, path=path, error=error)
            self._show()
        else:
            self._failing.pop(path, None)

    @property
    def stale_since(self) -> float | None:
        """When the looks began to fail, in seconds since 1970; None while they succeed."""
        return min(self._failing.values(), default=None)

    async def look(self) -> None:
        """Look at all controllers now."""
        now = trio.current_time()
        found = {each.fence_name: each for each in self.observe.supervisors}
        statuses = {name: dataclasses.replace(each.status(), name=name) for name, each in found.items()}
        if self._priming.look(statuses, now):
            await self._count()
        before, seconds = self.seen, now - self._time
        nows = controllers_now([(found[name], status) for name, status in statuses.items()])
        self.at, self._time = wall_time(), now
        self.seen = {
            each.name: Seen(
                found[each.name],
                statuses[each.name],
                each,
                self._priming.bars(each.name, statuses[each.name], now),
                *(rates(each, before[each.name].now, seconds) if each.name in before and seconds > 0 else ()),
            )
            for each in nows
        }
        if self.ring.is_due(now):
            self.ring.add(nows, now, self.at, self.others.take())
        self._show()

    def _show(self) -> None:
        """Wake the readers."""
        self.number += 1
        self._looked.set()
        self._looked = trio.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look every second while the block runs."""
        self._watching += 1
        self._wanted.set()
        self._unwatched.unpark_all()
        try:
            yield
        finally:
            self._watching -= 1

    async def wait_newer(self, number: int) -> None:
        """Wait for a look after the one with this number."""
        while self.number <= number:
            await self._looked.wait()

    async def _count(self) -> None:
        """Ask the store for the number of resources of each kind, if it can count them without reading them all."""
        with suppress(HeadwayError):
            self.counts = self._priming.totals = await self.parts.counts()
