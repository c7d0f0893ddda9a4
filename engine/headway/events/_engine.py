"""The events of the controllers of an engine: of their streams, runs, reconciles, mappings, writes and leases. No I/O.

This module cannot import the packages that report events, so their types are `Any` here: ``type`` is a `TypeName`,
``id`` a `ResourceId`, ``resume_after`` a `Position`, and ``reasons`` holds `Reason` values. Times are in seconds.
"""

from __future__ import annotations

from typing import Any

from headway.events._record import Record


class StreamOpened(Record):
    """A type's stream was opened, to resume after a position or, if that is None, with a snapshot."""

    type: Any
    resume_after: Any


class StreamEnded(Record):
    """A type's stream ended and will be reopened. ``failures`` counts the consecutive failures before it."""

    type: Any
    why: str
    failures: int


class StreamLagging(Record):
    """A stream was closed because its ``revision`` was below the known ``frontier`` for too long."""

    type: Any
    revision: int
    frontier: int


class BookmarkRefused(Record):
    """A stream's bookmark proved false. The type takes a new snapshot."""

    type: Any
    why: str


class Priming(Record):
    """A controller's run began to prime a type up to its starting revision."""

    controller: str
    type: Any
    starting_revision: int


class Primed(Record):
    """A type is primed for a run: it has ``count`` resources and is complete up to ``revision``, after ``seconds``."""

    controller: str
    type: Any
    count: int
    revision: int
    seconds: float


class RunStarted(Record):
    """A run has primed all its types, and starts to map and to reconcile, with ``queued`` keys in its queue."""

    controller: str
    term: int
    starting_revision: int
    queued: int


class WatchAdded(Record):
    """A run added a watch (`Runtime.watch`) and ends. The next run has the watch.

    ``mapper`` names its mapper and, if it has one, its predicate.
    """

    controller: str
    type: Any
    mapper: str


class RunEnded(Record):
    """A run ended. ``error`` is None if it was stopped, or has ended itself to add a watch.

    The controller restarts after ``delay`` seconds, unless that is None.
    """

    controller: str
    error: BaseException | None
    delay: float | None


class ControllersClash(Record):
    """Several controllers that run, of different apps, manage resources of a type under one ``name``.

    They share a finalizer and a status, so that one of them may not clean up. Give one of them another name.
    """

    type: Any
    name: str
    controllers: tuple[str, ...]


class DeletionsUnknown(Record):
    """Resources that were deleted after revision ``settled``, while no run was active, are unknown.

    The history is compacted, or it has states that this program cannot read. ``why`` says which.
    """

    controller: str
    type: Any
    settled: int
    why: str


class Reconciled(Record):
    """A key was reconciled.

    ``outcome`` is done, requeue, failed or permanent; exceeding the deadline counts as failed. The reconcile took
    ``seconds``, after the key had been ready for ``waited`` seconds. ``attempt`` counts consecutive attempts and starts
    at 1. ``reasons`` holds the reasons since the last success, the oldest first; each failure adds a ``retry``. A long
    list is cut to the first three and the last five. A failure is logged as ``ReconcileFailed``. ``timed_out`` is True
    if the deadline passed before the reconcile ended, whatever it raised then.
    """

    controller: str
    id: Any
    outcome: str
    seconds: float
    error: BaseException | None
    retry_after: float | None
    reasons: tuple[Any, ...]
    waited: float = 0.0
    attempt: int = 1
    timed_out: bool = False


class ReconcileSlow(Record):
    """A reconcile has been running for ``seconds`` and has not ended. ``trace_id`` is empty without a trace."""

    controller: str
    id: Any
    seconds: float
    attempt: int = 1
    trace_id: str = ""


class SelfTriggered(Record):
    """A key was reconciled ``count`` times in a row only because of its own ``writes``. It is now delayed by ``delay``.

    ``writes`` holds the latest of these writes. Each has a ``type``, a ``key``, a ``revision`` and a ``what``, the kind
    of write. Any other reason to reconcile the key ends the delay at once. If ``writes`` is empty, the key has only
    requested 1,000 immediate requeues in a row within 100 s, and is not delayed. ``attempt`` is the number of the
    attempt that is delayed, and ``trace_id`` is empty without a trace.
    """

    controller: str
    id: Any
    writes: tuple[Any, ...]
    count: int
    delay: float
    attempt: int = 1
    trace_id: str = ""


class ControllersFight(Record):
    """A key's reconcile and another writer have undone each other's changes of a ``resource`` for ``turns`` turns.

    The key is now delayed by ``delay``. A reason that is not part of the fight ends the delay at once, or within 0.1 s
    if the fight may have caused it. ``by`` names the writer of the last change, at ``revision``: a controller, another
    key of this one, or a caller, as far as this process knows it. ``fields`` holds the first fields that alternate.
    Each has a ``path`` and two texts, the ``own`` and the ``other`` value, with secrets redacted.
    """

    controller: str
    id: Any
    resource: Any
    by: str
    revision: int
    fields: tuple[Any, ...]
    turns: int
    delay: float


