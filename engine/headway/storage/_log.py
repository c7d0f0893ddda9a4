"""The commit log: the changes of a store in order, for watchers that come and go. Pure: no Trio, no I/O, no clock.

Rules:
1. Revisions are appended in rising order. `head` is the last one. A revision without changes (a fence) also moves the
   head.
2. A cursor stands after a revision, in one kind. `take` returns the later changes in order, only in whole commits, and
   moves the cursor. A snapshot at revision S followed by a cursor after S therefore has neither a gap nor a repeat,
   even if commits were appended between the two.
3. History is bounded by count, by bytes and by age. The oldest commits are dropped first, always as a whole. The newest
   commit is kept. History up to `floor` is compacted. If many changes become too old at once, the next few commits drop
   them. A cursor whose next change was dropped gets HistoryCompacted, from `take` or from `cursor`.
4. A session of the store begins at a mark. Changes taken together are all before a mark or all after it, and a cursor
   stops at each mark, because a reader must know the session that changes belong to.

Writers never wait for watchers: a log does not know its cursors.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Mapping, Sequence

from headway.base import Count, Endless, checked
from headway.errors import HistoryCompacted
from headway.resource import Change, Changes, Kind, pb

COMPACT_AFTER = 1024
"""The number of dropped changes whose places may stay at the front of a kind's list before all are deleted."""

MOST_AT_ONCE = 1000
"""The maximum number of changes that one commit drops for their age: some milliseconds of work for its writer."""

MAX_BYTES = 256 * 2**20
"""The number of bytes of changes that stores keep by default."""

FIXED_SIZE = 896
"""The bytes counted for what differs little in size: the change in the log, the message, its ids and versions."""

_CONDITION_SIZE = 256
"""The bytes of a condition and its part of a status, without its reason and message."""

_DROPPED = Change(0, pb.Resource(), False, False)
"""A placeholder for a dropped change, so that the list no longer holds its resource."""


LogChange = tuple[Kind, pb.Resource, bool]
"""A change (kind, resource, deleted) as `CommitLog.append` takes it."""

Formers = Mapping[int, pb.Resource]
"""By the index of a change, the state before it, if its metadata differs. Filters by metadata need it."""
NO_FORMERS: Formers = {}


class _KindLog:
    """The changes of one kind.

    `start` counts the changes deleted from the front. No change up to the revision `gone` is kept.
    """

    __slots__ = ("changes", "dropped", "formers", "gone", "kind", "newest", "newest_from", "one", "start")

    def __init__(self, kind: Kind, gone: int) -> None:
        self.kind = kind
        self.changes: list[Change] = []
        self.start = 0
        # The number of places at the front of the list whose changes are dropped. Deleting each alone would cost O(n).
        # Invariant: these places hold only `_DROPPED`.
        self.dropped = 0
        self.gone = gone
        # The states before kept changes of metadata, by the number of changes before them, in order.
        self.formers: dict[int, pb.Resource] = {}
        # The counts of most commits, which have one change. All of them share this object.
        self.one = ((kind, 1),)
        # The changes that a cursor last took up to the end, and the index of their first. Most watchers stand at the
        # same place and share them. Invariant: None, or it reaches to the end of `changes` and all of it is kept.
        self.newest: Changes | None = None
        self.newest_from = 0

    def drop(self, count: int) -> None:
        self.newest = None
        dropped = self.dropped + count
        for place in range(self.dropped, dropped):
            self.changes[place] = _DROPPED
        while self.formers and (oldest := next(iter(self.formers))) < self.start + dropped:
            del self.formers[oldest]
        if dropped > COMPACT_AFTER and dropped * 2 > len(self.changes):
            del self.changes[:dropped]
            self.start += dropped
            dropped = 0
        self.dropped = dropped


class Cursor:
    """A position in the changes of one kind."""

    __slots__ = ("index", "log", "revision")

    def __init__(self, log: _KindLog, index: int, revision: int) -> None:
        self.log = log
        # Invariant: `index` counts the changes of this kind since the log began. All before it are taken or skipped.
        self.index = index
        # Invariant: everything of this kind up to `revision` has been taken.
        self.revision = revision


