"""The frames of a program's own in an error: what a log line shows of a traceback."""

from __future__ import annotations

import itertools
import os
import textwrap
import traceback
from collections.abc import Iterator
from types import FrameType

import outcome
import trio

from headway import events
from headway._groups import MOST_ERRORS, leaves
from headway._safe_text import bounded, plain

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep
# Trio raises Cancelled through outcome.
_NOT_THE_PROGRAM = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (events, trio, outcome))
_FIRST, _LAST = 5, 20
"""How many frames of a long stack are shown, from its beginning and from its end."""
_CAUSES = 5
_NOTES = 20
"""How many lines of an error's text and notes are shown."""


def where_of(error: BaseException) -> str:
    """The innermost line of the program's own that an error came through; empty: there is none."""
    frames = list(_own(error))
    return f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""


def own_frames(error: BaseException) -> str:
    """The frames of the program's own, down to the raise, of each error in a group and of what caused it.

    Empty if there is none. Frames of Headway, of Trio and of Python's library are left out.
    """
    return "\n".join(filter(None, (_chain(each, _CAUSES) for each in first_leaves(error))))


def first_leaves(error: BaseException) -> Iterator[BaseException]:
    """As many errors of a group as are shown."""
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
    """The line of an error's class and text, and those of its notes: bounded, and safe to print.

    A text is data, often another program's: it must not look like another line of the log, nor move a cursor.
    """
    lines = [bounded(each) for each in traceback.format_exception_only(error)]
    if len(lines) > _NOTES:
        lines[_NOTES:] = [f"… ({len(lines) - _NOTES} lines more)"]
    # What isn't the first line is set off from what the log itself says.
    return "\n  ".join(plain(each.rstrip("\n")) for each in lines)


def all_frames(error: BaseException, causes: int = _CAUSES) -> str:
    """All frames of an error, of each error in a group, and of what caused them."""
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
