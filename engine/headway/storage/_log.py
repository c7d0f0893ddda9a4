"""The commit log: what happened, in order, for watchers that come and go. Pure: no Trio, no I/O, no clock.

Rules:
1. Revisions are appended in rising order; `head` is the last one. A revision may be appended with no changes (a
   fence); it moves the head all the same.
2. A cursor stands after a revision, in one kind. `take` hands out what has been appended since, in order, whole
   commits only, and moves the cursor. So a snapshot at revision S joined with a cursor after S has neither a gap
   nor a repeat, whatever was appended between the two.
3. History is bounded by count and by age, in whole commits, oldest first; `floor` is the revision up to which it
   is gone. What has grown too old all at once is dropped with the next few commits. A cursor whose next change is
   gone gets HistoryCompacted, at `take` or at `cursor`.
4. A pin at revision R keeps everything after R, until it is released or its time has passed.
5. What is taken at once is all before a mark or all after it, and a cursor stops at each: an incarnation begins there,
   and who hears of changes must know of which incarnation they are.

Writers never wait for watchers: a log knows nothing of its cursors.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

from headway.errors import HistoryCompacted
from headway.resource import Change, Changes, Kind, pb

COMPACT_AFTER = 1024
"""How many places of dropped changes may stay at the front of a kind's list before they are deleted together."""

MOST_AT_ONCE = 1000
"""How many changes that have grown too old are dropped with one commit: some milliseconds of work for its writer."""

_DROPPED = Change(0, pb.Resource(), False, False)
"""What stands in the place of a dropped change, so that the list does not hold the resource any more."""


LogChange = tuple[Kind, pb.Resource, bool]
"""(kind, resource, whether deleted), as `CommitLog.append` takes them."""


class _KindLog:
    """The changes of one kind. `start` counts those deleted from the front; those up to `gone` are not kept."""

    __slots__ = ("changes", "dropped", "gone", "kind", "newest", "newest_from", "one", "start")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.changes: list[Change] = []
        self.start = 0
        # The places at the front of the list whose changes are dropped: to delete each would cost O(n).
        # Invariant: there is nothing but `_DROPPED` in them.
        self.dropped = 0
        self.gone = 0
        # What most commits say of how much they changed; one object for all of them.
        self.one = ((kind, 1),)
        # What the last cursor took that came to the end, and the index it began at: most watchers stand at one
        # place, and share it. Invariant: None, or it goes to the end of `changes` and is still kept as a whole.
        self.newest: Changes | None = None
        self.newest_from = 0

    def drop(self, count: int) -> None:
        self.newest = None
        dropped = self.dropped + count
        for place in range(self.dropped, dropped):
            self.changes[place] = _DROPPED
        if dropped > COMPACT_AFTER and dropped * 2 > len(self.changes):
            del self.changes[:dropped]
            self.start += dropped
            dropped = 0
        self.dropped = dropped


class Cursor:
    """A place in the changes of one kind."""

    __slots__ = ("index", "log", "revision")

    def __init__(self, log: _KindLog, index: int, revision: int) -> None:
        self.log = log
        # Invariant: `index` counts the changes of this kind since the log began; all before it are taken.
        self.index = index
        # Invariant: everything of this kind up to `revision` has been taken.
        self.revision = revision


