"""Tracebacks as text: the program's own frames of an error, bounded and safe to print."""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType

import outcome
import trio

from headway import errors
from headway.base._groups import MOST_ERRORS, leaves, story
from headway.base._text import bounded, error_text, plain, scrubbed

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = re.compile(r".*[\\/](?:site|dist)-packages[\\/]([^\\/]+)")
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


def calling_line() -> tuple[str, int]:
    """Return the file and the innermost line of the program's own code that is being called from; or "" and 0."""
    frames = traceback.walk_stack(sys._getframe(1))
    return next(
        ((of.f_code.co_filename, line) for of, line in frames if _is_the_program(of.f_code.co_filename)), ("", 0)
    )


def reason_text(error: BaseException) -> str:
    """Return an error's message. For an error without one: its class, and the line that raised it, without folders."""
    if (text := error_text(error)).strip():
        return text
    where = os.path.basename(where_of(error))
    return f"{type(error).__name__} was raised without a message{where and f' at {where}'}"


def own_frames(error: BaseException) -> str:
    """Return the program's own frames, down to the raise, of an error, of each error in a group, and of causes.

    The text is empty without such frames. Frames of Headway, of Trio and of Python's library are left out, and those of
    other packages that the program calls.
    """
    return "\n".join(filter(None, (_chain(each, _CAUSES) for each in first_leaves(error))))


def first_leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield those errors of a group that are shown."""
    return itertools.islice(leaves(error), MOST_ERRORS)


def _chain(error: BaseException, causes: int, packages: frozenset[str] = frozenset()) -> str:
    packages = packages or _packages(error)
    frames = list(_own(error, packages))
    before = _before(error)
    cause = _chain(before, causes - 1, packages) if before is not None and causes else ""
    # An error that other packages have passed on has no frame of the program, but it says what is wrong.
    if not frames and not cause and not _packages(error):
        return ""
    text = _formatted(frames) + message_of(error)
    return f"{cause}\n-- and then:\n{text}" if cause else text


def _before(error: BaseException) -> BaseException | None:
    """Return the error that an error was caused by, or raised after, as Python shows it."""
    # No `or`: a class of the program's may be false, or raise when it is asked.
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def message_of(error: BaseException) -> str:
    """Return the line of an error's class and message, and the lines of its notes, bounded and safe to print.

    The message is data, often from another program. It must not imitate another line of the log, nor move a cursor.
    """
    texts = [bounded(scrubbed(error, each)) for each in _formatted_alone(error)]
    lines = [line for each in texts for line in each.rstrip("\n").split("\n")]
    if len(lines) > _NOTES:
        lines[_NOTES:] = [f"… ({len(lines) - _NOTES} lines more)"]
    # Indent all lines but the first, to distinguish them from the log's own lines.
    return "\n  ".join(plain(each) for each in lines)


def _formatted_alone(error: BaseException) -> list[str]:
    """Return Python's lines of an error without its frames, or its class and message if Python cannot format it."""
    try:
        return traceback.format_exception_only(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # Python calls the class, and trusts the attributes of a SyntaxError
        return [story(error)]


def all_frames(error: BaseException, causes: int = _CAUSES) -> str:
    """Return all frames of an error, of each error in a group, and of their causes."""
    before = _before(error)
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


def _own(error: BaseException, packages: frozenset[str] = frozenset()) -> Iterator[tuple[FrameType, int]]:
    packages = packages or _packages(error)
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if _is_the_program(file) and _package(file) in packages:
            yield frame, line


def _packages(error: BaseException) -> frozenset[str]:
    """Return the program's own packages: the one whose code came first, and all that is not installed.

    The set is empty if the error has passed through no code but that of Headway, Trio and Python.
    """
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    first = next(filter(_is_the_program, files), None)
    return frozenset() if first is None else frozenset(("", _package(first)))


def _package(file: str) -> str:
    """Return the name of the installed package that a file belongs to, or an empty text."""
    found = _INSTALLED.match(file)
    return found[1] if found is not None else ""


def stack_text(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the program's own frames of a stack as text. Frames of Headway, of Trio and of Python's library are left
    out.
    """
    return _formatted([each for each in frames if _is_the_program(each[0].f_code.co_filename)])


def _is_the_program(file: str) -> bool:
    if file.startswith(_NOT_THE_PROGRAM) or file.startswith("<frozen "):
        return False
    return not file.startswith(_LIBRARY) or bool(_package(file))
