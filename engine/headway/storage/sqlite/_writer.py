"""Group commit: writers that arrive during a transaction share the next one.

No background task exists. A writer that finds no leader leads one batch: everything that is pending, with its own
request first. Then it hands over to the first of those that came in the meantime, so that no writer leads forever.

Invariants:

1. While anything is pending or in progress, exactly one writer leads.
2. Batches are published to the commit log in order of revision, before any of their writers continues.
3. A writer is canceled before its request is pending, or not at all. A cancellation waits for at most two transactions:
the current one and its own (and one more for each `MOST_IN_A_BATCH` writers ahead of it).
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio

from headway.base import ThreadCalls
from headway.errors import HeadwayError, OutcomeUnknown, StoreUnusable, WriteRejected
from headway.storage._kept import KeptCommits
from headway.storage._log import CommitLog
from headway.storage._rules import Rules
from headway.storage._watch import Pulse
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import code_of, explained
from headway.storage.sqlite._file import OpenedFile
from headway.storage.sqlite._requests import CheckpointRequest, Request, TouchRequest
from headway.storage.sqlite._rules import FileContent
from headway.storage.sqlite._snapshots import ReplacedRow

MOST_IN_A_BATCH = 256
"""The maximum number of requests in one transaction."""

TRIM_STEP = 1000
"""The number of revisions of history that the file may keep beyond its bounds: deleting slows down a transaction."""

TRIM_BYTES = 4 * 2**20
"""The number of bytes of history that the file may keep beyond its bounds."""

_GATHERING_TURNS = 10
"""The maximum number of loop turns for which a leader waits for as many writers as the last batch had."""


class _Pending:
    __slots__ = ("done", "request", "task")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        # The writer's task. Invariant: while it waits, and only then, its `custom_sleep_data` is this object. Trio
        # clears that for every task that it wakes, also after an interrupt.
        self.task = trio.lowlevel.current_task()

    async def wait(self) -> None:
        """Wait until the request is done, or its writer is the next leader. An Event would cost every write more."""
        self.task.custom_sleep_data = self
        await trio.lowlevel.wait_task_rescheduled(_abort_for_interrupt_only)

    @property
    def waits(self) -> bool:
        """True if its writer waits."""
        return self.task.custom_sleep_data is self

    def wake(self) -> None:
        """Wake the writer if it waits."""
        if self.waits:
            trio.lowlevel.reschedule(self.task)


def _abort_for_interrupt_only(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    """Ignore cancellation, as in a shield, but not KeyboardInterrupt, which no shield stops."""
    try:
        raise_cancel()
    except KeyboardInterrupt:
        return trio.lowlevel.Abort.SUCCEEDED
    except trio.Cancelled:
        return trio.lowlevel.Abort.FAILED


class GroupWriter:
    """The only writer of a store's file, shared by all tasks that write.

    ``before_all`` returns the requests that come first in the next transaction, whoever has asked for them.

    Attributes:
        failing: True if the last transaction was not stored.
    """

    def __init__(
        self,
        file: OpenedFile,
        rules: Rules,
        kept: KeptCommits,
        log: CommitLog,
        pulse: Pulse,
        before_all: Callable[[], Sequence[Request]],
        thread: ThreadCalls[int],
    ) -> None:
        self._file = file
        self._rules = rules
        self._kept = kept
        self._log = log
        self._pulse = pulse
        self._before_all = before_all
        self._head = log.head
        self._floor = file.floor
        # The bytes that were outside the bounds when the file had last dropped as much.
        self._dropped_bytes = 0
        self._pending: deque[_Pending] = deque()
        self._last_size = 1
        self._leading = False
        # The event of `wait_idle`; None while nobody waits.
        self._idle: trio.Event | None = None
        self._refusal: Callable[[], HeadwayError] | None = None
        self._broken: BatchFailed | None = None
        self.failing = False
        self._thread = thread

    def refuse(self, why: Callable[[], HeadwayError]) -> None:
        """Refuse all further requests; pending ones are still done."""
        self._refusal = self._refusal or why

    def check_usable(self) -> None:
        """Raise an error if the store is no longer usable."""
        if self._refusal is not None:
            raise self._refusal()

    @trio.lowlevel.enable_ki_protection
    async def submit(self, request: Request) -> None:
        """Run a request and return when it is durable and published. Raises the request's error."""
        # The rest blocks anyway: a full checkpoint would cost every write another turn of the loop.
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_usable()
        mine = _Pending(request)
        self._pending.append(mine)
        if self._leading:
            # A writer interrupted here has not had its turn yet, and the leader drops it.
            await mine.wait()
        if not mine.done:
            await self._lead(mine)
        if request.error is not None:
            raise request.error

    async def close(self) -> None:
        """Wait until nothing is pending or in progress. Nothing may be requested afterwards."""
        if self._leading:
            self._idle = trio.Event()
            await self._idle.wait()
        self._thread.close()

    async def _lead(self, mine: _Pending) -> None:
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
            run = partial(run_batch, self._file, self._rules, requests, self._head, floor)
            head = await self._thread.run(run)
        except BaseException as error:
            # The batch failed, or got no thread. All waiting writers get the error.
            _fail_all(requests, error)
            self._rules.lose()
            self.failing = True
            self._stop_if_unusable(error)
            if not isinstance(error, Exception):
                raise
        else:
            self._floor = self._floor if floor is None else floor
            if self._floor == self._kept.floor:
                self._dropped_bytes = self._kept.dropped_bytes
            self.failing = False
            self._publish(requests, head)
        finally:
            self._hand_on(batch)

    def _floor_to_be(self) -> int | None:
        """Return the new beginning of the file's history after this batch, or None to leave it."""
        kept = self._kept
        if kept.floor - self._floor < TRIM_STEP and kept.dropped_bytes - self._dropped_bytes < TRIM_BYTES:
            return None
        # If much has become too old at once, trim it over several batches.
        return min(kept.floor, self._floor + 4 * TRIM_STEP)

    async def _gather(self) -> None:
        # The writers of the last batch come back some turns of the loop later. Wait until about the same number has
        # come. Otherwise the first of them would lead a batch alone, and every other transaction would have only one
        # write. A single writer does not wait for others.
        for _ in range(_GATHERING_TURNS):
            if len(self._pending) >= self._last_size:
                break
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _publish(self, requests: list[Request], head: int) -> None:
        now = trio.current_time()
        for request in requests:
            if request.made_revision and request.error is None:
                request.publish()
                self._log.append(request.revision, request.changes, now, request.formers)
                if request.changes:
                    self._kept.append(request.revision, len(request.changes), now, request.logged)
                if request.committing is not None:
                    request.committing.made(request.revision)
        if head > self._head:
            self._head = head
            self._kept.trim(now)
            self._pulse.beat()
        self._file.replaced.published()

    def _stop_if_unusable(self, error: BaseException) -> None:
        if isinstance(error, BatchFailed) and error.unusable and self._broken is None:
            text = f"{self._file.path} can no longer be used: {error}"
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
        elif self._idle is not None:
            self._idle.set()


