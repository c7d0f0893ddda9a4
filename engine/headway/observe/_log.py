"""Log lines by structlog: important events for operators at `warning`, others at `info` and `debug`."""

from __future__ import annotations

import itertools
import os
import textwrap
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import outcome
import trio

from headway import errors, events
from headway.base import MOST_ERRORS, bounded, leaves, plain, story
from headway.events import Report

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep
# Trio raises Cancelled through outcome.
_NOT_THE_PROGRAM = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (errors, trio, outcome))
_FIRST, _LAST = 5, 20
"""The numbers of frames of a long stack that are shown, from its beginning and from its end."""
_CAUSES = 5
_NOTES = 20
"""The number of lines of an error's message and notes that are shown."""


def where_of(error: BaseException) -> str:
    """Return the innermost line of the program's own code that an error passed through, or an empty text."""
    frames = list(_own(error))
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""


def own_frames(error: BaseException) -> str:
    """Return the program's own frames, down to the raise, of an error, of each error in a group, and of causes.

    The text is empty without such frames. Frames of Headway, of Trio and of Python's library are left out.
    """
    return "\n".join(filter(None, (_chain(each, _CAUSES) for each in first_leaves(error))))


def first_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield those errors of a group that are shown."""
    return itertools.islice(leaves(error), MOST_ERRORS)


def _chain(error: BaseException, causes: int) -> str:
    frames = list(_own(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    cause = _chain(before, causes - 1) if before is not None and causes else ""
    if not frames and not cause:
        return ""
    text = _formatted(frames) + message_of(error)
    return f"{cause}\n-- and then:\n{text}" if cause else text


def message_of(error: BaseException) -> str:
    """Return the line of an error's class and message, and the lines of its notes, bounded and safe to print.

    The message is data, often from another program. It must not imitate another line of the log, nor move a cursor.
    """
    lines = [bounded(each) for each in traceback.format_exception_only(error)]
    if len(lines) > _NOTES:
        lines[_NOTES:] = [f"… ({len(lines) - _NOTES} lines more)"]
    # Indent all lines but the first, to distinguish them from the log's own lines.
    return "\n  ".join(plain(each.rstrip("\n")) for each in lines)


def all_frames(error: BaseException, causes: int = _CAUSES) -> str:
    """Return all frames of an error, of each error in a group, and of their causes."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    cause = all_frames(before, causes - 1) + "\n-- and then:\n" if before is not None and causes else ""
    text = cause + "".join(traceback.format_tb(error.__traceback__)) + message_of(error)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions[:MOST_ERRORS]:
            text += "\n-- in it:\n" + textwrap.indent(all_frames(each, causes), "  ")
    return text


def _formatted(frames: list[tuple[FrameType, int]]) -> str:
    left = len(frames) - _FIRST - _LAST
    if left <= 0:
        return "".join(traceback.StackSummary.extract(iter(frames)).format())
    first, last = frames[:_FIRST], frames[-_LAST:]
    return f"{_formatted(first)}  ... {left} frames more ...\n{_formatted(last)}"


def _own(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_the_program(frame.f_code.co_filename):
            yield frame, line


def _is_the_program(file: str) -> bool:
    if file.startswith(_NOT_THE_PROGRAM) or file.startswith("<frozen "):
        return False
    return not file.startswith(_LIBRARY) or file.startswith(_INSTALLED)


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
    """Return a report that logs problems as warnings, with the event's name and fields.

    An error is logged as its class and message, and a group of errors as one text. ``where`` is the program's innermost
    line that the error passed through, and ``stack`` shows the program's own frames down to the raise. ``reasons`` has
    the reasons of this attempt. A retry without new reasons has those of the failed attempt, and ``retry``.

    ``logger`` is a structlog logger, by default the one named ``headway``. With ``verbose``, everything else is logged
    as well: priming and runs at `info`, each reconcile and stream at `debug`. ``stack`` then has all frames of an
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
            # Under this name structlog prints line breaks as such.
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
