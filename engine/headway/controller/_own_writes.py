"""What a run has written itself, told by revision. Pure.

A write that a run has had acknowledged comes back to it as a change. Whether a change is such an echo decides whether
`not_own_writes` turns it away, so in doubt it isn't: a change that was taken for the run's own would be lost.
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
"""How many writes are remembered. Older ones count as others'."""


class OwnWrite(NamedTuple):
    """A write that was acknowledged.

    Attributes:
        what: ``written``, ``deleted`` or ``status``.
        by: the key whose reconcile wrote it; None: no reconcile did.
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
    """What a worker is reconciling, seen from the tasks in which that happens."""

    __slots__ = ("key", "wrote")

    def __init__(self) -> None:
        self.key: Key | None = None
        self.wrote = False


RECONCILING: ContextVar[Reconciling | None] = ContextVar("headway.reconciling", default=None)
"""Set once in each worker's task; the tasks that a reconcile starts inherit it."""


class Mapping:
    """The key of what a task is at work on outside of a reconcile, for those who look at the task."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Key | None = None


MAPPING: ContextVar[Mapping | None] = ContextVar("headway.mapping", default=None)
"""Set in the tasks that map for a run, and in a daemon's to its resource."""

CONTROLLER: ContextVar[str] = ContextVar("headway.controller", default="")
"""The name of the controller whose task this is; set by its supervisor, and inherited by all tasks of its runs."""


@contextmanager
def reconciling(key: Key) -> Iterator[None]:
    """A reconcile of the key, by hand: what is written in the block is known to be the key's, as in a worker."""
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
        latest: by revision, the oldest first.
    """

    def __init__(self) -> None:
        self.latest: OrderedDict[int, OwnWrite] = OrderedDict()

    def note(self, write: Acknowledged) -> None:
        """A write of ours was answered."""
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
        """The write of ours that was answered with this revision of this resource.

        A deletion, or a status, that was so already is answered with a revision that may be another writer's.
        """
        write = self.latest.get(revision)
        return write if write is not None and write.type == type and write.key == key else None

    def is_own(self, type: TypeName, applied: Applied) -> bool:
        """Whether a change is ours for certain."""
        write = self.find(type, applied.key, applied.revision)
        if write is None or write.what == "deleted":
            return False
        return write.what == "written" or _is_status_alone(applied, write.status_key)


def _is_status_alone(applied: Applied, key: str) -> bool:
    """Whether a change is that of one status: then who was answered with its revision has written it."""
    old, new = applied.old, applied.new
    if old is None or new is None or old.generation != new.generation:
        return False
    mine, theirs = new.status.get(key), old.status.get(key)
    return mine != theirs and {**new.status, key: None} == {**old.status, key: None}
