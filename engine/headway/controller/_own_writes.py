"""The writes of a run, recognized by revision. No I/O.

A write that the run made comes back to it as a change. `not_own_writes` drops such an echo. In doubt a change does not
count as an echo, because a foreign change that was taken for an echo would be lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from headway.cache import Applied
from headway.client import Acknowledged
from headway.resource import Key, TypeName

KEPT = 10_000
"""The number of writes that are remembered. Older ones count as written by others."""


class OwnWrite(NamedTuple):
    """An acknowledged write.

    Attributes:
        what: ``written``, ``deleted`` or ``status``.
        by: the key whose reconcile made the write; None if no reconcile did.
    """

    type: TypeName
    key: Key
    revision: int
    what: str
    by: Key | None
    status_key: str = ""

    def __str__(self) -> str:
        what = f"status {self.status_key} written" if self.what == "status" else self.what
        return f"{self.type.kind} {self.key[2]} {what} at {self.revision}"


class Reconciling:
    """The key that a worker is reconciling, as seen by the tasks of that reconcile."""

    __slots__ = ("key", "wrote")

    def __init__(self) -> None:
        self.key: Key | None = None
        self.wrote = False


RECONCILING: ContextVar[Reconciling | None] = ContextVar("headway.reconciling", default=None)
"""Set once in each worker's task. The tasks that a reconcile starts inherit it."""


class Mapping:
    """The key that a task is processing outside of a reconcile, for tools that inspect tasks."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Key | None = None


MAPPING: ContextVar[Mapping | None] = ContextVar("headway.mapping", default=None)
"""Set in a run's mapping tasks, and in a daemon's task to its resource."""

CONTROLLER: ContextVar[str] = ContextVar("headway.controller", default="")
"""The name of the controller that a task belongs to. Set by its supervisor, and inherited by all tasks of its runs."""


@contextmanager
def reconciling(key: Key) -> Iterator[None]:
    """Mark a block as a reconcile of the key, as in a worker: writes in the block are attributed to the key."""
    by_hand = Reconciling()
    by_hand.key = key
    token = RECONCILING.set(by_hand)
    try:
        yield
    finally:
        RECONCILING.reset(token)


class OwnWrites:
    """The writes of one run.

    Attributes:
        latest: the writes by revision, the oldest first.
    """

    def __init__(self) -> None:
        self.latest: OrderedDict[int, OwnWrite] = OrderedDict()

    def note(self, write: Acknowledged) -> None:
        """Record an acknowledged write."""
        reconciling = RECONCILING.get()
        by = None
        if reconciling is not None:
            by, reconciling.wrote = reconciling.key, True
        what = "deleted" if write.deleted else "status" if write.status_key else "written"
        revision = write.position.revision if write.stored is None else int(write.stored.version)
        self.latest[revision] = OwnWrite(write.type.name, write.key, revision, what, by, write.status_key)
        if len(self.latest) > KEPT:
            self.latest.popitem(last=False)

    def find(self, type: TypeName | None, key: Key | None, revision: int) -> OwnWrite | None:
        """Return this run's write that was acknowledged with this revision of this resource, or None.

        Deleting what is already deleted, or setting a status to its stored value, returns a revision that may come from
        another writer.
        """
        write = self.latest.get(revision)
        return write if write is not None and write.type == type and write.key == key else None

    def is_own(self, type: TypeName, applied: Applied) -> bool:
        """Return True if a change is certainly an echo of this run's write."""
        write = self.find(type, applied.key, applied.revision)
        if write is None or write.what == "deleted":
            return False
        return write.what == "written" or _is_status_alone(applied, write.status_key)


def _is_status_alone(applied: Applied, key: str) -> bool:
    """Return True if a change affects only one status. The writer that received its revision has then written it."""
    old, new = applied.old, applied.new
    if old is None or new is None or old.generation != new.generation:
        return False
    mine, theirs = new.status.get(key), old.status.get(key)
    return mine != theirs and {**new.status, key: None} == {**old.status, key: None}
