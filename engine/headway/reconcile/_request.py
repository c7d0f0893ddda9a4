"""A reconciler's request, its possible results, and the key that a task works on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from headway.base import is_within
from headway.errors import InvalidArgument
from headway.protobuf import Payload
from headway.queue import Dequeued
from headway.resource import Key, ResourceId, TypeName

P = TypeVar("P", bound=Payload, default=Any)


class Reason(NamedTuple):
    """An event that caused a key to be reconciled.

    Attributes:
        what: ``changed``, ``started``, ``owed``, ``retry``, ``requeue``, ``operator`` or ``source NAME``.
        type: the type that changed, if any.
        key: the key of the resource that changed.
        revision: the revision of the change.
    """

    what: str
    type: TypeName | None = None
    key: Key | None = None
    revision: int = 0

    def __str__(self) -> str:
        if self.type is None or self.key is None:
            return self.what
        return f"{self.type.kind} {self.key[2]} {self.what} at {self.revision}"

    @property
    def trace_id(self) -> str:
        """The id of the trace that the change is part of, as 32 hexadecimal digits; empty if it is part of none."""
        return ""


def trace_id_of(reasons: Iterable[Reason]) -> str:
    """Return the id of the trace of a reconcile with these reasons, or an empty text."""
    return next((each.trace_id for each in reasons if each.trace_id), "")


class Request(NamedTuple, Generic[P]):
    """A request to reconcile a resource of the managed type, which may no longer exist.

    A controller that manages teams gets a ``Request[Team]``. Pass it to `Runtime.resource` to get the team.

    Attributes:
        id: the type, tenancy and name. It has no uid, so it refers to whichever resource has the name now.
        reasons: the reasons for this reconcile. If there are many, only the first few and the last few.
        attempt: the number of consecutive attempts, from 1.
    """

    id: ResourceId
    reasons: tuple[Reason, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """A result that reports success and requests another reconcile of the key after ``seconds``."""

    seconds: float

    def __post_init__(self) -> None:
        given: object = self.seconds
        # True is an int, and no number of seconds that anyone would mean.
        if isinstance(given, bool) or not (isinstance(given, int | float) and math.isfinite(given) and given >= 0):
            raise InvalidArgument(f"requeue_after: seconds must be a finite number >= 0, not {given!r}")


class NotDue(RequeueAfter):
    """The result of a timer that is called before its time, so that its function is not called. It is no reconcile."""

    __slots__ = ()


Result = RequeueAfter | None
"""The result of a reconciler, which may request another reconcile. To report a failure, raise an exception."""


def requeue_after(seconds: float) -> RequeueAfter:
    """Report success, and reconcile the key again after some seconds: ``return headway.requeue_after(30)``"""
    return RequeueAfter(seconds)


def requeue_now() -> RequeueAfter:
    """Report success and reconcile the key again at once, after the keys that are already waiting."""
    return RequeueAfter(0.0)


class KeyAtWork:
    """The key that a task is processing now; None between two keys."""

    __slots__ = ("key",)

    def __init__(self, key: Key | None = None) -> None:
        self.key = key


class OwnStatuses:
    """The statuses that one reconcile writes on its own resource, and whether it has looked at what they change.

    If it has not, another reconcile would do the same as this one, so these statuses need none (C6).

    Attributes:
        looked: True if it has read the status or the version of its resource, in whatever form.
        ended: True if it has ended.
        put_off: the changes by these statuses that were mapped to its key before it ended.
    """

    __slots__ = ("ended", "looked", "put_off")

    def __init__(self) -> None:
        self.looked = self.ended = False
        self.put_off: list[Reason] = []


class Reconciling(KeyAtWork):
    """The key that a worker is reconciling, and a flag that is set once the reconcile has written.

    All tasks of the reconcile share it.

    Attributes:
        began: when the reconcile began, on Trio's clock.
        dequeued: the key as it was dequeued, with its attempt and reasons; None before the first.
        reads: what it has read, for the journal (`cache.READING`). All keys of a worker share the list.
        writes: its first acknowledged writes, for the journal.
        task: the worker's task; None if no worker reconciles the key.
        scope: the cancel scope with the deadline of the reconcile, in that task.
        type: the type of the resource; None if no worker reconciles the key.
        statuses: what it has to do with its own status; None if it has neither looked at it nor written it.
    """

    __slots__ = (
        *("_left", "_outputs", "_outputs_of", "_stops", "began", "dequeued", "reads", "scope", "statuses"),
        *("task", "type", "writes", "wrote"),
    )

    def __init__(self, key: Key | None = None, type: TypeName | None = None) -> None:
        super().__init__(key)
        self.type = type
        self.statuses: OwnStatuses | None = None
        self.wrote = False
        self.began = 0.0
        self.dequeued: Dequeued[Key, Reason] | None = None
        self.reads: list[Any] = []
        self.writes: list[Any] = []
        self.task: Any = None
        self.scope: Any = None
        # The number of calls of `stop_clock` that still count, and the seconds that were left at the first of them.
        self._stops, self._left = 0, 0.0
        self._outputs = set[object]()
        self._outputs_of: Dequeued[Key, Reason] | None = None

    def outputs(self) -> set[object]:
        """Return the blocks of outputs of this reconcile, by type and owner. The caller adds and removes them."""
        if self._outputs_of is not self.dequeued:
            # The worker reconciles another key now, or this one again.
            self._outputs, self._outputs_of = set(), self.dequeued
        return self._outputs

    def states(self, type: TypeName, key: Key) -> OwnStatuses | None:
        """Return its statuses if the current task writes one on the resource that it reconciles, and None otherwise.

        A task that the reconcile has left in another nursery is none of its own: it may go on for the next key.
        """
        return self.own() if key == self.key and type == self.type and is_within(self.task) else None

    def own(self) -> OwnStatuses:
        """Return what it has to do with its own status, which begins with this call if there was nothing."""
        if self.statuses is None:
            self.statuses = OwnStatuses()
        return self.statuses

    def stop_clock(self, now: float) -> None:
        """Suspend the deadline. It runs on once `start_clock` has been called as often as this method.

        Both are called in a task of the reconcile, which ends before the reconcile does.
        """
        self._stops += 1
        if self._stops == 1:
            self._left, self.scope.deadline = self.scope.deadline - now, math.inf

    def start_clock(self, now: float) -> None:
        """Undo one call of `stop_clock`."""
        self._stops -= 1
        if not self._stops:
            self.scope.deadline = now + self._left


RECONCILING: ContextVar[Reconciling | None] = ContextVar("headway.reconciling", default=None)
"""Set once in each worker's task. The tasks that a reconcile starts inherit it."""


MAPPING: ContextVar[KeyAtWork | None] = ContextVar("headway.mapping", default=None)
"""The key that a task processes outside of a reconcile, for tools that inspect tasks.

Set in a run's mapping tasks, and in a daemon's task to its resource.
"""

CONTROLLER: ContextVar[str] = ContextVar("headway.controller", default="")
"""The name of the controller that a task belongs to. Set by its supervisor, and inherited by all tasks of its runs."""


@contextmanager
def reconciling(key: Key) -> Iterator[None]:
    """Mark a block as a reconcile of the key, as in a worker: writes in the block are attributed to the key."""
    token = RECONCILING.set(Reconciling(key))
    try:
        yield
    finally:
        RECONCILING.reset(token)
