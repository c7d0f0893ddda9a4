"""Keep one controller running: run after run, never two at once, with growing delays when they fail quickly."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import trio

from headway._groups import only_error, story
from headway.controller._mapping import Owed
from headway.controller._run import Run
from headway.controller._status import ControllerStatus, Phase
from headway.errors import EngineBug
from headway.events import Report, RunEnded

FLAP = 2.0
"""A run that ended within so many seconds of its start is a flap: the next one is delayed."""

_FIRST, _LONGEST, _JITTER = 0.5, 60.0, 0.25


def restart_delay(flaps: int) -> float:
    """Seconds before the next run after so many flaps in a row: 0.5, then 1, 2, 4 … 60 with up to a quarter on top."""
    if flaps <= 0:
        return 0.0
    if flaps == 1:
        return _FIRST
    delay = min(_FIRST * 2.0 ** min(flaps - 1, 16), _LONGEST)
    return delay * (1 + random.random() * _JITTER)


class Supervisor:
    """Runs one controller.

    Attributes:
        name: of the controller.
        fence_name: under what the store keeps its fence, "app/name".
        run: the present run; None between two.
    """

    def __init__(self, name: str, make_run: Callable[[Owed], Run], report: Report, *, fence_name: str = "") -> None:
        self.name = name
        self.fence_name = fence_name or name
        self.run: Run | None = None
        self._make_run = make_run
        self._report = report
        self._started = trio.lowlevel.ParkingLot()
        self._restarts = 0
        self._error = ""
        self._ended_at = trio.current_time()

    async def supervise(self) -> None:
        """Start a run, and another one when it has ended, until cancelled. What one still owes the next one gets."""
        owed = Owed()
        flaps = 0
        while True:
            began = trio.current_time()
            self.run = self._make_run(owed)
            self._started.unpark_all()
            error = await self._one_run(self.run)
            # Invariant: the run's nurseries have closed here, so nothing of it goes on beside the next one (C7).
            owed = self.run.owed()
            self.run = None
            self._restarts, self._error = self._restarts + 1, story(error)
            self._ended_at = trio.current_time()
            flaps = flaps + 1 if trio.current_time() - began < FLAP else 0
            delay = restart_delay(flaps)
            self._report(RunEnded(self.name, error, delay))
            await trio.sleep(delay)

    def status(self) -> ControllerStatus:
        """What the controller is doing now."""
        if self.run is None:
            # Before the first run nothing has ended yet.
            phase: Phase = "resting" if self._restarts else "starting"
            status = ControllerStatus(self.name, phase, trio.current_time() - self._ended_at)
        else:
            status = self.run.status()
        return dataclasses.replace(status, restarts=self._restarts, error=self._error)

    async def _one_run(self, run: Run) -> Exception:
        try:
            await run.run()
        except Exception as error:  # noqa: BLE001  # whatever ends a run ends that run alone; it is reported
            return only_error(error)
        except BaseExceptionGroup as group:
            # Cancelled while it failed. The failure is this controller's alone, so it is reported and goes no further.
            failed, others = group.split(Exception)
            if failed is not None:
                self._report(RunEnded(self.name, only_error(failed), None))
            raise (others or group) from None
        raise EngineBug("a run returned")

    async def wait_settled(self, revision: int) -> None:
        """Wait until the controller owes nothing up to ``revision``, through restarts if need be."""
        while True:
            run = self.run
            if run is None:
                await self._started.park()
                continue
            if run.settled() >= revision:
                return
            await run.wait_progress()

    def settled(self) -> int:
        """The revision up to which the present run owes nothing; 0 when that can't be said."""
        return self.run.settled() if self.run is not None else 0
