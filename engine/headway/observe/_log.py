"""Log lines by structlog: important events for operators at `warning`, others at `info` and `debug`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from headway import events
from headway.base import all_frames, first_leaves, own_frames, story, where_of
from headway.events import Report
from headway.reconcile import key_path, trace_id_of

_WARNINGS = (
    events.AccessChanged,
    events.AuthenticationFailed,
    events.BookmarkRefused,
    events.CallDenied,
    events.CallLimited,
    events.CallDelayed,
    events.CallbackFailed,
    events.CertificateRefused,
    events.ConnectionEnded,
    events.ConnectionRefused,
    events.ConversionFailed,
    events.DeletionsUnknown,
    events.EventNotStored,
    events.HandlerFailed,
    events.IndexFailed,
    events.IssuerFailed,
    events.IssuerKeysChanged,
    events.LeaseDelayed,
    events.LoopBlocked,
    events.MappingFailed,
    events.Paused,
    events.PayloadUndecodable,
    events.PeerNotNotified,
    events.PeerRefused,
    events.PeerStoreReplaced,
    events.ProjectionFailed,
    events.ReconcileSlow,
    events.ShutdownBlocked,
    events.SelfTriggered,
    events.SourceFailed,
    events.StoreFailed,
    events.StoreRecovered,
    events.StreamEnded,
    events.StreamLagging,
    events.WriteUnknown,
    events.WritesHeld,
)
_OF_A_RECONCILE = (events.Reconciled, events.ReconcileSlow, events.SelfTriggered)
_MAY_FAIL = (events.DaemonEnded, events.LeaseEnded, events.Reconciled, events.RunEnded)
_FAILED = {events.Reconciled: "ReconcileFailed", events.DaemonEnded: "DaemonFailed"}
_INFOS = (
    events.CertificateRenewed,
    events.LeaseAwaited,
    events.LeaseEnded,
    events.LeaseTaken,
    events.Primed,
    events.Resumed,
    events.RunEnded,
    events.RunStarted,
    events.WatchAdded,
    events.WriteResolved,
)


_SOON = 2.0
"""The delay, in seconds, of a retry below which its failure is not logged if it is the same as before."""
_MOST_REPEATED, _MOST_KEYS = 100, 1_000


class _Repeats:
    """The last errors of the keys that have failed last, and how often each was left out of the log since its line.

    A back-off begins with milliseconds, so that one mistake would fill the log before anybody can read it.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, object], tuple[str, int]] = OrderedDict()

    def before(self, event: object) -> int | None:
        """Return how often a failure was left out before this one, or None to leave it out as well."""
        if not isinstance(event, events.Reconciled | events.DaemonEnded) or not isinstance(event.error, BaseException):
            return 0
        of, error = (event.controller, event.id), f"{story(event.error)} at {_where(event.error)}"
        last, count = self._last.pop(of, ("", 0))
        first = isinstance(event, events.Reconciled) and event.attempt == 1
        left_out = error == last and not first and event.retry_after is not None and event.retry_after < _SOON
        left_out = left_out and count < _MOST_REPEATED
        self._last[of] = error, count + 1 if left_out else 0
        if len(self._last) > _MOST_KEYS:
            self._last.popitem(last=False)
        return None if left_out else 0 if first else count


def _where(error: BaseException) -> str:
    return ", ".join(filter(None, map(where_of, first_leaves(error))))


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """Return a report that logs problems as warnings, with the event's name and fields.

    An error is logged as its class and message, and a group of errors as one text. ``where`` is the program's innermost
    line that the error passed through, and ``stack`` shows the program's own frames down to the raise. ``reasons`` has
    the reasons of this attempt. A retry without new reasons repeats the reasons of the failed attempt, and adds
    ``retry``.

    A retry that soon fails with the same error at the same place is not logged. The next line of its resource counts
    these in ``repeated``.

    A line about a reconcile has ``controller``, ``key`` and ``attempt``, and ``trace_id`` if the reconcile is traced.

    ``logger`` is a structlog logger, by default the one named ``headway``. With ``verbose``, everything else is logged
    as well: priming and runs at `info`, each reconcile and stream at `debug`. ``stack`` then has all frames of an
    error.
    """
    import structlog  # here, because it takes longer to import than all of Headway

    log = logger or structlog.get_logger("headway")
    repeats = _Repeats()

    def report(event: object) -> None:
        failed = isinstance(event, _MAY_FAIL) and event.error is not None
        if not (failed or verbose or isinstance(event, _WARNINGS)):
            return
        repeated = repeats.before(event) if failed and not verbose else 0
        if repeated is None:
            return
        fields = {name: _plain(value) for name, value in vars(event).items()}
        if repeated:
            fields["repeated"] = repeated
        error = getattr(event, "error", None)
        if isinstance(error, BaseException):
            if where := _where(error):
                fields["where"] = where
            # Under this name structlog prints line breaks as such.
            if stack := all_frames(error) if verbose else own_frames(error):
                fields["stack"] = stack
        if isinstance(event, events.Reconciled):
            fields["reasons"] = ", ".join(map(str, _causes(event.reasons)))
            fields["trace_id"] = trace_id_of(event.reasons)
        if isinstance(event, _OF_A_RECONCILE):
            # Under the same names as in `Runtime.log`.
            fields["key"] = key_path(event.id.key)
        if isinstance(event, events.SelfTriggered) and not event.writes:
            fields["writes"] = "none: it only returns requeue_now(). To wait, return requeue_after(seconds)"
        for name in ("attempt", "trace_id"):
            if not fields.get(name, True):
                del fields[name]
        name = _FAILED.get(type(event), type(event).__name__) if failed else type(event).__name__
        if failed or isinstance(event, _WARNINGS):
            log.warning(name, **fields)
        elif isinstance(event, _INFOS):
            log.info(name, **fields)
        else:
            log.debug(name, **fields)

    report.failures_only = not verbose  # type: ignore[attr-defined]  # see `events.Report`
    return report


def _causes(reasons: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the reasons of one attempt: all since the last failure, or those before the failure and the retry."""
    retries = [index for index, reason in enumerate(reasons) if str(reason) == "retry"]
    if not retries:
        return reasons
    last = retries[-1] + 1
    if last < len(reasons):
        return reasons[last:]
    before = retries[-2] + 1 if len(retries) > 1 else 0
    return reasons[before:]


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return story(value)
    if type(value) is tuple:
        # A key consists of texts; reasons do not.
        return ("/" if all(isinstance(each, str) for each in value) else ", ").join(map(str, value))
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, int | float | str | None) else str(value)
