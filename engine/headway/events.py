"""What the rooms can report. A line, a metric and a trace are made from it elsewhere. Pure.

Each event is a record that doesn't change; its fields, which `vars` gives, name the thing and say what happened.
`Report` is a function that takes one, must not block and must not raise.

The rooms that report come after this one, so what is theirs is `Any` here: ``type`` is a `TypeName`, ``id`` a
`ResourceId`, ``resume_after`` a `Position`, ``reasons`` are `Reason`s. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway._network_events import AccessChanged as AccessChanged
from headway._network_events import AuthenticationFailed as AuthenticationFailed
from headway._network_events import CallDenied as CallDenied
from headway._network_events import CertificateRefused as CertificateRefused
from headway._network_events import CertificateRenewed as CertificateRenewed
from headway._network_events import ConnectionEnded as ConnectionEnded
from headway._network_events import ConnectionRefused as ConnectionRefused
from headway._process_events import LoopBlocked as LoopBlocked
from headway._process_events import ShutdownBlocked as ShutdownBlocked
from headway._process_events import StoreFailed as StoreFailed
from headway._process_events import StoreRecovered as StoreRecovered
from headway._records import Record


class StreamOpened(Record):
    """A type's stream has been opened, to resume after a position or (None) with a snapshot."""

    type: Any
    resume_after: Any


class StreamEnded(Record):
    """A type's stream has ended and will be opened again; ``failures`` in a row before it."""

    type: Any
    why: str
    failures: int


class StreamLagging(Record):
    """A stream stood below what is already known for too long and is closed."""

    type: Any
    told: int
    frontier: int


class BookmarkRefused(Record):
    """A stream's bookmark has proved false; the type takes a new snapshot."""

    type: Any
    why: str


class Priming(Record):
    """A controller's run has begun to prime a type up to its starting revision."""

    controller: str
    type: Any
    starting_revision: int


class Primed(Record):
    """A type is primed for a run: ``count`` resources, complete up to ``revision``, after ``seconds``."""

    controller: str
    type: Any
    count: int
    revision: int
    seconds: float


class RunStarted(Record):
    """A run has all its types primed, and begins to map and to reconcile ``queued`` keys."""

    controller: str
    term: int
    starting_revision: int
    queued: int


class RunEnded(Record):
    """A run has ended (``error`` None: it was stopped); it starts again after ``delay`` seconds, if that is given."""

    controller: str
    error: BaseException | None
    delay: float | None


class DeletionsUnknown(Record):
    """What was deleted while no run was there can't be known: the history after ``settled`` is gone."""

    controller: str
    type: Any
    settled: int
    why: str


