"""The answer to "why is this not done?" as values. No I/O.

Each class has a message of the same name and fields in ``headway.observe.v1``. Times are seconds since 1970; 0 is
unknown. Texts and sequences are empty where there is nothing to say.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from headway.resource import DEFAULT_UNIT, ResourceId, TypeName

RECONCILES = 10
"""The number of past reconciles of a key in an answer. Consecutive failures that are alike count as one."""
FAILURES = ("failed", "permanent")
"""The outcomes of a reconcile that failed."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A resource, or all of a type if ``name`` is empty."""

    type: str = ""
    partition: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, type: TypeName, key: tuple[str, str, str]) -> Ref:
        """Return the reference to a key of a type."""
        return cls(str(type), *key)

    @property
    def kind(self) -> str:
        """The type without its group and version."""
        return self.type.rpartition(".")[2]

    def id(self) -> ResourceId:
        """Return the reference as an id, without uid."""
        group, version, kind = self.type.split(".")
        return ResourceId(TypeName(group, version, kind), self.name, self.partition, self.namespace)

    def __str__(self) -> str:
        units = [] if self.partition in ("", DEFAULT_UNIT) else [self.partition]
        if units or self.namespace not in ("", DEFAULT_UNIT):
            units.append(self.namespace)
        return f"{self.kind} {'/'.join(filter(None, (*units, self.name)))}".rstrip()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in the stored status. ``current`` is True if its writer had observed the current generation."""

    by: str = ""
    type: str = ""
    state: str = ""
    current: bool = False
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Finalizer:
    """A finalizer, and the controller that removes it; empty if it is not Headway's and no known one has that name."""

    name: str = ""
    controller: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored resource, without its payload."""

    version: str = ""
    generation: str = ""
    owner: Ref | None = None
    deleting: bool = False
    conditions: tuple[Condition, ...] = ()
    finalizers: tuple[Finalizer, ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason to reconcile.

    Attributes:
        what: ``changed``, ``started``, ``owed``, ``retry``, ``requeue``, ``operator`` or ``source NAME``.
        resource: the resource that changed, as ``revision``.
        through: the mapper; empty for the resource's own change.
        writer: the controller or token that wrote the change; empty if it is not known.
    """

    what: str = ""
    resource: Ref | None = None
    revision: int = 0
    through: str = ""
    writer: str = ""


@dataclass(frozen=True, slots=True)
class Touched:
    """A resource, index or type that a reconcile has read or written, and how.

    Attributes:
        revision: the revision that a write has committed, or the version of a resource that was read from the cache.
            The latter is 0 if the resource was absent, or if versions were not being recorded (see `VersionedReads`).
    """

    how: str = ""
    resource: Ref | None = None
    revision: int = 0

    def __str__(self) -> str:
        what = "" if self.resource is None else str(self.resource)
        if self.how == "get":
            return f"{what} at version {self.revision}" if self.revision else what
        return f"{what} by {self.how}"


@dataclass(frozen=True, slots=True)
class PastReconcile:
    """A reconcile that ended at ``at``. ``outcome`` is done, requeue, failed or permanent.

    Attributes:
        alike: the number of consecutive failures that it stands for. It is the last of them. They have the same error,
            and have read and written the same resources, whatever the versions.
        first_at, first_attempt, first_seconds: when the first of these failures ended, its attempt and its duration.
    """

    at: float = 0.0
    outcome: str = ""
    seconds: float = 0.0
    waited: float = 0.0
    attempt: int = 0
    causes: tuple[Cause, ...] = ()
    reads: tuple[Touched, ...] = ()
    writes: tuple[Touched, ...] = ()
    error: str = ""
    traceback: str = ""
    alike: int = 1
    first_at: float = 0.0
    first_attempt: int = 0
    first_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PrimingType:
    """A type that a run waits for: what it has received, and the revision that it has to reach."""

    type: str = ""
    received: int = 0
    revision: int = 0
    target: int = 0
    cut_off: str = ""


