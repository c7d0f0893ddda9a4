"""A watch over a commit log: a snapshot that was read at one revision, then the changes of the log after it."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import outcome
import trio
from typing_extensions import override

from headway.errors import HeadwayError
from headway.resource import Bookmark, EndOfSnapshot, Position, SnapshotChunk, StreamItem
from headway.storage._backend import Watch
from headway.storage._filter import filtered
from headway.storage._log import CommitLog, Cursor
from headway.storage._operations import Within
from headway.storage._reads import Snapshot


class _Woken(outcome.Outcome[None]):
    """The outcome that a beat passes to the tasks it wakes. Trio's own outcomes can be used only once."""

    def unwrap(self) -> None:
        """Return None. It can be called more than once."""

    def send(self, gen: Any) -> Any:
        """Send None to a generator."""
        return gen.send(None)

    async def asend(self, agen: Any) -> Any:
        """Send None to an async generator."""
        return await agen.asend(None)


_WOKEN = _Woken()


def _leave(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


def _request_to_sleep() -> object:
    """Return what `wait_task_rescheduled` yields to Trio. It has no state, so all tasks can yield the same object."""
    sleeping = trio.lowlevel.wait_task_rescheduled(_leave)  # noqa: ASYNC105 - only what it yields is needed
    request: object = sleeping.send(None)
    sleeping.close()
    return request


_SLEEP = _request_to_sleep()

_MOST = 32
"""The number of changes that a commit looks at for one watch. More are left to its task."""


class Pulse:
    """A signal that wakes the tasks that wait for it now. A task that waits later is woken by the next beat.

    A cheaper `trio.lowlevel.ParkingLot`, because a beat may wake every watcher of a store.
    """

    def __init__(self) -> None:
        # The waiting tasks with their `stays_asleep`, and tasks that were canceled and have not run since. Invariant: a
        # task has this pulse as its `custom_sleep_data` exactly as long as it waits. Trio resets it when it wakes the
        # task.
        self._waiting: dict[trio.lowlevel.Task, Callable[[], bool] | None] = {}
        self._broken: Callable[[], HeadwayError] | None = None

    @trio.lowlevel.enable_ki_protection
    def beat(self) -> None:
        """Wake all waiting tasks that do not stay asleep. Never blocks."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for task, stays_asleep in waiting.items():
                if task.custom_sleep_data is self:
                    try:
                        asleep = stays_asleep is not None and self._broken is None and stays_asleep()
                    except Exception:  # noqa: BLE001  # the other tasks must be woken
                        # The error belongs to the task, which finds it when it is woken.
                        asleep = False
                    if asleep:
                        self._waiting[task] = stays_asleep
                    else:
                        try:
                            trio.lowlevel.reschedule(task, _WOKEN)
                        except Exception:  # noqa: BLE001  # the other tasks must be woken
                            # A task of another run of Trio. A beat in its own run can still wake it.
                            self._waiting[task] = stays_asleep

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Stop the signal. Every current and future `wait` raises the error that ``why`` returns."""
        self._broken = self._broken or why
        self.beat()

    # Every event of every watcher passes through here. `await wait_task_rescheduled(…)` would be two more coroutines
    # and an object for each of them.
    @trio.lowlevel.enable_ki_protection
    @types.coroutine
    def wait(self, stays_asleep: Callable[[], bool] | None = None) -> Generator[Any, Any, None]:
        """Wait for the next beat. With ``stays_asleep``, a beat wakes the task only if that returns False."""
        if self._broken is not None:
            raise self._broken()
        task = trio.lowlevel.current_task()
        self._waiting[task] = stays_asleep
        task.custom_sleep_data = self
        try:
            (yield _SLEEP).unwrap()
        except BaseException:
            # Something other than a beat has woken the task.
            self._waiting.pop(task, None)
            raise


class LogWatch(Watch):
    """A `Watch` over a `CommitLog`, which implements `SkipsUnrelated` and `Asked`."""

    __slots__ = (
        *("_announced", "_cursor", "_here", "_log", "_opened", "_pulse", "_sleeps", "_snapshot", "_wanted", "_within"),
    )

    def __init__(
        self,
        log: CommitLog,
        pulse: Pulse,
        here: Callable[[int], Position],
        cursor: Cursor,
        within: Within,
        snapshot: Snapshot | None,
    ) -> None:
        self._log = log
        self._pulse = pulse
        self._here = here
        self._cursor = cursor
        # None if every resource matches.
        self._within = None if within.everything else within
        # The reader knows that the stream is complete up to this revision.
        self._announced = cursor.revision
        self._snapshot = snapshot
        self._opened = False
        # Invariant: while it is True, every item that was taken has been returned, and the caller waits for the next.
        self._sleeps = False
        # A bookmark of this revision or a later one is wanted; 0 for none.
        self._wanted = 0

    @override
    def next(self) -> Coroutine[Any, Any, StreamItem]:
        return self._next(changes_only=False)

    def next_change(self) -> Coroutine[Any, Any, StreamItem]:
        """Return the next item like `next`, but stay asleep while commits change nothing of this part of the kind."""
        return self._next(changes_only=True)

    @trio.lowlevel.enable_ki_protection
    async def _next(self, *, changes_only: bool) -> StreamItem:
        # Every checkpoint comes before an item is taken, so that a canceled call has taken nothing.
        if not self._opened:
            await trio.lowlevel.checkpoint()
            return await self._open()
        asleep = self._stays_asleep if changes_only else self._has_told_all
        while True:
            # Waiting is itself a checkpoint. Another one before it would cost every event a turn of the loop.
            try:
                if asleep():
                    self._sleeps = changes_only
                    await self._pulse.wait(asleep if changes_only else None)
                else:
                    await trio.lowlevel.checkpoint()
            finally:
                self._sleeps = False
            item = self._take()
            if item is not None:
                return item

    @trio.lowlevel.enable_ki_protection
    def poll(self) -> StreamItem | None:
        """Return the next item if there is one now. Before the end of the snapshot there is none."""
        return self._take() if self._opened else None

    def ask(self, wanted: int = 0) -> Bookmark | None:
        """Return a bookmark for all commits that change nothing of this part, if nothing else is to be returned first.

        If it is below ``wanted``, `next_change` returns a bookmark when a commit has reached that revision.
        """
        self._wanted = wanted
        if not (self._sleeps and self._has_nothing()):
            return None
        item = self._take()
        assert item is None or isinstance(item, Bookmark), "there is no change"
        return item

    def _has_told_all(self) -> bool:
        return self._log.head <= self._cursor.revision <= self._announced

    def _stays_asleep(self) -> bool:
        kind, cursor = self._cursor.log, self._cursor
        # Most commits are of another kind, and ask every watch.
        if cursor.index - kind.start == len(kind.changes) and self._wanted <= self._announced and not self._log.marks:
            return True
        return not (self._announced < self._wanted <= self._log.head) and self._has_nothing()

    def _has_nothing(self) -> bool:
        """Skip a few changes outside of this part. Return False if there are others, or a session to announce."""
        log, cursor, within = self._log, self._cursor, self._within
        if log.marks and log.marks[-1] > self._announced:
            return False
        changes, start, formers = cursor.log.changes, cursor.log.start, cursor.log.formers
        first, end = cursor.index - start, len(changes)
        # A snapshot above the head already includes the changes up to its revision.
        if first < end and log.head > cursor.revision:
            if within is None or first < cursor.log.dropped or end - first > _MOST:
                return False
            for index in range(first, end):
                if within.admits(changes[index].resource):
                    return False
                if (former := formers.get(start + index)) is not None and within.admits(former):
                    return False
            cursor.index = start + end
        return True

    async def _open(self) -> StreamItem:
        if self._snapshot is not None and (chunk := await self._snapshot.next()):
            return SnapshotChunk(chunk, getattr(self._snapshot, "in_order", False))
        resumed = self._snapshot is None
        self._snapshot = None
        self._opened = True
        position = self._here(self._cursor.revision)
        return Bookmark(position, resumed=True) if resumed else EndOfSnapshot(position)

    def _take(self) -> StreamItem | None:
        cursor, log = self._cursor, self._log
        # At a mark, a bookmark announces the session before the first change that belongs to it.
        unannounced = cursor.revision > self._announced and bool(log.marks) and cursor.revision in log.marks
        if log.head > cursor.revision and not unannounced:
            changes = log.take(cursor)
            if changes is not None and self._within is not None:
                changes = filtered(changes, self._within, log.formers(cursor, changes))
            if changes is not None:
                self._announced = changes.changes[-1].revision
                return changes
        if cursor.revision > self._announced:
            self._announced = cursor.revision
            return Bookmark(self._here(cursor.revision))
        return None

    @override
    def close(self) -> None:
        """Release what is left of the snapshot."""
        self._snapshot = None
