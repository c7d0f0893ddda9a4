"""A watch over a commit log: a snapshot that was read at one revision, then the log's tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import outcome
import trio

from headway._turns import give_way
from headway.errors import HeadwayError
from headway.resource import (
    Bookmark,
    Changes,
    EndOfSnapshot,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)
from headway.storage._backend import Within
from headway.storage._cut import Cut
from headway.storage._log import CommitLog, Cursor

SNAPSHOT_CHUNK = 1000
"""Resources in one chunk of a snapshot."""


class Snapshot(Protocol):
    """What was read for a watch and is still to be handed out."""

    async def next(self) -> list[pb.Resource]:
        """The next chunk; an empty one when nothing is left. Cancelled, it has taken nothing."""
        ...


class CutSnapshot:
    """Meets `Snapshot` over a cut, of which what is within is handed out."""

    def __init__(self, cut: Cut, within: Within) -> None:
        self._cut = cut
        self._within = None if within.everything else within
        self._taken: list[pb.Resource] = []

    async def next(self) -> list[pb.Resource]:
        """See `Snapshot.next`."""
        while len(self._taken) < SNAPSHOT_CHUNK and self._cut:
            taken = self._cut.take()
            if self._within is None:
                self._taken += taken
            else:
                matches = self._within.matches
                self._taken += [each for each in taken if matches(resource_key(each))]
                # What is looked for may be far behind what is not: others run meanwhile.
                await give_way()
        chunk, self._taken = self._taken[:SNAPSHOT_CHUNK], self._taken[SNAPSHOT_CHUNK:]
        return chunk


class _Woken(outcome.Outcome[None]):
    """What a beat wakes a task with. Trio's own values are made for each waking and used up by it."""

    def unwrap(self) -> None:
        """Return nothing, however often."""

    def send(self, gen: Any) -> Any:
        """See `outcome.Outcome.send`."""
        return gen.send(None)

    async def asend(self, agen: Any) -> Any:
        """See `outcome.Outcome.asend`."""
        return await agen.asend(None)


_WOKEN = _Woken()


class Pulse:
    """Wakes everybody who waits, and whoever waits later only at the next beat.

    What a parking lot does, in less: a beat wakes every watcher of a store.
    """

    def __init__(self) -> None:
        # The tasks that wait, and such as have been cancelled and haven't run since. Invariant: those that wait, and
        # only they, have this pulse as their `custom_sleep_data`, which Trio takes away from whomever it wakes.
        self._waiting: dict[trio.lowlevel.Task, None] = {}
        self._broken: Callable[[], HeadwayError] | None = None

    @trio.lowlevel.enable_ki_protection
    def beat(self) -> None:
        """Wake all who wait now. Never blocks."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for task in waiting:
                if task.custom_sleep_data is self:
                    trio.lowlevel.reschedule(task, _WOKEN)

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Make whoever waits, now or later, raise what ``why`` makes: no beat will come any more."""
        self._broken = self._broken or why
        self.beat()

    def enter(self) -> trio.lowlevel.Task:
        """Let the next beat wake the current task, which is to sleep at once, and to `leave` if that fails."""
        if self._broken is not None:
            raise self._broken()
        task = trio.lowlevel.current_task()
        self._waiting[task] = None
        task.custom_sleep_data = self
        return task

    def leave(self, task: trio.lowlevel.Task) -> None:
        """Forget a task that something else has woken."""
        self._waiting.pop(task, None)

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> None:
        """Wait for the next beat."""
        task = self.enter()
        try:
            await trio.lowlevel.wait_task_rescheduled(_leave)
        except BaseException:
            self.leave(task)
            raise


def _leave(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


class LogWatch:
    """Meets `Watch` over a `CommitLog`."""

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
        # Which are shown; None: all.
        self._within = None if within.everything else within
        # The revision that the reader knows this stream to be complete up to.
        self._told = cursor.revision
        self._snapshot = snapshot
        self._opened = False

    @trio.lowlevel.enable_ki_protection
    async def next(self) -> StreamItem:
        """See `Watch.next`."""
        # Every checkpoint stands before anything is taken, so that a cancelled call has taken nothing.
        if not self._opened:
            await trio.lowlevel.checkpoint()
            return await self._open()
        cursor = self._cursor
        while True:
            # Waiting is a checkpoint itself: one before it would cost every event another turn of the loop.
            if self._log.head > cursor.revision or cursor.revision > self._told:
                await trio.lowlevel.checkpoint()
            else:
                # As `Pulse.wait` does it, without a coroutine more for each event of each watcher.
                task = self._pulse.enter()
                try:
                    await trio.lowlevel.wait_task_rescheduled(_leave)
                except BaseException:
                    self._pulse.leave(task)
                    raise
            item = self._take()
            if item is not None:
                return item

    async def _open(self) -> StreamItem:
        chunk = await self._snapshot.next() if self._snapshot is not None else []
        if chunk:
            return SnapshotChunk(chunk)
        resumed = self._snapshot is None
        self._snapshot = None
        self._opened = True
        position = self._here(self._cursor.revision)
        return Bookmark(position, resumed=True) if resumed else EndOfSnapshot(position)

    def _take(self) -> StreamItem | None:
        cursor, log = self._cursor, self._log
        # At a mark the reader is told of the incarnation before it hears of a change that belongs to it.
        untold = cursor.revision > self._told and bool(log.marks) and cursor.revision in log.marks
        if log.head > cursor.revision and not untold:
            changes = log.take(cursor)
            if changes is not None and self._within is not None:
                changes = _filtered(changes, self._within)
            if changes is not None:
                self._told = changes.changes[-1].revision
                return changes
        if cursor.revision > self._told:
            self._told = cursor.revision
            return Bookmark(self._here(cursor.revision))
        return None

    def close(self) -> None:
        """See `Watch.close`."""


def _filtered(changes: Changes, within: Within) -> Changes | None:
    """Those within, with `more` said of what is left of each commit; None: none are."""
    kept = [change for change in changes.changes if within.matches(resource_key(change.resource))]
    for index, change in enumerate(kept):
        more = index + 1 < len(kept) and kept[index + 1].revision == change.revision
        if more != change.more:
            kept[index] = change._replace(more=more)
    return Changes(kept) if kept else None
