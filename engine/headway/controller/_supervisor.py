"""Keep one controller running: run after run, never two at once, with growing delays when they fail quickly."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import NoReturn

import trio

from headway._groups import of_controller, only_error, story
from headway.controller._leading import Leading
from headway.controller._mapping import Owed
from headway.controller._own_writes import CONTROLLER
from headway.controller._run import Run
from headway.controller._status import ControllerStatus, Phase
from headway.errors import Closed, EngineBug, LeaseLost, NotHeadway
from headway.events import Report, RunEnded

FLAP = 2.0
"""A run that ended within so many seconds of its start is a flap: the next one is delayed."""

_ANY_REVISION = 2**64
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

    Args:
        leading: how it comes by its lease; None: it runs without one.

    Attributes:
        name: of the controller.
        fence_name: under what the store keeps its fence, "app/name".
        run: the present run; None between two.
    """

    def __init__(
        self,
        name: str,
        make_run: Callable[[Owed], Run],
        report: Report,
        *,
        fence_name: str = "",
        leading: Leading | None = None,
    ) -> None:
        self.name = name
        self.fence_name = fence_name or name
        self.run: Run | None = None
        self._make_run = make_run
        self._report = report
        self._leading = leading
        self._started = trio.lowlevel.ParkingLot()
        self._restarts = 0
        # Whether an engine has ever answered.
        self._answered = False
        self._error = ""
        self._ended_at = trio.current_time()
        self._resting = False
        self._ended = False
        self._owed = Owed()
        if leading is not None:
            leading.on_standby = self._stand_by

    async def supervise(self) -> None:
        """Start a run, and another one when it has ended, until cancelled. What one still owes the next one gets.

        Raises NotHeadway when what answers is no engine, and none has answered before.
        """
        CONTROLLER.set(self.name)
        try:
            await self._supervise()
        finally:
            self._ended = True
            self._started.unpark_all()

    def check_open(self) -> None:
        """Raise Closed when its engine has ended: no run of it begins any more."""
        if self._ended:
            raise Closed(
                "the block of this engine has ended: use the engine inside `async with headway.open_engine(...)` or "
                "`async with headway.open_workers(...)`"
            )

    async def _supervise(self) -> NoReturn:
        flaps = 0
        while True:
            began = trio.current_time()
            error, run = await self._one_run()
            # Invariant: the run's nurseries have closed here, so nothing of it goes on beside the next one (C7).
            if run is not None:
                self._owed, began = run.owed(), run.began
                self._answered = self._answered or run.answered
            if self._leading is not None and self._leading.answered:
                # A standby has had no run, and an engine has answered it all the same.
                self._answered = True
            if isinstance(error, NotHeadway) and not self._answered:
                # Nobody would mend it by waiting. Once an engine has answered, what answers in its place may pass.
                raise error
            self._restarts, self._error = self._restarts + 1, story(error)
            self._ended_at = trio.current_time()
            # Who has lost the lease waits for it; that is no failure of the controller's.
            flaps = flaps + 1 if trio.current_time() - began < FLAP and not isinstance(error, LeaseLost) else 0
            delay = restart_delay(flaps)
            self._report(RunEnded(self.name, error, delay))
            self._resting = True
            await trio.sleep(delay)
            self._resting = False

    @property
    def stands_by(self) -> bool:
        """Whether another process runs it, and this one would if that didn't."""
        return self.run is None and self._leading is not None and bool(self._leading.leader)

    def _stand_by(self) -> None:
        # An engine has said who leads. It may be long until there is a run here.
        self._answered = True
        # What comes from now on is the leader's to do, and the store's history tells the next run here what it left:
        # feeds that nobody reads would only grow.
        for _, subscription in self._owed.subscriptions:
            subscription.close()
        self._owed = self._owed._replace(subscriptions=())
        self._ended_at = trio.current_time()
        self._started.unpark_all()

    def status(self) -> ControllerStatus:
        """What the controller is doing now."""
        leading = self._leading
        if self.run is not None:
            status = self.run.status()
        elif leading is not None and leading.leader and not leading.error:
            seconds = trio.current_time() - self._ended_at
            status = ControllerStatus(self.name, "standby", seconds, leader=leading.leader)
        else:
            # Before the first run nothing has ended yet.
            phase: Phase = "resting" if self._resting else "starting"
            status = ControllerStatus(self.name, phase, trio.current_time() - self._ended_at)
        error = leading.error if leading is not None and leading.error else self._error
        return dataclasses.replace(status, restarts=self._restarts, error=error)

    async def _one_run(self) -> tuple[BaseException, Run | None]:
        """What has ended the run, and the run, if there was one."""
        run: Run | None = None
        try:
            async with nullcontext() if self._leading is None else self._leading.lead() as lease:
                self.run = run = self._make_run(self._owed)
                run.lease = lease
                self._started.unpark_all()
                try:
                    await run.run()
                finally:
                    self.run = None
        except GeneratorExit:
            # This very task is being closed. What a program raises comes out of the run's nursery, in a group.
            raise
        except BaseException as error:
            failed, others = of_controller(error)
            if others is None:
                assert failed is not None
                # Whatever ends a run ends that run alone, and is reported (C10).
                return only_error(failed), run
            if failed is not None:
                # Cancelled while it failed. The failure is this controller's alone, and goes no further.
                self._report(RunEnded(self.name, only_error(failed), None))
            if failed is None:
                raise
            raise others from None
        raise EngineBug("a run returned")

    async def wait_idle(self, revision: int) -> None:
        """Wait until the controller owes nothing up to ``revision``, through restarts if need be.

        One that stands by owes nothing. Raises Closed when its engine ends.
        """
        while not self.stands_by:
            run = self.run
            if run is None:
                if self._ended:
                    # In the block of an engine that has failed this raises Cancelled, and the failure comes out alone.
                    await trio.lowlevel.checkpoint()
                    self.check_open()
                await self._started.park()
                continue
            if run.checkpoint() >= revision:
                return
            await run.wait_progress()

    def checkpoint(self) -> int:
        """The revision up to which the present run owes nothing; 0 when that can't be said.

        Of one that stands by, which owes nothing ever, above every revision.
        """
        if self.stands_by:
            return _ANY_REVISION
        return self.run.checkpoint() if self.run is not None else 0
