"""Log lines, by structlog: what an operator should know at `warning`, the rest at `info` and `debug`."""

from __future__ import annotations

from typing import Any

from headway import events
from headway._groups import story
from headway.events import Report
from headway.observe._frames import all_frames, first_leaves, own_frames, where_of

_WARNINGS = (
    events.AccessChanged,
    events.AuthenticationFailed,
    events.BookmarkRefused,
    events.CallDenied,
    events.CallDelayed,
    events.CallbackFailed,
    events.CertificateRefused,
    events.ConnectionEnded,
    events.ConnectionRefused,
    events.ConversionFailed,
    events.DeletionsUnknown,
    events.HandlerFailed,
    events.IndexFailed,
    events.LeaseDelayed,
    events.LoopBlocked,
    events.MappingFailed,
    events.PayloadUndecodable,
    events.ProjectionFailed,
    events.ReconcileSlow,
    events.RunEnded,
    events.ShutdownBlocked,
    events.SelfTriggered,
    events.SourceFailed,
    events.StoreFailed,
    events.StoreRecovered,
    events.StreamEnded,
    events.StreamLagging,
    events.WriteUnknown,
)
_MAY_FAIL = (events.DaemonEnded, events.LeaseEnded, events.Reconciled)
_FAILED = {events.Reconciled: "ReconcileFailed", events.DaemonEnded: "DaemonFailed"}
_INFOS = (
    events.CertificateRenewed,
    events.LeaseAwaited,
    events.LeaseEnded,
    events.LeaseTaken,
    events.Primed,
    events.RunStarted,
    events.WriteResolved,
)


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """A report that logs what went wrong, under its event's name and with its fields, as warnings.

    An error is logged by its class and text, several at once as one story. ``where`` is the line of the program that it
    came through last, and ``stack`` shows the program's own frames down to the raise. ``reasons`` are those of the
    attempt itself; after a failure that nothing has followed they are the reasons of the failure, and ``retry``.

    ``logger`` is a structlog logger, the one named ``headway`` unless given. With ``verbose`` everything else is
    logged too: priming and runs at `info`, each reconcile and stream at `debug`. ``stack`` then has all frames of an
    error.
    """
    import structlog  # here, because it takes longer to import than all of Headway

    log = logger or structlog.get_logger("headway")

    def report(event: object) -> None:
        failed = (
            isinstance(event, events.Reconciled | events.LeaseEnded | events.DaemonEnded) and event.error is not None
        )
        if not (failed or verbose or isinstance(event, _WARNINGS)):
            return
        fields = {name: _plain(value) for name, value in vars(event).items()}
        error = getattr(event, "error", None)
        if isinstance(error, BaseException):
            if where := ", ".join(filter(None, map(where_of, first_leaves(error)))):
                fields["where"] = where
            # Under this name structlog prints lines as lines.
            if stack := all_frames(error) if verbose else own_frames(error):
                fields["stack"] = stack
        if isinstance(event, events.Reconciled):
            fields["reasons"] = ", ".join(map(str, _causes(event.reasons)))
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
    """The reasons of one attempt: those since the last failure, or those of the failure and its retry."""
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
        # A key is of texts, and reasons are not.
        return ("/" if all(isinstance(each, str) for each in value) else ", ").join(map(str, value))
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, int | float | str | None) else str(value)
