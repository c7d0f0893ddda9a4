"""Removing what must not be shown from the texts of an exception."""

from __future__ import annotations

import traceback

from headway.base._text import CLEANS, Clean, error_text, scrubbed


def scrub(error: BaseException, clean: Clean) -> None:
    """Clean every text that Headway writes about an exception with ``clean``.

    Texts in its arguments and notes are replaced in place, so that a program that formats the exception itself does not
    show them either. What an exception keeps elsewhere, as in a message made from attributes, cannot be replaced. Such
    an exception keeps ``clean`` instead, for `scrubbed`.

    Its causes, its contexts and the members of a group are treated alike.
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
        if any(isinstance(part, str) for part in each.args):
            each.args = tuple(clean(part) if isinstance(part, str) else part for part in each.args)
        notes = getattr(each, "__notes__", None)
        if isinstance(notes, list):
            notes[:] = [clean(note) if isinstance(note, str) else note for note in notes]
        shown = scrubbed(each, "".join(traceback.format_exception_only(each))) + error_text(each)
        if clean(shown) != shown:
            vars(each)[CLEANS] = (*vars(each).get(CLEANS, ()), clean)
