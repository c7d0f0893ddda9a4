"""Reports that never raise, because a failure to log must end neither a controller nor the engine."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import ParamSpec

from headway._standard_error import say
from headway.events import ignore, receives_successes

P = ParamSpec("P")


def safe_report(report: Callable[P, object]) -> Callable[P, None]:
    """Return a report that passes everything on, and never raises an exception of the given one.

    The first failure is written to standard error. All failures are counted, in the attribute ``failed`` of the result.
    Only KeyboardInterrupt is propagated, since the report does not cause it. A `trio.Cancelled` is not, because a
    report must not wait for anything that Trio could cancel.
    """
    if report is ignore:
        return report  # type: ignore[return-value]  # so that `receives_successes` knows it

    def safe(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            report(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a program's function may raise anything, `SystemExit` too
            safe.failed += 1  # type: ignore[attr-defined]
            if safe.failed == 1:  # type: ignore[attr-defined]
                tell_failure(report, error)

    safe.failed = 0  # type: ignore[attr-defined]
    safe.failures_only = not receives_successes(report)  # type: ignore[attr-defined, arg-type]  # see `events.Report`
    return safe


def tell_failure(report: object, error: BaseException) -> None:
    """Write to standard error that a report has failed."""
    try:
        name = getattr(report, "__qualname__", type(report).__qualname__)
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001  # an error may refuse to be looked at
        name, text = "a report", f"{type(error).__name__}\n"
    say(f"headway: {name} failed to report an event; the engine continues, and says this once:\n{text}")