@dataclass(frozen=True, slots=True)
class UnmappedChange:
    """A change whose mapper or predicate raised, so that its keys are not known. ``until`` is the next attempt."""

    resource: Ref | None = None
    revision: int = 0
    function: str = ""
    error: str = ""
    traceback: str = ""
    failures: int = 0
    since: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class TurnedAwayChange:
    """A change that a predicate turned away."""

    at: float = 0.0
    resource: Ref | None = None
    revision: int = 0
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The resources that an index lacks because its function raised: their number, and one of them with its error."""

    index: str = ""
    count: int = 0
    resource: Ref | None = None
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class LeaseNow:
    """A lease as the server knows it.

    Attributes:
        holder: the process that holds it; empty if none does now.
        since: when the holder acquired it.
        renewed, until: when the holder renewed it last, and when it ends without a renewal.
        connected: True if the holder runs the controller and this server asks it, or is itself the holder.
    """

    name: str = ""
    holder: str = ""
    since: float = 0.0
    renewed: float = 0.0
    until: float = 0.0
    connected: bool = False


@dataclass(frozen=True, slots=True)
class ControllerWhy:
    """The state of the resource in one controller, in one process.

    Attributes:
        name: the app and the name of the controller, ``staff/teams``.
        role: ``manages`` or ``watches``.
        state: one of the states in docs/guides/why.md; empty for a controller that only watches, while it is running.
        since: when it entered this state.
        until: the time of the next attempt.
        owed_since: when the work became pending. Failures do not reset it.
        attempt: the number of the current or the next attempt.
        error, traceback: of the last failure.
        stack: where a running reconcile waits.
        holder: the process that holds the lease or the shard; empty if the caller may not read the lease.
        shard: the number of the shard plus 1; 0 if the controller is not sharded.
        held_write: the resource whose write has an unknown outcome.
        held_by: the resource whose reconcile made that write.
        behind: the number of changes that wait until all types have reached them.
        paused: True if an operator has paused the controller, for ``pause_reason``.
        left_out: the indexes of the controller that lack resources.
        busy, busy_since: if the work is queued and every worker is busy, the key that has been reconciled for longest,
            and since when.
        workers: the number of workers, in that case.
        restarts: the number of earlier runs that have ended, and ``restart_error`` why the last one ended.
        events_lost: the number of events of the controller that this process could not store.
        events_error, events_lost_at: why and when the last of these events was lost.
        lease: the lease that a controller on standby waits for; None if the asked process does not know it, or the
            caller may not read it.
        writes_held: the writes that the controller's ``write_limit`` holds back, as a sentence without its subject.
    """

    name: str = ""
    process: str = ""
    role: str = ""
    state: str = ""
    since: float = 0.0
    until: float = 0.0
    owed_since: float = 0.0
    attempt: int = 0
    causes: tuple[Cause, ...] = ()
    error: str = ""
    traceback: str = ""
    stack: str = ""
    holder: str = ""
    shard: int = 0
    priming: tuple[PrimingType, ...] = ()
    held_write: Ref | None = None
    held_by: Ref | None = None
    unmapped: tuple[UnmappedChange, ...] = ()
    unmapped_count: int = 0
    behind: int = 0
    turned_away: tuple[TurnedAwayChange, ...] = ()
    reconciles: tuple[PastReconcile, ...] = ()
    paused: bool = False
    pause_reason: str = ""
    events_lost: int = 0
    events_error: str = ""
    events_lost_at: float = 0.0
    left_out: tuple[LeftOut, ...] = ()
    busy: Ref | None = None
    busy_since: float = 0.0
    workers: int = 0
    restarts: int = 0
    restart_error: str = ""
    lease: LeaseNow | None = None
    writes_held: str = ""

    @property
    def lease_name(self) -> str:
        """The name of the lease under which the controller works on the resource."""
        return f"{self.name}#{self.shard - 1}" if self.shard else self.name


@dataclass(frozen=True, slots=True)
class PastWrite:
    """A committed write of the resource.

    Attributes:
        verb: created, written, status KEY written, marked for deletion, or deleted.
        writer: the controller and its process, the token, or a program in the server's process; empty if it is not
            known, because the server serves its network without access control.
    """

    at: float = 0.0
    revision: int = 0
    verb: str = ""
    writer: str = ""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """Equal events of the resource, which a controller has recorded for its users."""

    first: float = 0.0
    last: float = 0.0
    count: int = 0
    controller: str = ""
    reason: str = ""
    text: str = ""
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A process that ran controllers of the type until ``since``, and is no longer connected."""

    process: str = ""
    since: float = 0.0
    controllers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """Why a resource is, or is not, done.

    Attributes:
        at: the time of the answer.
        stored: the stored resource; None if it does not exist.
        controllers: the controllers that manage or watch the type, in each process that answered.
        writes: the last writes of the resource, the newest first.
        unreachable: the processes that did not answer.
        events: the events that its controllers have recorded for its users, the latest first.
    """

    at: float = 0.0
    resource: Ref | None = None
    stored: Stored | None = None
    controllers: tuple[ControllerWhy, ...] = ()
    writes: tuple[PastWrite, ...] = ()
    unreachable: tuple[str, ...] = ()
    gone: tuple[Gone, ...] = ()
    events: tuple[PastEvent, ...] = ()

    def sentences(self) -> list[str]:
        """Return the answer for people, one line each."""
        from headway.why.answers._sentences import why_sentences

        return why_sentences(self)

    def as_object(self) -> dict[str, Any]:
        """Return the answer as a JSON object."""
        return dataclasses.asdict(self)


def short_name(function: str) -> str:
    """Return a name of a function for people: without the functions that it is nested in."""
    return function.rpartition("<locals>.")[2]
