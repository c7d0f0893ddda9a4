"""The supervisor of a controller, which starts one run after another, and delays restarts after failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import NoReturn

import trio

from headway.base import chance, of_controller, only_error, story
from headway.client import HeldLease
from headway.controller import Definition, GrowingDefinition
from headway.errors import Closed, LeaseLost, NotHeadway
from headway.events import Report, RunEnded
from headway.journal import ControllerJournal
from headway.reconcile import CONTROLLER, Gate
from headway.resource import Key
from headway.run._events import ControllerEvents
from headway.run._governor import Governed, Governor
from headway.run._keys import KeyStatus, LeftOutOf
from headway.run._leading import Leading
from headway.run._mapping_retries import Unmapped
from headway.run._owed import Owed
from headway.run._run import Run
from headway.run._status import ControllerStatus, Phase

FLAP = 2.0
"""A run that ends within this many seconds of its start is a flap. The run after a flap is delayed."""

_ANY_REVISION = 2**64
_FIRST, _LONGEST, _JITTER = 0.5, 60.0, 0.25


def restart_delay(flaps: int) -> float:
    """Return the delay before the next run after this many consecutive flaps.

    It is 0.5 s after the first, then 1, 2, 4 … 60 s, with up to a quarter added at random.
    """
    if flaps <= 0:
        return 0.0
    if flaps == 1:
        return _FIRST
    delay = min(_FIRST * 2.0 ** min(flaps - 1, 16), _LONGEST)
    return delay * (1 + chance.random() * _JITTER)


class Supervisor:
    """The supervisor of one controller.

    Args:
        make_run: creates a run, given the pending work of the last one and the lease that it runs under.
        leading: acquires the controller's lease; None if it needs none.
        added_watches: returns the watches that the runs have added, as texts.
        gate: says whether the controller may reconcile; None if it always may.
        growing: the controller's definition, with the watches that its runs have added.
        counts: the number of reconciles of its runs by outcome.
        governor: the limit on the rate of its writes; None without one.

    Attributes:
        journal: the controller's part of the journal; None without one.
        events: the events that the controller records; None without a recorder.
        process: the name of this process among those that may run the controller.
        name: the name of the controller in its app, which its finalizer and its status have.
        fence_name: its full name, "app/name", under which the store keeps its fence, and under which it is reported.
        run: the current run; None between two runs.
        failing_since: when the last run ended that had reconciled for as long as a flap lasts, or else the first one,
            if all runs since have failed sooner; None if no run has failed. It does not begin again with each attempt.
    """

    def __init__(
        self,
        name: str,
        make_run: Callable[[Owed, HeldLease | None], Run],
        report: Report,
        *,
        fence_name: str = "",
        leading: Leading | None = None,
        added_watches: Callable[[], tuple[str, ...]] = tuple,
        gate: Gate | None = None,
        growing: GrowingDefinition | None = None,
        journal: ControllerJournal | None = None,
        process: str = "",
        events: ControllerEvents | None = None,
        counts: Mapping[str, int] | None = None,
        governor: Governor | None = None,
    ) -> None:
        self.name = name
        self.fence_name = fence_name or name
        self.run: Run | None = None
        self._make_run = make_run
        self._report = report
        self._leading = leading
        self._added_watches = added_watches
        self._gate = Gate(self.fence_name) if gate is None else gate
        self._growing = growing
        self.journal = journal
        self.events = events
        self.process = process
        self._counts = {} if counts is None else counts
        self._governor = governor
        self._started = trio.lowlevel.ParkingLot()
        self._restarts = 0
        # True once an engine has answered.
        self._answered = False
        self._error = ""
        self._ended_at = trio.current_time()
        self.failing_since: float | None = None
        self._resting = False
        self._ended = False
        self._owed = Owed()

    async def supervise(self) -> None:
        """Run the controller until canceled, starting a new run when one ends.

        Each run gets the pending work of the one before.

        Raises NotHeadway if the server is not an engine and no engine has answered before.
        """
        CONTROLLER.set(self.fence_name)
        try:
            await self._supervise()
        finally:
            self._ended = True
            self._started.unpark_all()

    def check_open(self) -> None:
        """Raise Closed if the engine has ended, so that no further run begins."""
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
            # Invariant: the run's nurseries have closed here, so none of its tasks overlaps the next run (C7).
            if run is not None:
                self._owed, began = await run.owed(), run.began
                self._answered = self._answered or run.answered
            if self._leading is not None and self._leading.answered:
                # A standby has had no run, but an engine has answered it.
                self._answered = True
            if isinstance(error, NotHeadway) and not self._answered:
                # Waiting would not help. Once an engine has answered, a different server in its place may be temporary.
                raise error
            self._ended_at = trio.current_time()
            if error is None:
                # The run has added a watch, which is not a failure. The number of watches bounds these restarts.
                self._error, self.failing_since = "", None
                self._report(RunEnded(self.fence_name, None, 0.0))
                continue
            self._restarts, self._error = self._restarts + 1, story(error)
            if self.failing_since is None or (run is not None and run.reconciled_for() >= FLAP):
                self.failing_since = self._ended_at
            # Losing the lease is not a failure of the controller; it waits until it can acquire the lease again.
            flaps = flaps + 1 if trio.current_time() - began < FLAP and not isinstance(error, LeaseLost) else 0
            delay = restart_delay(flaps)
            self._report(RunEnded(self.fence_name, error, delay))
            self._resting = True
            await trio.sleep(delay)
            self._resting = False

    @property
    def stands_by(self) -> bool:
        """True if another process runs the controller and this one is ready to take over."""
        return self.run is None and self._leading is not None and bool(self._leading.leader)

    def _stand_by(self) -> None:
        # An engine has reported the leader. This process may wait for a run of its own for a long time.
        self._answered = True
        # From here the leader handles all changes, and the next run here finds in the store's history what the leader
        # left. A subscription without a reader would only grow.
        for _, subscription in self._owed.subscriptions:
            subscription.close()
        self._owed = self._owed._replace(subscriptions=())
        self._ended_at, self.failing_since = trio.current_time(), None
        self._started.unpark_all()

    @property
    def definition(self) -> Definition | None:
        """The controller's definition with its current watches, if the supervisor knows it."""
        return None if self._growing is None else self._growing.current

    def key_status(self, key: Key) -> KeyStatus | None:
        """Return the state of a key, or None while no run is primed."""
        return None if self.run is None or self.run.keys is None else self.run.keys.status(key)

    def left_out(self) -> list[LeftOutOf]:
        """Return the indexes of the current run that lack resources, because their function raised."""
        return [] if self.run is None or self.run.keys is None else self.run.keys.left_out()

    def newest_unmapped(self, most: int) -> tuple[list[Unmapped], int]:
        """Return up to ``most`` resources of each type whose mapping failed, the newest first, and how many failed."""
        return ([], 0) if self.run is None or self.run.keys is None else self.run.keys.newest_unmapped(most)

    def retry(self, key: Key) -> bool | None:
        """Enqueue a key now, whatever delay it has. Return None if no run here reconciles it.

        Return True if it is being reconciled, and so is reconciled again after that.
        """
        return None if self.run is None or self.run.keys is None else self.run.keys.retry(key)

    def status(self) -> ControllerStatus:
        """Return the controller's current status. Once it has ended, this needs no Trio."""
        leading = self._leading
        if self.run is not None:
            status = self.run.status()
        elif self._ended:
            # Another process may lead by now. This one no longer follows the lease.
            counts = dict(self._counts)
            return ControllerStatus(
                name=self.fence_name,
                phase="ended",
                seconds=0.0,
                restarts=self._restarts,
                error=self._error,
                reconciles=counts,
                governed=self._governed(),
            )
        elif leading is not None and leading.leader and not leading.error:
            seconds = trio.current_time() - self._ended_at
            status = ControllerStatus(self.fence_name, "standby", seconds, leader=leading.leader)
        else:
            # Before the first run, this is the time since the supervisor was created.
            phase: Phase = "resting" if self._resting else "starting"
            since = self._ended_at
            if leading is not None and leading.leader:
                # It has stood by until a request for the lease failed.
                since = max(since, leading.delayed_at)
            status = ControllerStatus(self.fence_name, phase, trio.current_time() - since)
        error = leading.error if leading is not None and leading.error else self._error
        return dataclasses.replace(
            status,
            restarts=self._restarts,
            error=error,
            added_watches=self._added_watches(),
            paused=self._gate.reason,
            paused_seconds=self._gate.seconds,
            reconciles=dict(self._counts),
            governed=self._governed(),
        )

    async def _one_run(self) -> tuple[BaseException | None, Run | None]:
        """Run once, and return the error that ended the run, if any, and the run if it was created."""
        run: Run | None = None
        try:
            async with nullcontext() if self._leading is None else self._leading.lead(self._stand_by) as lease:
                self.run = run = self._make_run(self._owed, lease)
                self._started.unpark_all()
                try:
                    await run.run()
                finally:
                    # The release of the lease may take seconds, if the store is away.
                    self.run, self._ended_at = None, trio.current_time()
        except GeneratorExit:
            # This task itself is being closed. Exceptions of the program come out of the run's nursery, in a group.
            raise
        except BaseException as error:
            failed, others = of_controller(error)
            if others is None:
                assert failed is not None
                # An error ends only this run, and it is reported (C10).
                return only_error(failed), run
            if failed is not None:
                # The run was canceled while it failed. The failure belongs to this controller and is not propagated.
                self._report(RunEnded(self.fence_name, only_error(failed), None))
            if failed is None:
                raise
            raise others from None
        return None, run

    @property
    def reconciled(self) -> int:
        """The number of reconciles that have ended, of all its runs."""
        return sum(self._counts.values())

    async def wait_idle(self, revision: int, known: Run | None) -> None:
        """Wait until the controller has no pending work up to ``revision``, through restarts if necessary.

        Return at once for a controller on standby, which has no work.

        ``known`` is the run before the revision was read. Any other run needs only its starting revision if that is
        lower: the store was then rolled back and accepted, or replaced, and may never reach ``revision``.

        Raises Closed when the engine ends, and the gate's `ControllerStopped` if pending work waits until it opens.
        """
        while not self.stands_by:
            run = self.run
            if run is None:
                if self._ended:
                    # If the engine failed, this raises Cancelled, so that only the failure leaves its block.
                    await trio.lowlevel.checkpoint()
                    self.check_open()
                await self._started.park()
                continue
            needed = revision if run is known else min(revision, run.starting_revision)
            # A run that has not begun has no starting revision.
            if run.checkpoint() >= max(needed, 1):
                return
            if run.is_blocked:
                # It may have been opened a moment ago.
                await self._gate.wait_read(needed)
                if self._gate.reason is not None:
                    raise self._gate.error()
            run.reach(needed)
            await run.progress.wait()

    def _governed(self) -> Governed | None:
        return None if self._governor is None else self._governor.status()

    def checkpoint(self) -> int:
        """Return the revision up to which the current run has no pending work; 0 if it has some or is not running.

        A controller on standby never has pending work, so the result is above every revision.
        """
        if self.stands_by:
            return _ANY_REVISION
        return self.run.checkpoint() if self.run is not None else 0
