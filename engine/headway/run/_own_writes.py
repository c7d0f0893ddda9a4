"""The writes of a run, which come back to it as changes. No I/O.

A write that the run made is recognized by its revision. `not_own_writes` drops such an echo. In doubt a change does not
count as an echo, because a foreign change that was taken for an echo would be lost.

A reconcile that writes the status of the resource that it reconciles has seen all that this write contains. If it has
looked neither at the status nor at the version of the resource, its key needs no other reconcile because of the write.
Any other change has a reason of its own, also one between what the reconcile has read and its write.
"""

from __future__ import annotations

from collections import OrderedDict
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
