"""Removing what must not be shown from the texts of an exception."""

from __future__ import annotations

from collections.abc import Callable


def scrub(error: BaseException, clean: Callable[[str], str]) -> None:
    """Replace every text in the arguments and notes of an exception by what ``clean`` returns, in place.

    Its causes, its contexts and the members of a group are treated alike. An exception whose ``__str__`` takes its text
    from elsewhere keeps it.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
            continue
        if any(isinstance(part, str) for part in each.args):
            each.args = tuple(clean(part) if isinstance(part, str) else part for part in each.args)
        notes = getattr(each, "__notes__", None)
        if isinstance(notes, list):
            notes[:] = [clean(note) if isinstance(note, str) else note for note in notes]