class CommitLog:
    """The log of one store.

    Args:
        head: the revision that the store stands at when the log begins; there is no history before it.
        max_changes: how many changes are kept.
        max_age: for how many seconds, by the clock whose readings `append` is given.
    """

    def __init__(self, head: int = 0, *, max_changes: int = 100_000, max_age: float = 3600.0) -> None:
        self.head = head
        self.floor = head
        # Revisions with no changes, in order. Invariant: at most the first is not above the floor. A cursor that has
        # missed nothing may stand before it, where nothing of its kind has been dropped.
        self.marks: list[int] = []
        self._max_changes = max_changes
        self._max_age = max_age
        self._kinds: dict[Kind, _KindLog] = {}
        # One (revision, kinds with how many changes, time, changes in all) for each commit that is kept.
        self._commits: deque[tuple[int, tuple[tuple[Kind, int], ...], float, int]] = deque()
        self._count = 0
        self._pins: dict[object, tuple[int, float]] = {}

    def append(self, revision: int, changes: Sequence[LogChange], now: float) -> None:
        """Add a commit's changes (kind, resource, whether deleted). Raises ValueError when revisions don't rise."""
        if revision <= self.head:
            raise ValueError(f"revision {revision} must be above {self.head}, the last one appended")
        if len(changes) == 1:
            kind, resource, deleted = changes[0]
            log = self._kind(kind)
            log.changes.append(Change(revision, resource, deleted, False))
            log.newest = None
            counts: tuple[tuple[Kind, int], ...] = log.one
        else:
            counts = self._append_many(revision, changes)
        self.head = revision
        self._count += len(changes)
        self._commits.append((revision, counts, now, len(changes)))
        if self._count > self._max_changes or self._commits[0][2] + self._max_age < now:
            self._trim(now)

    def _append_many(self, revision: int, changes: Sequence[LogChange]) -> tuple[tuple[Kind, int], ...]:
        by_kind: dict[Kind, list[tuple[pb.Resource, bool]]] = {}
        for kind, resource, deleted in changes:
            by_kind.setdefault(kind, []).append((resource, deleted))
        for kind, group in by_kind.items():
            last = len(group) - 1
            log = self._kind(kind)
            log.changes.extend(
                Change(revision, resource, deleted, index < last) for index, (resource, deleted) in enumerate(group)
            )
            log.newest = None
        return tuple((kind, len(group)) for kind, group in by_kind.items())

    def mark(self) -> None:
        """An incarnation begins with the commit at the head, which has changed no resource."""
        self.marks.append(self.head)

    def cursor(self, kind: Kind, after: int) -> Cursor:
        """A cursor after a revision. Raises HistoryCompacted when what followed is no longer kept.

        ``after`` may be above the head: a snapshot may stand at a commit that has not been appended yet.
        """
        if after < self.floor:
            raise HistoryCompacted(f"history after revision {after} is gone: kept are the changes after {self.floor}")
        log = self._kind(kind)
        index = bisect.bisect_right(log.changes, after, lo=log.dropped, key=lambda change: change.revision)
        return Cursor(log, log.start + index, after)

    def take(self, cursor: Cursor, limit: int = 1000) -> Changes | None:
        """What is new since the cursor, at least one whole commit, at most about ``limit`` changes; None: nothing is.

        Cursors at one place are given one object: it is shared, and written to by nobody.
        Afterwards ``cursor.revision`` is the head, or a mark, or that of the last change taken when there is more.
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
            # Most watchers stand where another one has just taken everything.
            cursor.index += len(newest.changes)
            cursor.revision = self.head
            return newest
        changes = log.changes
        first, end = cursor.index - log.start, len(changes)
        if first < log.dropped:
            if cursor.revision < log.gone:
                raise HistoryCompacted(
                    f"a watcher of {'.'.join(log.kind)} at revision {cursor.revision} is too far behind: "
                    f"kept are the changes after {self.floor}"
                )
            first = log.dropped
        # Only a cursor that was made above the head meets changes that its snapshot has already shown.
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

    def pin(self, revision: int, until: float) -> object:
        """Keep what comes after ``revision`` until then (by `append`'s clock), or until `release`."""
        token = object()
        self._pins[token] = (revision, until)
        return token

    def release(self, token: object) -> None:
        """Let go of a pin. Idempotent."""
        self._pins.pop(token, None)

    def _kind(self, kind: Kind) -> _KindLog:
        log = self._kinds.get(kind)
        if log is None:
            log = self._kinds[kind] = _KindLog(kind)
        return log

    def _trim(self, now: float) -> None:
        for token in [token for token, (_, until) in self._pins.items() if until < now]:
            del self._pins[token]
        keep = min((revision for revision, _ in self._pins.values()), default=self.head)
        aged = 0
        # The newest commit always stays, so that a head watcher can take it.
        while len(self._commits) > 1:
            revision, counts, time, total = self._commits[0]
            if self._count <= self._max_changes:
                if time + self._max_age >= now or aged >= MOST_AT_ONCE:
                    break
                aged += total or 1
            if revision > keep:
                break
            self._commits.popleft()
            self._count -= total
            self.floor = revision
            for kind, count in counts:
                log = self._kinds[kind]
                log.gone = revision
                log.drop(count)
        del self.marks[: max(0, bisect.bisect_right(self.marks, self.floor) - 1)]
