"""Log lines by structlog: important events for operators at `warning`, others at `info` and `debug`."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from headway import events
from headway.base import all_frames, first_leaves, own_frames, story, where_of
from headway.events import Report
from headway.pauses import Paused, Resumed
from headway.reconcile import key_path, trace_id_of
from headway.steps import StepUncertain

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
    events.ControllersClash,
    events.ControllersFight,
    events.DeletionsUnknown,
    events.EventNotStored,
    events.HandlerFailed,
    events.IndexFailed,
    events.IssuerFailed,
    events.IssuerKeysChanged,
    events.LeaseDelayed,
    events.LoopBlocked,
    events.MappingFailed,
    events.PayloadUndecodable,
    Paused,
    events.PeerNotNotified,
    events.PeerRefused,
    events.PeerStoreReplaced,
    events.ProjectionFailed,
    events.ReconcileSlow,
    events.ShutdownBlocked,
    events.SelfTriggered,
    events.ServerWarned,
    events.SourceFailed,
    StepUncertain,
    events.StoreFailed,
    events.StoreRecovered,
    events.StreamEnded,
    events.StreamLagging,
    events.WriteUnknown,
    events.WritesHeld,
)
_OF_A_RECONCILE = (events.ControllersFight, events.Reconciled, events.ReconcileSlow, events.SelfTriggered)
_MAY_FAIL = (events.DaemonEnded, events.LeaseEnded, events.Reconciled, events.RunEnded)
_FAILED = {events.Reconciled: "ReconcileFailed", events.DaemonEnded: "DaemonFailed"}
_INFOS = (
    events.CertificateRenewed,
    events.LeaseAwaited,
    events.LeaseEnded,
    events.LeaseTaken,
    events.Primed,
    Resumed,
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


_WINDOW = 10.0
"""The seconds in which at most `_MOST_LINES` lines of one kind are logged."""
_MOST_LINES = 100


class _Bounded:
    """The lines of each kind in its present window, and how many were left out of it."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, tuple[float, int, int]] = {}

    def before(self, kind: Hashable, now: float) -> tuple[bool, int]:
        """Return whether a line is logged, and the number of those left out: before it, or with it in its window."""
        since, lines, left_out = self._windows.get(kind, (-math.inf, 0, 0))
        if now >= since + _WINDOW:
            self._windows[kind] = now, 1, 0
            return True, left_out
        logged = lines < _MOST_LINES
        left_out += not logged
        self._windows[kind] = since, lines + logged, left_out
        return logged, left_out


def _where(error: BaseException) -> str:
    return ", ".join(filter(None, map(where_of, first_leaves(error))))


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """Return a report that logs problems as warnings, with the event's name and fields.

    An error is logged as its class and message, and a group of errors as one text. ``where`` is the program's innermost
    line that the error passed through, and ``stack`` shows the program's own frames, without those of the packages that
    it calls. ``reasons`` has the reasons of this attempt. A retry without new reasons repeats the reasons of the failed
    attempt, and adds ``retry``.

    A retry that soon fails with the same error at the same place is not logged. The next line of its resource counts
    these in ``repeated``.

    Of each kind of warnings of a controller, at most 100 are logged in 10 seconds. The line ``LinesLeftOut`` says that
    there are more, and the next line of the kind has their number in ``left_out``.

    A line about a reconcile has ``controller``, ``key`` and ``attempt``, and ``trace_id`` if the reconcile is traced.

    ``logger`` is a structlog logger, by default the one named ``headway``. With ``verbose``, everything else is logged
    as well: priming and runs at `info`, each reconcile and stream at `debug`. ``stack`` then has all frames of an
    error.
    """
    import structlog  # here, because it takes longer to import than all of Headway

    log = logger or structlog.get_logger("headway")
    repeats, bounded = _Repeats(), _Bounded()

    def report(event: object) -> None:
        failed = isinstance(event, _MAY_FAIL) and event.error is not None
        if not (failed or verbose or isinstance(event, _WARNINGS)):
            return
        repeated = repeats.before(event) if failed and not verbose else 0
        if repeated is None:
            return
        name = _FAILED.get(type(event), type(event).__name__) if failed else type(event).__name__
        controller, left_out = getattr(event, "controller", None), 0
        if not verbose:
            logged, left_out = bounded.before((name, controller), time.monotonic())
            if not logged:
                if left_out == 1:
                    log.warning("LinesLeftOut", of=name, controller=controller, most=_MOST_LINES, seconds=_WINDOW)
                return
        fields = {field: _plain(value) for field, value in vars(event).items()}
        if left_out:
            fields["left_out"] = left_out
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
        for empty in ("attempt", "trace_id"):
            if not fields.get(empty, True):
                del fields[empty]
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