def _fail_all(requests: list[Request], error: BaseException) -> None:
    """Give every writer of a failed batch its own error object, because several tasks raise them."""
    for request in requests:
        if not isinstance(error, BatchFailed):
            request.error = StoreUnusable(f"the store could not be written to: {error!r}. Nothing was written")
        elif request.error is not None and isinstance(error.error(), OutcomeUnknown):
            continue  # It was rejected before it could change anything, so its outcome is known.
        else:
            request.error = error.error()
        request.error.__cause__ = error


# --- The transaction, in a worker thread -------------------------------------


class BatchFailed(Exception):
    """A failure of a whole batch's transaction. ``unusable`` means that the file must not be written to again."""

    def __init__(self, error: Callable[[], HeadwayError], *, unusable: bool) -> None:
        super().__init__(str(error()))
        self.error = error
        self.unusable = unusable


def run_batch(file: OpenedFile, rules: Rules, requests: Sequence[Request], head: int, floor: int | None) -> int:
    """Run all requests in one transaction and return the head afterwards. Each request holds its own outcome.

    ``floor`` is the new beginning of history; None leaves it. Raises BatchFailed if the transaction failed.
    """
    connection = file.writer
    try:
        connection.execute("BEGIN IMMEDIATE")
        _refuse_changed_file(file, head)
        if not rules.current:
            rules.begin(FileContent(connection))
        revision = _perform(connection, requests, head)
        if floor is not None:
            connection.execute(sql.TRIM_HISTORY, (floor,))
            connection.execute(sql.TRIM_FORMERS, (floor,))
            connection.execute(sql.WRITE_FLOOR, (floor,))
        if revision > head:
            connection.execute(sql.WRITE_HEAD, (revision,))
        done = [each for each in requests if each.error is None]
        file.replaced.add(revision, [ReplacedRow(each.revision, *row) for each in done for row in each.replaced])
    except BatchFailed:
        _roll_back(connection)
        raise
    except Exception as error:  # no caller may be left waiting, whatever the error
        raise _nothing_written(file, error) from error
    try:
        end_transaction(connection)
    except Exception as error:
        # COMMIT writes the mark that makes a transaction valid last. If the disk refused a write, or another program
        # has locked the file, the mark was not written. A later failure, such as a failed flush, may have left it
        # there.
        code = code_of(error)
        if code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY) or code == sqlite3.SQLITE_IOERR_WRITE:
            file.replaced.take_back()
            raise _nothing_written(file, error) from error
        _roll_back(connection)
        raise _outcome_unknown(file, explained(error)) from error
    if file.log.is_gone:
        raise _outcome_unknown(file, f"its write-ahead log was removed, because {_LOG_REMOVED}")
    file.log.bound(connection)
    return revision