class Reconciled(Record):
    """A key has been reconciled. ``outcome`` is done, requeue, failed or permanent; at the deadline it is failed.

    It took ``seconds``, after the key had been ready for ``waited`` seconds. ``attempt`` is 1, or how often in a row it
    has been tried. ``reasons`` are those since the last success, the oldest first; each failure has added a ``retry``.
    Of many there are the first three and the last five. One that failed is logged as ``ReconcileFailed``.
    ``timed_out`` is True if the deadline passed before it ended, whatever it raised then.
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
    """A reconcile has been running for ``seconds``, and still is."""

    controller: str
    id: Any
    seconds: float


class SelfTriggered(Record):
    """A key was reconciled ``count`` times in a row because of nothing but its own ``writes``: it rests for ``delay``.

    ``writes`` are the last of them: each has a ``type``, a ``key``, a ``revision`` and says ``what`` it was. Any other
    reason ends the rest at once.
    """

    controller: str
    id: Any
    writes: tuple[Any, ...]
    count: int
    delay: float


class DaemonEnded(Record):
    """A resource's daemon raised, and is called again after ``retry_after`` (None: it isn't), or (no error) is done."""

    controller: str
    id: Any
    error: BaseException | None
    retry_after: float | None


class SourceFailed(Record):
    """A source's function raised for one ``value``, or gave what is no id; nothing is reconciled because of it.

    It is reported at most once a second for each source. ``suppressed`` is the number of such failures since the last
    report.
    """

    controller: str
    source: str
    value: Any
    error: BaseException
    suppressed: int = 0


class CallbackFailed(Record):
    """``on_start`` or ``on_stop`` raised, or took too long; the run goes on."""

    controller: str
    callback: str
    error: BaseException


class MappingFailed(Record):
    """A mapper or predicate raised, or gave what it can't. The change is kept, and asked about again after
    ``retry_after``.

    It is reported at most once a second for each type and function of a run. ``suppressed`` is the number of such
    failures since the last report.
    """

    controller: str
    mapper: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException
    retry_after: float
    suppressed: int = 0


class IndexFailed(Record):
    """An index function raised; the resource is left out of that index alone.

    It is reported at most once a second for each index of a run. ``suppressed`` is the number of such failures since
    the last report.
    """

    controller: str
    index: str
    type: Any
    key: tuple[str, str, str]
    error: BaseException
    suppressed: int = 0


class PayloadUndecodable(Record):
    """A stored payload's bytes do not decode. The resource is left out of the indexes and mappers that look at them.

    Reported when such a function first meets it, at most once a second for each type; ``suppressed`` counts the others
    since the last report. A write of a payload that decodes, or a deletion, mends it.
    """

    type: Any
    key: tuple[str, str, str]
    version: str
    problem: str
    suppressed: int = 0


class ProjectionFailed(Record):
    """The function raised that should have made a ``projection``; the payload can't be looked at.

    It is reported at most once a second for each projection. ``suppressed`` is the number of such failures since the
    last report.
    """

    type: Any
    projection: str
    key: tuple[str, str, str]
    error: BaseException
    suppressed: int = 0


class ConversionFailed(Record):
    """A resource could not be converted from ``type``, as which it is stored, to version ``wanted`` of its kind."""

    type: Any
    id: Any
    wanted: str
    error: Exception


class WriteUnknown(Record):
    """A write may or may not have happened; every key of the controller waits until that is settled."""

    controller: str
    error: BaseException | None


class WriteResolved(Record):
    """The fence has been raised by a commit at ``revision``: what was sent before can't land any more."""

    controller: str
    revision: int


class CallDelayed(Record):
    """A controller's ``call`` has failed or was not answered in time, and is made again after ``retry_after``.

    ``controller`` is empty for a process without controllers, which only looks for an engine.
    """

    controller: str
    call: str
    error: BaseException
    retry_after: float


class LeaseAwaited(Record):
    """A lease that this process wants is held by another, in this term."""

    name: str
    holder: str
    term: int


class LeaseTaken(Record):
    """This process holds a lease, in this term."""

    name: str
    holder: str
    term: int


class LeaseDelayed(Record):
    """A lease could not be taken or renewed; that is tried again after ``retry_after``."""

    name: str
    error: BaseException
    retry_after: float


class LeaseEnded(Record):
    """This process holds a lease no more: it has given it back (``error`` None), or has lost it."""

    name: str
    term: int
    error: BaseException | None


class StaleRefused(Record):
    """Something older than what a type's cache holds was refused (``count`` in all so far for this type)."""

    type: Any
    what: str
    count: int


class HandlerFailed(Record):
    """A service's handler, or a hook of a type, raised something that is no answer; the caller got UNKNOWN or INTERNAL.

    Over the network it is reported at most once a second. ``suppressed`` is the number since the last report.
    """

    path: str
    error: BaseException
    suppressed: int = 0


Report = Callable[[object], None]
"""Is called with every event, with `LoopBlocked` and `ShutdownBlocked` from a thread of its own.

One with a true attribute ``failures_only`` need not be called with the `Reconciled` of a
reconcile that went well: making that event costs every one of them.
"""


def ignore(event: object) -> None:
    """Report to nobody."""


def hears_successes(report: Report) -> bool:
    """Whether a report is to be called with the `Reconciled` of what went well, too."""
    return report is not ignore and not getattr(report, "failures_only", False)
