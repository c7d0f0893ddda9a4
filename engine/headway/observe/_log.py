"""Log lines, by structlog: what an operator should know at `warning`, the rest at `info` and `debug`."""

from __future__ import annotations

import dataclasses
from typing import Any

from headway import events
from headway.events import Report

_WARNINGS = (
    events.BookmarkRefused,
    events.DeletionsUnknown,
    events.HandlerFailed,
    events.IndexFailed,
    events.MappingFailed,
    events.ReconcileSlow,
    events.RunEnded,
    events.StreamEnded,
    events.StreamLagging,
    events.WriteUnknown,
)
_INFOS = (events.Primed, events.RunStarted, events.WriteSettled)


def log_report(logger: Any = None, *, verbose: bool = False) -> Report:
    """A report that logs what went wrong, under its event's name and with its fields, as warnings.

    ``logger`` is a structlog logger, the one named ``headway`` unless given. With ``verbose`` everything else is
    logged too: priming and runs at `info`, each reconcile and stream at `debug`.
    """
    import structlog  # here, because it takes longer to import than all of Headway

    log = logger or structlog.get_logger("headway")

    def report(event: object) -> None:
        if type(event) is events.Reconciled and event.error is None and not verbose:
            # One for every reconcile, and nothing to say: the other tests would cost each of them.
            return
        failed = isinstance(event, events.Reconciled) and event.error is not None
        if not (failed or verbose or isinstance(event, _WARNINGS)):
            return
        fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}  # type: ignore[arg-type]  # every event is a dataclass
        name = type(event).__name__
        if failed or isinstance(event, _WARNINGS):
            log.warning(name, **fields)
        elif isinstance(event, _INFOS):
            log.info(name, **fields)
        else:
            log.debug(name, **fields)

    return report


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return value if isinstance(value, int | float | str | None) else str(value)