@checked()
class CommitLog:
    """The log of one store.

    Args:
        head: the store's revision when the log begins. The log has no history before it.
        max_changes: the number of changes to keep.
        max_age: the maximum age of kept changes in seconds, by the clock of the times passed to `append`.
        max_bytes: the number of bytes of changes to keep, about as they are in memory.
    """

    def __init__(
        self, head: int = 0, *, max_changes: Count = 100_000, max_age: Endless = 3600.0, max_bytes: Count = MAX_BYTES
    ) -> None:
        self.head = self._begin = head
        self.floor = head
        # The states before changes of metadata are kept from this revision on.
        self.formers_after = head
        # The first revisions of sessions, in order. They have no changes. Invariant: at most the first is not above the
        # floor. A cursor that has missed nothing may stand before it, if no change that it wants was dropped.
        self.marks: list[int] = []
        self._max_changes = max_changes
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._kinds: dict[Kind, _KindLog] = {}
        # One (revision, number of changes by kind, time, number of changes, bytes) for each kept commit.
        self._commits: deque[tuple[int, tuple[tuple[Kind, int], ...], float, int, int]] = deque()
        self._count = self._bytes = 0

    def append(self, revision: int, changes: Sequence[LogChange], now: float, formers: Formers = NO_FORMERS) -> None:
        """Append the changes of a commit. Raise ValueError if the revision is not above the last one."""
        if revision <= self.head:
            raise ValueError(f"revision must be above {self.head}, the last one appended, got {revision}")
        if len(changes) == 1:
            kind, resource, deleted = changes[0]
            log = self._kind(kind)
            if formers:
                log.formers[log.start + len(log.changes)] = formers[0]
            log.changes.append(Change(revision, resource, deleted, False))
            log.newest = None
            counts: tuple[tuple[Kind, int], ...] = log.one
            size = _size(resource)
        else:
            counts = self._append_many(revision, changes, formers)
            size = sum([_size(resource) for _, resource, _ in changes])
        if formers:
            size += sum(map(_size, formers.values()))
        self.head = revision
        self._count += len(changes)
        self._bytes += size
        self._commits.append((revision, counts, now, len(changes), size))
        if self._is_full() or self._commits[0][2] + self._max_age < now:
            self._trim(now)

    def _append_many(
        self, revision: int, changes: Sequence[LogChange], formers: Formers
    ) -> tuple[tuple[Kind, int], ...]:
        by_kind: dict[Kind, list[int]] = {}
        for index, change in enumerate(changes):
            by_kind.setdefault(change[0], []).append(index)
        for kind, group in by_kind.items():
            log = self._kind(kind)
            for index in group:
                if index in formers:
                    log.formers[log.start + len(log.changes)] = formers[index]
                log.changes.append(Change(revision, *changes[index][1:], index < group[-1]))
            log.newest = None
        return tuple((kind, len(group)) for kind, group in by_kind.items())

    def mark(self) -> None:
        """Note that a session begins with the commit at the head. That commit has changed no resource."""
        self.marks.append(self.head)

    def cursor(self, kind: Kind, after: int) -> Cursor:
        """Return a cursor after a revision. Raise HistoryCompacted if changes after it are no longer kept.

        ``after`` may be above the head, because a snapshot may include a commit that has not been appended yet.
        """
        if after < self.floor:
            raise HistoryCompacted(f"history after revision {after} was compacted: changes are kept after {self.floor}")
        log = self._kind(kind)
        index = bisect.bisect_right(log.changes, after, lo=log.dropped, key=lambda change: change.revision)
        return Cursor(log, log.start + index, after)

    def lagging(self, kind: Kind, after: int) -> Cursor:
        """Return a cursor after a revision below the floor. `take` raises HistoryCompacted if changes were dropped."""
        return Cursor(self._kind(kind), -1, after)

    def take(self, cursor: Cursor, limit: int = 1000) -> Changes | None:
        """Return the changes after the cursor and move the cursor. Return None if nothing is new.

        The result holds whole commits, at least one, and at most about ``limit`` changes. Cursors at the same place
        get the same object, so don't modify it. Afterwards ``cursor.revision`` is the head, or a mark, or, if more
        changes are left, the revision of the last change taken.
        """
        log = cursor.log
        newest = log.newest
        if (
            newest is not None
            and log.newest_from == cursor.index
            and newest.changes[0].revision > cursor.revision
            and len(newest.changes) <= limit
            and not (self.marks and self.marks[-1] > cursor.revision)
        ):
            # Most watchers stand where another watcher has just taken everything.
            cursor.index += len(newest.changes)
            cursor.revision = self.head
            return newest
        changes = log.changes
        first, end = cursor.index - log.start, len(changes)
        if first < log.dropped:
            if cursor.revision < log.gone:
                raise HistoryCompacted(
                    f"a watcher of {'.'.join(log.kind)} at revision {cursor.revision} is too far behind: "
                    f"changes are kept after {self.floor}"
                )
            first = log.dropped
        # Skip changes that the snapshot already included. Only a cursor that was opened above the head meets any.
        while first < end and changes[first].revision <= cursor.revision:
            first += 1
        mark = 0
        if self.marks and self.marks[-1] > cursor.revision:
            mark = self.marks[bisect.bisect_right(self.marks, cursor.revision)]
            end = bisect.bisect_left(changes, mark, lo=first, key=lambda change: change.revision)
        if end - first > limit:
            mark = 0
            end = first + limit
            while end < len(changes) and changes[end - 1].more:
                end += 1
        cursor.index = log.start + end
        if mark:
            cursor.revision = mark
            return Changes(changes[first:end]) if first < end else None
        if end < len(changes):
            cursor.revision = changes[end - 1].revision
            return Changes(changes[first:end])
        if self.head > cursor.revision:
            cursor.revision = self.head
        if first == end:
            return None
        if log.newest is None or log.newest_from != log.start + first:
            log.newest, log.newest_from = Changes(changes[first:]), log.start + first
        return log.newest

    def formers(self, cursor: Cursor, taken: Changes) -> Formers:
        """Return the states before the changes that the cursor has just taken."""
        begin, formers = cursor.index - len(taken.changes), cursor.log.formers
        if not formers or next(reversed(formers)) < begin:
            return NO_FORMERS
        return {
            index: former for index in range(len(taken.changes)) if (former := formers.get(begin + index)) is not None
        }

    def _kind(self, kind: Kind) -> _KindLog:
        log = self._kinds.get(kind)
        if log is None:
            log = self._kinds[kind] = _KindLog(kind, self._begin)
        return log

    def _is_full(self) -> bool:
        return self._count > self._max_changes or self._bytes > self._max_bytes

    def _trim(self, now: float) -> None:
        aged = 0
        # The newest commit is always kept, so that a watcher at the head can take it.
        while len(self._commits) > 1:
            revision, counts, time, total, size = self._commits[0]
            if not self._is_full():
                if time + self._max_age >= now or aged >= MOST_AT_ONCE:
                    break
                aged += total or 1
            self._commits.popleft()
            self._count -= total
            self._bytes -= size
            self.floor = revision
            for kind, count in counts:
                log = self._kinds[kind]
                log.gone = revision
                log.drop(count)
        del self.marks[: max(0, bisect.bisect_right(self.marks, self.floor) - 1)]


def _size(resource: pb.Resource) -> int:
    """Return about the bytes of memory of a resource and its change."""
    data, metadata = resource.data, resource.metadata
    size = FIXED_SIZE if data is None else FIXED_SIZE + len(data.value)
    if metadata:
        size += sum(map(len, metadata)) + sum(map(len, metadata.values()))
    for status in resource.status.values():
        for each in status.conditions:
            size += _CONDITION_SIZE + len(each.reason) + len(each.message)
    return size
