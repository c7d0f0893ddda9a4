"""Fences and leases in requests: the bounds of their fields, and the checks of a fence against the store."""

from __future__ import annotations

import re
from functools import lru_cache

from headway.api import MAX_NUMBER, MAX_TEXT
from headway.errors import InvalidArgument
from headway.resource import pb, quoted
from headway.service._access import AccessChecks
from headway.storage import Backend, Fence, FenceLowered, UnknownTerm

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*(#[A-Za-z0-9._/:-]+)?\Z")
_CONTROLLER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*\Z")
_MEMBER = re.compile(r"[A-Za-z0-9._/:-]*\Z")


def check_lease(name: str, holder: str) -> None:
    """Refuse an invalid lease name or holder."""
    if not name:
        raise InvalidArgument("name is required")
    if len(name) > MAX_TEXT or not _NAME.match(name):
        raise InvalidArgument(
            f"name {quoted(name)} is not a valid lease name: use up to {MAX_TEXT} letters, digits and - . _ / :, "
            "beginning with a letter or digit, and at most one #, before a controller's member"
        )
    if not holder:
        raise InvalidArgument("holder is required: a name that no other process has")
    check_printable("holder", holder)


def check_printable(field: str, text: str) -> None:
    """Refuse a text that is too long or not printable."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise InvalidArgument(f"{field} {quoted(text)} must be at most {MAX_TEXT} printable characters")


def check_range(field: str, value: int, least: int, most: int, hint: str = "") -> None:
    """Refuse a number outside its range; ``hint`` says where to find the right one."""
    if not least <= value <= most:
        raise InvalidArgument(f"{field} {value} must be from {least} to {most}{hint}")


def check_term(term: int) -> None:
    """Refuse a number that is not a valid term."""
    check_range("term", term, 1, MAX_NUMBER, ": send the term that Acquire returned")


def check_scope(controller: str, member: str, message: str = "") -> None:
    """Refuse an invalid controller or member of a fence; ``message`` is the prefix of the field names."""
    if len(controller) > MAX_TEXT or not _CONTROLLER.match(controller):
        field, text, rule = "controller", controller, "beginning with a letter or digit"
    elif member and (len(controller) + 1 + len(member) > MAX_TEXT or not _MEMBER.match(member)):
        field, text, rule = "member", member, "counting its controller and a #"
    else:
        return
    raise InvalidArgument(
        f"{message}{field} {quoted(text)} must be up to {MAX_TEXT} letters, digits and - . _ / :, {rule}"
    )


_HINT = ": send the fence that Raise returned"


def fence_of(message: pb.Fence | None) -> Fence | None:
    """Return the store's form of a fence, or None for a write without one."""
    return None if message is None else _fence(message.controller, message.member, message.term, message.number)


@lru_cache(maxsize=256)
def _fence(controller: str, member: str, term: int, number: int) -> Fence:
    """Return a fence, or refuse it. All writes of a run have the same one."""
    if not controller:
        raise InvalidArgument(f"fence.controller is required{_HINT}")
    if not term:
        raise InvalidArgument(f"fence.term must not be 0{_HINT}")
    check_scope(controller, member, "fence.")
    check_range("fence.term", term, 1, MAX_NUMBER, _HINT)
    check_range("fence.number", number, 0, MAX_NUMBER, _HINT)
    return Fence(controller, member, term, number)


def admit_fence(access: AccessChecks, message: pb.Fence | None) -> Fence | None:
    """Check the fence of a write, and that the caller may write under it."""
    fence = fence_of(message)
    access.check_fence(fence)
    return fence


async def check_fence(backend: Backend, fence: Fence | None) -> None:
    """Refuse the write of a superseded run even if the write changes nothing."""
    if fence is not None:
        await backend.commit((), fence)


async def check_granted(backend: Backend, controller: str, member: str, term: int) -> None:
    """Refuse a term that the store never granted to this controller and member. Term 0 asks for the next one.

    The store grants terms in increasing order. A caller who could raise a fence to an arbitrary term could use up all
    terms, so that the lease could never be acquired again.
    """
    if not term:
        return
    try:
        await backend.commit((), Fence(controller, member, term, MAX_NUMBER))
    except FenceLowered:
        # The term was granted, but the lease has had a higher one since. The store will refuse it.
        return
    except UnknownTerm as error:
        raise UnknownTerm(
            f"{error}: raise the fence in the term of the lease, or with term 0 to begin the next term"
        ) from None
