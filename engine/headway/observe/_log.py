"""Log lines, by structlog: what an operator should know at `warning`, the rest at `info` and `debug`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import trio

from headway import events
from headway._groups import leaves, story
from headway.events import Report

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
    events.MappingFailed,
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
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep
_NOT_THE_PROGRAM = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (events, trio))
_INFOS = (
    events.CertificateRenewed,
    events.LeaseAwaited,
    events.LeaseEnded,
    events.LeaseTaken,
    events.Primed,
    events.RunStarted,
    events.WriteSettled,
)


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """A report that logs what went wrong, under its event's name and with its fields, as warnings.

    An error is logged by its class and text, several at once as one story, and ``where`` is the line of the program
    that it came through last.

    ``logger`` is a structlog logger, the one named ``headway`` unless given. With ``verbose`` everything else is
    logged too: priming and runs at `info`, each reconcile and stream at `debug`; and errors with all of their frames.
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
        if isinstance(error, BaseException) and (where := ", ".join(filter(None, map(_where, leaves(error))))):
            fields["where"] = where
        if verbose and isinstance(error, BaseException):
            fields["traceback"] = "".join(traceback.format_exception(error))
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
        if _is_the_program(frame.f_code.co_filename)
    ]
    return lines[-1] if lines else ""


def _is_the_program(file: str) -> bool:
    if file.startswith(_NOT_THE_PROGRAM) or file.startswith("<frozen "):
        return False
    return not file.startswith(_LIBRARY) or file.startswith(_INSTALLED)


def _listed(texts: Iterable[str]) -> str:
    """Alike ones in a row once, with their number: a key that fails has more retries behind it than anybody reads."""
    runs = [(text, len(list(alike))) for text, alike in groupby(texts)]
    return ", ".join(text if count == 1 else f"{text} ({count} times)" for text, count in runs)


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return story(value)
    if type(value) is tuple:
        # A key is of texts, and reasons are not.
        return "/".join(value) if all(isinstance(each, str) for each in value) else _listed(map(str, value))
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, int | float | str | None) else str(value)
