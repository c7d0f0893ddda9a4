"""What the rooms can report. A line, a metric and a trace are made from it elsewhere. Pure.

Each event is a frozen record whose fields name the thing and say what happened; `Report` is a function that takes
one, must not block and must not raise.

The rooms that report come after this one, so what is theirs is `Any` here: ``type`` is a `TypeName`, ``id`` a
`ResourceId`, ``resume_after`` a `Position`, ``reasons`` are `Reason`s. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A type's stream has been opened, to resume after a position or (None) with a snapshot."""

    type: Any
    resume_after: Any


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A type's stream has ended and will be opened again; ``failures`` in a row before it."""

    type: Any
    why: str
    failures: int


@dataclass(frozen=True, slots=True)
class StreamLagging:
    """A stream stood below what is already known for too long and is closed."""

    type: Any
    told: int
    frontier: int


@dataclass(frozen=True, slots=True)
class BookmarkRefused:
    """A stream's bookmark has proved false; the type takes a new snapshot."""

    type: Any
    why: str


@dataclass(frozen=True, slots=True)
class Priming:
    """A controller's run has begun to prime a type up to its starting revision."""

    controller: str
    type: Any
    starting_revision: int


@dataclass(frozen=True, slots=True)
class Primed:
    """A type is primed for a run: ``count`` resources, complete up to ``revision``, after ``seconds``."""

    controller: str
    type: Any
    count: int
    revision: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run has all its types primed, and begins to map and to reconcile ``queued`` keys."""

    controller: str
    term: int
    starting_revision: int
    queued: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has ended (``error`` None: it was stopped); it starts again after ``delay`` seconds, if that is given."""

    controller: str
    error: BaseException | None
    delay: float | None


@dataclass(frozen=True, slots=True)
class DeletionsUnknown:
    """What was deleted while no run was there can't be known: the history after ``settled`` is gone."""

    controller: str
    type: Any
    settled: int
    why: str


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A key has been reconciled. ``outcome`` is done, requeue, failed or permanent; at the deadline it is failed.

    It took ``seconds``, after the key had been ready for ``waited`` seconds. ``attempt`` is 1, or how often in a row it
    has been tried; of many reasons the first three and the last five are told.
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


@dataclass(frozen=True, slots=True)
class ReconcileSlow:
    """A reconcile has been running for ``seconds``, and still is."""

    controller: str
    id: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class SelfTriggered:
    """A key was reconciled ``count`` times in a row because of nothing but its own ``writes``: it rests for ``delay``.

    ``writes`` are the last of them: each has a ``type``, a ``key``, a ``revision`` and says ``what`` it was. Any other
    reason ends the rest at once.
    """

    controller: str
    id: Any
    writes: tuple[Any, ...]
    count: int
    delay: float


@dataclass(frozen=True, slots=True)
class DaemonEnded:
    """A resource's daemon raised, and is called again after ``retry_after`` (None: it isn't), or (no error) is done."""

    controller: str
    id: Any
    error: BaseException | None
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A source's function raised for one ``value``, or gave what is no id; nothing is reconciled because of it."""

    controller: str
    source: str
    value: Any
    error: BaseException


@dataclass(frozen=True, slots=True)
class CallbackFailed:
    """``on_start`` or ``on_stop`` raised, or took too long; the run goes on."""

    controller: str
    callback: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class MappingFailed:
    """A mapper or predicate raised, and is asked again after ``retry_after``; or (0.0) a mapper returned what it can't,
    and is not.
    """

    controller: str
    mapper: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException
    retry_after: float


@dataclass(frozen=True, slots=True)
class IndexFailed:
    """An index function raised; the resource is left out of that index alone."""

    controller: str
    index: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException


@dataclass(frozen=True, slots=True)
class ProjectionFailed:
    """The function raised that should have made a ``projection``; the payload can't be looked at."""

    type: Any
    projection: str
    key: tuple[str, str, str]
    error: BaseException


@dataclass(frozen=True, slots=True)
class WriteUnknown:
    """A write may or may not have happened; every key of the controller waits until that is settled."""

    controller: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class WriteSettled:
    """The fence has been raised by a commit at ``revision``: what was sent before can't land any more."""

    controller: str
    revision: int


@dataclass(frozen=True, slots=True)
class CallDelayed:
    """A controller's ``call`` has failed or was not answered in time, and is made again after ``retry_after``."""

    controller: str
    call: str
    error: BaseException
    retry_after: float


@dataclass(frozen=True, slots=True)
class LeaseAwaited:
    """A lease that this process wants is held by another, in this term."""

    name: str
    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """This process holds a lease, in this term."""

    name: str
    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class LeaseDelayed:
    """A lease could not be taken or renewed; that is tried again after ``retry_after``."""

    name: str
    error: BaseException
    retry_after: float


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """This process holds a lease no more: it has given it back (``error`` None), or has lost it."""

    name: str
    term: int
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class StaleRefused:
    """Something older than what a type's cache holds was refused (``count`` in all so far for this type)."""

    type: Any
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """A service's handler raised something that is no answer; the caller got UNKNOWN."""

    path: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ShutdownBlocked:
    """A task is still there ``seconds`` after its engine was told to end, and this is where it stands.

    Trio's loop may be what stands still, so this alone is reported from another thread.
    """

    task: str
    stack: str
    seconds: float


Report = Callable[[object], None]
"""Is called with every event. One with a true attribute ``failures_only`` need not be called with the `Reconciled` of a
reconcile that went well: making that event costs every one of them.
"""


def ignore(event: object) -> None:
    """Report to nobody."""


def hears_successes(report: Report) -> bool:
    """Whether a report is to be called with the `Reconciled` of what went well, too."""
    return report is not ignore and not getattr(report, "failures_only", False)