class DaemonEnded(Record):
    """A resource's daemon raised or returned.

    If it raised, it is called again after ``retry_after``, or never if that is None. ``error`` is None if it returned.
    """

    controller: str
    id: Any
    error: BaseException | None
    retry_after: float | None


class SourceFailed(Record):
    """A source's function raised for one ``value`` or returned an invalid id. That value triggers no reconcile.

    Reported at most once a second for each source. ``suppressed`` counts such failures since the last report.
    """

    controller: str
    source: str
    value: Any
    error: BaseException
    suppressed: int = 0


class CallbackFailed(Record):
    """``on_start`` or ``on_stop`` raised or timed out. The run continues."""

    controller: str
    callback: str
    error: BaseException


class MappingFailed(Record):
    """A mapper or predicate raised or returned an invalid value. The change is kept and retried after ``retry_after``.

    Reported at most once a second for each type and function of a run. ``suppressed`` counts such failures since the
    last report.
    """

    controller: str
    mapper: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException
    retry_after: float
    suppressed: int = 0


class IndexFailed(Record):
    """An index function raised. The resource is left out of that index only.

    Reported at most once a second for each index of a run. ``suppressed`` counts such failures since the last report.
    """

    controller: str
    index: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException
    suppressed: int = 0


class PayloadUndecodable(Record):
    """A stored payload cannot be decoded. The resource is left out of the indexes and mappers that read the payload.

    Reported when such a function first meets the resource, at most once a second for each type. ``suppressed`` counts
    the others since the last report. Writing a payload that decodes, or deleting the resource, solves the problem.
    """

    type: Any
    key: tuple[str, str, str]
    version: str
    problem: str
    suppressed: int = 0


class ProjectionFailed(Record):
    """The function of a ``projection`` raised, so this resource's payload cannot be read.

    Reported at most once a second for each projection. ``suppressed`` counts such failures since the last report.
    """

    type: Any
    projection: str
    key: tuple[str, str, str]
    error: BaseException
    suppressed: int = 0


class ConversionFailed(Record):
    """Converting a resource from ``type`` to version ``wanted`` of the same kind failed.

    ``type`` is the version as which the resource is stored. For a write, it may also be the writer's version or one
    between the two.
    """

    type: Any
    id: Any
    wanted: str
    error: Exception


class WriteUnknown(Record):
    """A write may or may not have been stored. Every key of the controller waits until the outcome is resolved."""

    controller: str
    error: BaseException | None


class WriteResolved(Record):
    """A commit at ``revision`` raised the fence, so writes that were sent before can no longer be stored."""

    controller: str
    revision: int


class CallDelayed(Record):
    """A controller's ``call`` failed or timed out. It is repeated after ``retry_after``.

    ``controller`` is empty in a process without controllers that only looks for an engine.
    """

    controller: str
    call: str
    error: BaseException
    retry_after: float


class WritesHeld(Record):
    """A controller's writes wait, because it makes more of them than its ``limit`` allows.

    ``waiting`` is their number. Reported at most every 10 seconds. ``suppressed`` counts the writes that have begun to
    wait since the last report.
    """

    controller: str
    limit: str
    waiting: int
    suppressed: int = 0


class LeaseAwaited(Record):
    """Another process holds, in this term, a lease that this process wants."""

    name: str
    holder: str
    term: int


class LeaseTaken(Record):
    """This process holds a lease, in this term."""

    name: str
    holder: str
    term: int


class LeaseDelayed(Record):
    """Acquiring or renewing a lease failed. It is retried after ``retry_after``."""

    name: str
    error: BaseException
    retry_after: float


class LeaseEnded(Record):
    """This process no longer holds a lease: it released the lease (``error`` is None) or lost it."""

    name: str
    term: int
    error: BaseException | None


class StaleRefused(Record):
    """A change older than the content of a type's cache was refused. ``count`` is the total for this type."""

    type: Any
    what: str
    count: int


class EventNotStored(Record):
    """An event that a reconciler recorded (`Runtime.event`) could not be stored.

    ``why`` is ``full`` if too many waited, ``denied`` without the right, ``refused`` for another refusal,
    ``unavailable`` if the store did not answer, and ``ended`` if the engine ended first. Reported at most once a second
    for each controller and ``why``. ``suppressed`` counts such events since the last report.
    """

    controller: str
    type: Any
    key: tuple[str, str, str]
    reason: str
    why: str
    error: BaseException | None
    suppressed: int = 0


class HandlerFailed(Record):
    """A service's handler, or a hook of a type, raised unexpectedly. The caller received UNKNOWN or INTERNAL.

    A look of the live page at the controllers that raises is reported, too, with a ``path`` that begins with ``page:``.

    Over the network, reported at most once a second. ``suppressed`` counts such failures since the last report.
    """

    path: str
    error: BaseException
    suppressed: int = 0
