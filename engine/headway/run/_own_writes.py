"""The writes of a run, and the keys that trigger themselves by them. No I/O.

A write that the run made comes back to it as a change, and is recognized by its revision. `not_own_writes` drops such
an echo. In doubt a change does not count as an echo, because a foreign change that was taken for an echo would be lost.

A reconcile whose write maps back to its own key is called again because of that write. This is fine unless it never
ends. A reconcile counts if all its reasons are writes by earlier reconciles of the same key. After `FREE` of them in a
row the key is delayed, at first for `FIRST` seconds, doubling up to `LONGEST`. A delayed key stays pending. Any other
reason ends the delay at once, and so does a reconcile that writes nothing.

A reconcile that writes the status of the resource that it reconciles has seen all that this write contains. If it has
looked neither at the status nor at the version of the resource, its key needs no other reconcile because of the write.
Any other change has a reason of its own, also one between what the reconcile has read and its write. Otherwise, a key
whose only reasons are statuses that its own reconcile wrote is always delayed, by `MERGING` seconds and up to
`TICK` more, so that many keys become due at once. A change that arrives in this time is handled by the same reconcile.
The key stays pending, so no change is lost.

The time is an argument, in seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from headway.cache import MOST_READS, Applied
from headway.client import Acknowledged
from headway.reconcile import RECONCILING, OwnStatuses, Reason
from headway.resource import Key, TypeName

KEPT = 10_000
"""The number of writes that are remembered. Older ones count as written by others."""


class OwnWrite(NamedTuple):
    """An acknowledged write.

    Attributes:
        what: ``written``, ``deleted`` or ``status``.
        by: the key whose reconcile made the write; None if no reconcile did.
        own: the statuses of that reconcile, if it wrote the status of the resource that it reconciled.
    """

    type: TypeName
    key: Key
    revision: int
    what: str
    by: Key | None
    status_key: str = ""
    own: OwnStatuses | None = None

    def __str__(self) -> str:
        what = f"status {self.status_key} written" if self.what == "status" else self.what
        return f"{self.type.kind} {self.key[2]} {what} at {self.revision}"


class OwnWrites:
    """The writes of one run.

    Attributes:
        latest: the writes by revision, the oldest first.
    """

    def __init__(self) -> None:
        self.latest: OrderedDict[int, OwnWrite] = OrderedDict()

    def note(self, write: Acknowledged) -> None:
        """Record an acknowledged write, unless it certainly changed nothing and so was not committed."""
        if write.unchanged:
            return
        revision = write.position.revision if write.stored is None else int(write.stored.version)
        if revision in self.latest or revision != write.position.revision:
            # A commit has a new revision, and the reply to it has no other. This is an earlier write's.
            return
        reconciling = RECONCILING.get()
        by = statuses = None
        if reconciling is not None:
            by, reconciling.wrote = reconciling.key, True
            if write.status_key:
                statuses = reconciling.states(write.type.name, write.key)
        what = "deleted" if write.deleted else "status" if write.status_key else "written"
        own = OwnWrite(write.type.name, write.key, revision, what, by, write.status_key, statuses)
        self.latest[revision] = own
        if reconciling is not None and len(reconciling.writes) < MOST_READS:
            reconciling.writes.append(own)
        if len(self.latest) > KEPT:
            self.latest.popitem(last=False)

    def find(self, type: TypeName | None, key: Key | None, revision: int) -> OwnWrite | None:
        """Return this run's write that was acknowledged with this revision of this resource, or None.

        Deleting what is already deleted returns a revision that may come from another writer. With a server that does
        not tell, so does setting a status to its stored value.
        """
        write = self.latest.get(revision)
        return write if write is not None and write.type == type and write.key == key else None

    def is_own(self, type: TypeName, applied: Applied) -> bool:
        """Return True if a change is certainly an echo of this run's write."""
        write = self.find(type, applied.key, applied.revision)
        if write is None or write.what == "deleted":
            return False
        return write.what == "written" or _is_status_alone(applied, write.status_key)

    def needs_no_run(self, applied: Applied, reason: Reason) -> bool:
        """Return True if the reconcile of the changed key wrote this status, and has not looked at what it changes.

        It may still look before it ends, so the change is put off until then.
        """
        write = self.find(reason.type, applied.key, applied.revision)
        if write is None or (own := write.own) is None or own.looked or not _is_status_alone(applied, write.status_key):
            return False
        old, new = applied.old, applied.new
        if old is None or new is None or (old.data is not new.data and old.data != new.data):
            # The function of a projection has made its payload of the status.
            return False
        if not own.ended:
            own.put_off.append(reason)
        return True