_LOG_REMOVED = (
    "another program has opened and closed the store, and SQLite's locks did not keep it from that. They end when "
    "code of this process closes the file after reading it: back the store up with `headway backup` or backup_store"
)


def end_transaction(connection: sqlite3.Connection) -> None:
    """Make the transaction durable."""
    connection.execute("COMMIT")


def _perform(connection: sqlite3.Connection, requests: Sequence[Request], head: int) -> int:
    revision, now = head, time.time()
    for request in requests:
        try:
            request.made_revision = request.check(connection)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001  # for its caller; a check changes nothing, so the others continue
            request.error = error
            continue
        request.revision = revision = revision + request.made_revision
        if request.made_revision or isinstance(request, CheckpointRequest | TouchRequest):
            request.apply(connection, now)
    return revision


def _refuse_changed_file(file: OpenedFile, head: int) -> None:
    """Refuse to continue in a file that another program has written to, or that is no longer at its path."""
    (stored,) = file.writer.execute(sql.READ_HEAD).fetchone()
    if stored != head:
        why = f"is at revision {stored}, not at {head}: another program has written to it"
    elif file.is_moved:
        why = "was moved or removed while it was open"
    elif file.log.is_gone:
        why = f"has lost its write-ahead log while it was open: {_LOG_REMOVED}"
    else:
        return
    text = f"{file.path} {why}. Nothing was written; open the store again"
    raise BatchFailed(lambda: StoreUnusable(text), unusable=True)


def _nothing_written(file: OpenedFile, why: Exception) -> BatchFailed:
    text = f"{file.path} could not be written to: {explained(why)}. Nothing was written"
    return BatchFailed(lambda: WriteRejected(text), unusable=not _roll_back(file.writer))


def _outcome_unknown(file: OpenedFile, why: str) -> BatchFailed:
    text = (
        f"{file.path} failed while a commit was being made durable: {why}. "
        "Its outcome is known when the store is opened again; until then every request fails"
    )
    return BatchFailed(lambda: OutcomeUnknown(text), unusable=True)


def _roll_back(connection: sqlite3.Connection) -> bool:
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return not connection.in_transaction
