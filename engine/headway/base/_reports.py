"""Reports that never raise, and reports that pass on at most one event of a kind per second. A failure to log must end
neither a controller nor the engine, and errors must not flood a log."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable
from typing import Any, NoReturn, ParamSpec

import trio

from headway.base._standard_error import say
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


class BoundedReport:
    """A report of events that clients, or functions that always fail, can cause: each kind at most once in ``seconds``.

    The next event of the kind carries the number of events that were suppressed before it. Its class needs a field
    ``suppressed``::

        bounded = BoundedReport(report)
        bounded(events.ConnectionEnded, peer="10.0.0.7:4711", why="too many pings")

    Args:
        report: receives each event that is passed on.
        clock: returns the time in seconds.
    """

    def __init__(
        self, report: Callable[[object], None], seconds: float = 1.0, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._report = report
        self._seconds = seconds
        self._clock = clock
        # For each kind of events: when the next one is passed on, the number suppressed since the last one, and the
        # fields of the last suppressed one. Those of one that was passed on are not kept: an error among them refers to
        # everything that its traceback does.
        self._kinds: dict[tuple[type, Hashable], tuple[float, int, dict[str, Any]]] = {}
        self._suppressing = trio.Event()

    def __call__(self, kind: type, *, of: Hashable = None, **fields: Any) -> None:
        """Report one event of the class ``kind``, or count it. A suppressed event is not even created.

        Events of one class with different values of ``of`` are limited separately.
        """
        now = self._clock()
        due, suppressed, _ = self._kinds.get((kind, of), (now, 0, {}))
        if now < due:
            self._kinds[kind, of] = due, suppressed + 1, fields
            self._suppressing.set()
            return
        self._kinds[kind, of] = now + self._seconds, 0, {}
        self._report(kind(**fields, suppressed=suppressed))

    def report_suppressed(self) -> None:
        """Report the last suppressed event of each kind that is due, with the number of those before it."""
        now = self._clock()
        for (kind, of), (due, suppressed, fields) in self._kinds.items():
            if suppressed and now >= due:
                self._kinds[kind, of] = now + self._seconds, 0, {}
                self._report(kind(**fields, suppressed=suppressed - 1))

    async def report_rest(self) -> NoReturn:
        """Report the rest of each burst, up to two seconds later, until canceled. Otherwise it is never counted."""
        while True:
            await self._suppressing.wait()
            self._suppressing = trio.Event()
            await trio.sleep(self._seconds)
            self.report_suppressed()