def _is_status_alone(applied: Applied, key: str) -> bool:
    """Return True if a change affects only one status. The writer that received its revision has then written it."""
    old, new = applied.old, applied.new
    if old is None or new is None or old.generation != new.generation:
        return False
    mine, theirs = new.status.get(key), old.status.get(key)
    return mine != theirs and {**new.status, key: None} == {**old.status, key: None}


FREE = 10
"""The number of consecutive reconciles that a key may trigger itself before it is delayed."""
FIRST, LONGEST = 0.1, 60.0
MERGING = 0.05
"""The delay, in seconds, of a key that only its own status has triggered, in case another change follows."""
TICK = 0.005
"""The interval, in seconds, of the times when such keys become due. One wake-up serves all keys of an interval."""

_NEUTRAL = frozenset({"retry", "requeue"})


class Delay(NamedTuple):
    """A delay of ``seconds`` for a key before its ``runs``-th consecutive reconcile that these writes triggered.

    ``quiet`` is True if the delay is not reported: it is a usual one, or the key was already delayed and another write
    of its own has triggered it.
    """

    seconds: float
    runs: int
    writes: tuple[OwnWrite, ...]
    quiet: bool


class _Loop:
    __slots__ = ("count", "due")

    def __init__(self) -> None:
        self.count = 0
        self.due: float | None = None


def _merged(now: float) -> float:
    """Return when a key becomes due that is triggered now by its own status."""
    return now + MERGING + -(now + MERGING) % TICK


class SelfTriggers:
    """The keys of one run that were last reconciled because of their own writes.

    Attributes:
        own: the run's own writes.
        writes: these writes by revision. While it is empty, no key has triggered itself.
        loops: those keys. While it is empty, `ended` need not be called.
    """

    def __init__(self, own: OwnWrites) -> None:
        self.own = own
        self.writes = own.latest
        self.loops: dict[Key, _Loop] = {}

    def queued(self, key: Key, reason: Reason, now: float) -> float:
        """Note that a key is enqueued for this reason. Return when it becomes due, which is in the past if at once."""
        write = self._caused(key, reason)
        if write is None:
            self.loops.pop(key, None)
        elif write.what == "status":
            loop = self.loops.setdefault(key, _Loop())
            if loop.due is None and loop.count < FREE:
                loop.count += 1
                loop.due = _merged(now)
            if loop.due is not None:
                return loop.due
        return now

    def delay(self, key: Key, reasons: Iterable[Reason], attempt: int, now: float) -> Delay | None:
        """Return the delay for a key that was dequeued for these reasons, or None."""
        writes: list[OwnWrite] = []
        for reason in reasons:
            write = self._caused(key, reason)
            if write is not None:
                writes.append(write)
            elif attempt == 1 and reason.what not in _NEUTRAL:
                # A later attempt still has the reasons of the earlier ones. New reasons were already noted by `queued`.
                self.loops.pop(key, None)
                return None
        if not writes:
            return None
        loop = self.loops.setdefault(key, _Loop())
        merges = attempt == 1 and all(write.what == "status" for write in writes)
        if loop.due is not None:
            left = loop.due - now
            if left <= 0 or (loop.count <= FREE and not merges):
                loop.due = None
                return None
            return Delay(left, loop.count, tuple(writes), True)
        loop.count += 1
        if loop.count <= FREE:
            if not merges:
                return None
            loop.due = _merged(now)
            return Delay(loop.due - now, loop.count, tuple(writes), True)
        # Limit the exponent. Its maximum already gives far more than the longest delay.
        seconds = min(FIRST * 2.0 ** min(loop.count - FREE - 1, 20), LONGEST)
        loop.due = now + seconds
        return Delay(seconds, loop.count, tuple(writes), False)

    def ended(self, key: Key, *, wrote: bool) -> None:
        """Note that a reconcile of the key has ended."""
        if not wrote:
            self.loops.pop(key, None)

    def _caused(self, key: Key, reason: Reason) -> OwnWrite | None:
        """Return the write of this key's own reconcile that is the reason, or None."""
        write = self.own.find(reason.type, reason.key, reason.revision)
        return write if write is not None and write.by == key else None
