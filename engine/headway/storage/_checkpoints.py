"""The checkpoints and terms of a controller's members, and where they go on from members of other kinds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def first_checkpoint(member: str, recorded: Mapping[str, int]) -> int | None:
    """Return the checkpoint of a member that has none, or None if the controller has no work from before this raise.

    A controller divides its keys in one of three ways: one member has them all, each process has them all, or each of
    M members "N/M" has a part. With another division it goes on where the former one had got: up to the checkpoint of
    any member with all keys, and up to the lowest of a complete set of parts. Members "members/NAME" have no keys.

    Args:
        member: the member whose fence is raised for the first time.
        recorded: the checkpoints of the other members of its controller.
    """
    if member.startswith("members/"):
        return None
    whole: list[int] = []
    parts: dict[str, list[int]] = {}
    for each, checkpoint in recorded.items():
        part, divided, count = each.partition("/")
        if not divided:
            whole.append(checkpoint)
        elif part.isdecimal():
            parts.setdefault(count, []).append(checkpoint)
    whole += [min(each) for count, each in parts.items() if count == str(len(each))]
    return max(whole, default=None)


def former_term(member: str, terms: Iterable[tuple[str, int]]) -> int:
    """Return the highest term of the members that divided the controller's keys in another way; 0 without any.

    The next term of a member is above it. So a term of a key rises when its controller divides its keys in another way,
    and also when it returns to a former way. The terms of members of one division don't raise each other.

    Args:
        member: the member that gets a term.
        terms: the members of its controller, each with the term of its fence.
    """
    division = _division(member)
    if division is None:
        return 0
    return max((term for each, term in terms if _division(each) not in (None, division)), default=0)


def _division(member: str) -> str | None:
    """Return what all members have in common that divide the keys in one way, or None if the member has no keys."""
    part, divided, count = member.partition("/")
    if divided:
        return divided + count if part.isdecimal() else None
    return "each" if part else "one"
