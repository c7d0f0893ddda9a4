"""The bounds of what a request may say of a lease or a fence: names, terms, numbers and times. Pure.

What is out of bounds is refused before anything is looked up, by an error that shows little of a long value.
"""

from __future__ import annotations

import functools
import re

from headway.service._refusals import invalid
from headway.storage import lease_of

MIN_TTL_MS, MAX_TTL_MS = 1_000, 3_600_000
MAX_WAIT_MS = 20_000
MAX_TEXT = 255
"""Characters in a lease's name, a holder, or an attempt."""

MAX_NUMBER = 2**63 - 1
"""The highest term, and the highest number within one: no store holds more."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*(#[A-Za-z0-9._/:-]+)?\Z")
_CONTROLLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*\Z")
_MEMBER = re.compile(r"[A-Za-z0-9._/:-]*\Z")
_SHOWN = 60


def check_lease(name: str, holder: str) -> None:
    """Refuse what is not a lease's name, and what is not a holder's."""
    if not name:
        raise invalid("name is required")
    if len(name) > MAX_TEXT or not _NAME.match(name):
        raise invalid(
            f"name {shown(name)} is not a lease's: use up to {MAX_TEXT} letters, digits and - . _ / : that begin with "
            "a letter or digit, and at most one #, before a controller's member"
        )
    if not holder:
        raise invalid("holder is required: a name that no other process has")
    check_text("holder", holder)


def check_text(field: str, text: str) -> None:
    """Refuse a text that is too long or that can't be printed."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise invalid(f"{field} {shown(text)} must be at most {MAX_TEXT} printable characters")


def check_range(field: str, value: int, least: int, most: int, hint: str = "") -> None:
    """Refuse a number that is out of its range; ``hint`` is where the right one is to be had."""
    if not least <= value <= most:
        raise invalid(f"{field} {value} must be from {least} to {most}{hint}")


def check_term(term: int) -> None:
    """Refuse a number that can't be a term."""
    check_range("term", term, 1, MAX_NUMBER, ": send the term that Acquire answered with")


def check_scope(controller: str, member: str, message: str = "") -> None:
    """Refuse a controller and a member that have no fence; ``message`` is the field that holds both, with a dot."""
    # What is too long is not remembered.
    wrong = _wrong if len(controller) + len(member) > MAX_TEXT else _known_wrong
    if field := wrong(controller, member):
        text = controller if field == "controller" else member
        rest = "beginning with a letter or digit" if field == "controller" else "its controller and a # included"
        raise invalid(f"{message}{field} {shown(text)} must be up to {MAX_TEXT} letters, digits and - . _ / :, {rest}")


def _wrong(controller: str, member: str) -> str:
    """The field that is wrong, or an empty text."""
    if len(controller) > MAX_TEXT or not _CONTROLLER.match(controller):
        return "controller"
    if len(lease_of(controller, member)) > MAX_TEXT or not _MEMBER.match(member):
        return "member"
    return ""


# Every write of a controller has a fence.
_known_wrong = functools.lru_cache(maxsize=1024)(_wrong)


def shown(text: str) -> str:
    """Return a text as an error quotes it: what is behind the first characters of a long one is left out."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."
