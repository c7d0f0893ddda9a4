"""The bounds of names, terms, numbers and times in requests about leases and fences. Pure.

A value out of bounds is refused before any look-up. The error shows only the beginning of a long value.
"""

from __future__ import annotations

import re

from headway.resource import quoted
from headway.service._bounds import MAX_TEXT
from headway.service._refusals import invalid

MIN_TTL_MS, MAX_TTL_MS = 1_000, 3_600_000
MAX_WAIT_MS = 20_000
MAX_NUMBER = 2**63 - 1
"""The highest term, and the highest number within a term, that a store can hold."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*(#[A-Za-z0-9._/:-]+)?\Z")
_CONTROLLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*\Z")
_MEMBER = re.compile(r"[A-Za-z0-9._/:-]*\Z")


def check_lease(name: str, holder: str) -> None:
    """Refuse an invalid lease name or holder."""
    if not name:
        raise invalid("name is required")
    if len(name) > MAX_TEXT or not _NAME.match(name):
        raise invalid(
            f"name {quoted(name)} is not a valid lease name: use up to {MAX_TEXT} letters, digits and - . _ / :, "
            "beginning with a letter or digit, and at most one #, before a controller's member"
        )
    if not holder:
        raise invalid("holder is required: a name that no other process has")
    check_printable("holder", holder)


def check_printable(field: str, text: str) -> None:
    """Refuse a text that is too long or not printable."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise invalid(f"{field} {quoted(text)} must be at most {MAX_TEXT} printable characters")


def check_range(field: str, value: int, least: int, most: int, hint: str = "") -> None:
    """Refuse a number outside its range; ``hint`` says where to find the right one."""
    if not least <= value <= most:
        raise invalid(f"{field} {value} must be from {least} to {most}{hint}")


def check_term(term: int) -> None:
    """Refuse a number that is not a valid term."""
    check_range("term", term, 1, MAX_NUMBER, ": send the term that Acquire answered with")


def check_scope(controller: str, member: str, message: str = "") -> None:
    """Refuse an invalid controller or member of a fence; ``message`` is the prefix of the field names."""
    if len(controller) > MAX_TEXT or not _CONTROLLER.match(controller):
        field, text, rest = "controller", controller, "beginning with a letter or digit"
    elif member and (len(controller) + 1 + len(member) > MAX_TEXT or not _MEMBER.match(member)):
        field, text, rest = "member", member, "its controller and a # included"
    else:
        return
    raise invalid(f"{message}{field} {quoted(text)} must be up to {MAX_TEXT} letters, digits and - . _ / :, {rest}")
