"""Log lines, by structlog: what an operator should know at `warning`, the rest at `info` and `debug`."""

from __future__ import annotations

import dataclasses
import os
import traceback
from typing import Any

from headway import events
from headway.events import Report

_WARNINGS = (
    events.BookmarkRefused,
    events.CallDelayed,
    events.CallbackFailed,
    events.DeletionsUnknown,
    events.HandlerFailed,
    events.IndexFailed,
    events.LeaseDelayed,
    events.MappingFailed,
    events.ProjectionFailed,
    events.ReconcileSlow,
    events.RunEnded,
    events.ShutdownBlocked,
    events.SelfTriggered,
    events.SourceFailed,
    events.StreamEnded,
    events.StreamLagging,
    events.WriteUnknown,
)
_MAY_FAIL = (events.DaemonEnded, events.LeaseEnded, events.Reconciled)
_PACKAGE = os.path.dirname(events.__file__) + os.sep
_INFOS = (
    events.LeaseAwaited,
    events.LeaseEnded,
    events.LeaseTaken,
    events.Primed,
    events.RunStarted,
    events.WriteSettled,
)


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """A report that logs what went wrong, under its event's name and with its fields, as warnings.

    An error is logged by its class and text, and ``where`` is the line of the program that it came through last.

    ``logger`` is a structlog logger, the one named ``headway`` unless given. With ``verbose`` everything else is
    logged too: priming and runs at `info`, each reconcile and stream at `debug`.
    """
    import structlog  # here, because it takes longer to import than all of Headway

    log = logger or structlog.get_logger("headway")

    def report(event: object) -> None:
        failed = (
            isinstance(event, events.Reconciled | events.LeaseEnded | events.DaemonEnded) and event.error is not None
        )
        if not (failed or verbose or isinstance(event, _WARNINGS)):
            return
        fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}  # type: ignore[arg-type]  # every event is a dataclass
        error = getattr(event, "error", None)
        if isinstance(error, BaseException) and (where := _where(error)):
            fields["where"] = where
        name = type(event).__name__
        if failed or isinstance(event, _WARNINGS):
            log.warning(name, **fields)
        elif isinstance(event, _INFOS):
            log.info(name, **fields)
        else:
            log.debug(name, **fields)

    report.failures_only = not verbose  # type: ignore[attr-defined]  # see `events.Report`
    return report


def _where(error: BaseException) -> str:
    """The innermost line of the program's own that an error came through; empty: there is none."""
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_PACKAGE)
    ]
    return lines[-1] if lines else ""


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if type(value) is tuple:
        # A key is of texts, and reasons are not.
        return ("/" if all(isinstance(each, str) for each in value) else ", ").join(map(str, value))
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, int | float | str | None) else str(value)
