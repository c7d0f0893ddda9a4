"""Group commit: writers that come while a transaction is under way share the next one.

There is no background task. A writer that finds nobody leading leads one batch: everything that is pending, its own
request at the front. Then it hands on to the first of those that came meanwhile, so that no writer is kept leading.

Invariants:
1. While anything is pending or under way, exactly one writer leads.
2. Batches are published to the commit log in order of revision, before any of their writers goes on.
3. A writer is cancelled before its request is pending, or not at all; how long a cancellation waits is bounded by
   two transactions, the one under way and its own (for each `MOST_IN_A_BATCH` writers ahead of it one more).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio

from headway.errors import HeadwayError, OutcomeUnknown, StoreUnusable
from headway.storage._log import CommitLog
from headway.storage._sqlite_commit import BatchFailed, Request, run_batch
from headway.storage._sqlite_file import OpenedFile
from headway.storage._tail import Pulse

MOST_IN_A_BATCH = 256
"""Requests in one transaction."""

TRIM_STEP = 1000
"""How many revisions of history may be kept in the file beyond those in the log: deleting costs a transaction time."""

_GATHERING_TURNS = 10
"""For how many turns of the event loop, at most, a leader waits for as many writers as the last batch had."""


class _Pending:
    __slots__ = ("done", "request", "task")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        # Of the writer. Invariant: while it waits, and only then, this is its `custom_sleep_data`, which Trio takes
        # away from whomever it wakes, an interrupt among the reasons.
        self.task = trio.lowlevel.current_task()

    async def wait(self) -> None:
        """Until woken: the request is done, or its writer is to lead now. An Event would cost every write more."""
        self.task.custom_sleep_data = self
        await trio.lowlevel.wait_task_rescheduled(_interrupted_alone)

    @property
    def waits(self) -> bool:
        """Whether its writer does."""
        return self.task.custom_sleep_data is self

    def wake(self) -> None:
        """Let the writer go, if it waits."""
        if self.waits:
            trio.lowlevel.reschedule(self.task)


def _interrupted_alone(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    """No cancellation ends the wait, as in a shield; KeyboardInterrupt respects none."""
    try:
        raise_cancel()
    except KeyboardInterrupt:
        return trio.lowlevel.Abort.SUCCEEDED
    except trio.Cancelled:
        return trio.lowlevel.Abort.FAILED


class GroupWriter:
    """The one writer of a store's file, shared by all who write.

    ``before_all`` makes what has to be done first in the next transaction, whoever has asked for it.

    Attributes:
        failing: True if the last transaction was not stored.
    """

    def __init__(
        self, file: OpenedFile, log: CommitLog, pulse: Pulse, before_all: Callable[[], Sequence[Request]]
    ) -> None:
        self._file = file
        self._log = log
        self._pulse = pulse
        self._before_all = before_all
        self._head = log.head
        self._floor = file.floor
        self._pending: deque[_Pending] = deque()
        self._last_size = 1
        self._leading = False
        self._idle = trio.Event()
        self._idle.set()
        self._refusal: Callable[[], HeadwayError] | None = None
        self._broken: BatchFailed | None = None
        self.failing = False
        # Its own limit, so that a commit never waits for other people's threads.
        self._limiter = trio.CapacityLimiter(1)

    def refuse(self, why: Callable[[], HeadwayError]) -> None:
        """Refuse whatever comes from now on; what is pending is still done."""
        self._refusal = self._refusal or why

    def check_usable(self) -> None:
        """Raise why the store can't be used any more, if it can't."""
        if self._refusal is not None:
            raise self._refusal()

    @trio.lowlevel.enable_ki_protection
    async def submit(self, request: Request) -> None:
        """Do a request and return when it is durable and published; raises what it was refused with."""
        # What follows waits in any case: a whole checkpoint would cost every write another turn of the loop.
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_usable()
        mine = _Pending(request)
        self._pending.append(mine)
        if self._leading:
            # Who is interrupted here has not had its turn yet, and whoever leads forgets it.
            await mine.wait()
        if not mine.done:
            with trio.CancelScope(shield=True):
                await self._lead(mine)
        if request.error is not None:
            raise request.error

    async def wait_idle(self) -> None:
        """Wait until nothing is pending or under way."""
        await self._idle.wait()

    async def _lead(self, mine: _Pending) -> None:
        if self._idle.is_set():
            self._idle = trio.Event()
        self._leading = True
        await self._gather()
        self._pending = deque(each for each in self._pending if each is mine or each.waits)
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), MOST_IN_A_BATCH))]
        requests = [*self._before_all(), *(pending.request for pending in batch)]
        self._last_size = len(batch)
        floor = self._floor_to_be()
        try:
            if self._broken is not None:
                raise self._broken
            run = partial(run_batch, self._file, requests, self._head, floor)
            head = await trio.to_thread.run_sync(run, limiter=self._limiter)
        except BaseException as error:
            # A failed batch, no thread for it, or an interrupt before it had one: told to all who wait.
            _tell_all(requests, error)
            self.failing = True
            self._stop_if_unusable(error)
            if not isinstance(error, Exception):
                raise
        else:
            self._floor = self._floor if floor is None else floor
            self.failing = False
            self._publish(requests, head)
        finally:
            self._hand_on(batch)

    def _floor_to_be(self) -> int | None:
        """Where the file's history is to begin after this batch, if it is time to move that."""
        if self._log.floor - self._floor < TRIM_STEP:
            return None
        # When much has grown too old at once, it goes over several batches.
        return min(self._log.floor, self._floor + 4 * TRIM_STEP)

    async def _gather(self) -> None:
        # The writers that the last batch has let go come back some turns of the loop later. Without waiting for
        # about as many, the first of them would lead a batch of its own, and every other transaction would carry
        # one write. A writer who is alone waits for nobody.
        for _ in range(_GATHERING_TURNS):
            if len(self._pending) >= self._last_size:
                break
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _publish(self, requests: list[Request], head: int) -> None:
        now = trio.current_time()
        for request in requests:
            if request.made_revision and request.error is None:
                request.publish()
                self._log.append(request.revision, request.changes, now)
        if head > self._head:
            self._head = head
            self._pulse.beat()

    def _stop_if_unusable(self, error: BaseException) -> None:
        if isinstance(error, BatchFailed) and error.unusable and self._broken is None:
            text = f"{self._file.path} can't be used any more: {error}"
            self._broken = BatchFailed(lambda: StoreUnusable(f"{text}. Nothing was written"), unusable=True)
            self.refuse(lambda: StoreUnusable(text))
            self._pulse.stop(lambda: StoreUnusable(text))

    def _hand_on(self, batch: list[_Pending]) -> None:
        for pending in batch:
            pending.done = True
            pending.wake()
        while self._pending and not self._pending[0].waits:
            self._pending.popleft()
        self._leading = bool(self._pending)
        if self._pending:
            self._pending[0].wake()
        else:
            self._idle.set()


def _tell_all(requests: list[Request], error: BaseException) -> None:
    """Give every writer of a failed batch an error object of its own: several tasks raise them."""
    for request in requests:
        if not isinstance(error, BatchFailed):
            request.error = StoreUnusable(f"the store could not be written to: {error!r}. Nothing was written")
        elif request.error is not None and isinstance(error.error(), OutcomeUnknown):
            continue  # It was refused before it could change anything: that is certain.
        else:
            request.error = error.error()
        request.error.__cause__ = error
