"""The fences of a controller's members: how they are raised, and where they go on from each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headway.storage._leases import lease_of
from headway.storage._operations import Fence, FenceLowered


def raised_fence(wanted: Fence, stored: tuple[int, int], held: int | None, following: int) -> Fence:
    """Return the fence to store for a request to raise it. Term 0 becomes the following one.

    Args:
        wanted: the requested fence.
        stored: the stored pair (term, number).
        held: the term in which the lease that governs the fence is held, or None if it is not held.
        following: the member's `next_term`.

    Raises:
        FenceLowered: the lease is held in another term, or the fence would not be above the stored one.
    """
    controller, member, term, number = wanted
    lease = lease_of(controller, member)
    if held is not None and term != held:
        raise FenceLowered(f"the lease {lease} is held in term {held}: expected a fence of that term, got {term}")
    pair = (term, number) if term else (max(stored[0] + 1, following), number)
    if pair <= stored:
        raise FenceLowered(f"the fence of {lease} is at {stored}; {pair} is not above it")
    return Fence(controller, member, *pair)


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


def next_term(scope: tuple[str, str], fences: Mapping[tuple[str, str], tuple[int, ...]]) -> int:
    """Return a member's next term: above its own, and above those of members that divided the keys in another way.

    So a term of a key rises when its controller divides its keys in another way, and also when it returns to a former
    way. The terms of members of one division don't raise each other.

    Args:
        scope: the controller and the member that gets a term.
        fences: the fences of the store, by controller and member. Each begins with its term.
    """
    controller, member = scope
    highest = fences[scope][0] if scope in fences else 0
    if (division := _division(member)) is not None:
        for (of, each), fence in fences.items():
            if of == controller and _division(each) not in (None, division):
                highest = max(highest, fence[0])
    return highest + 1


def _division(member: str) -> str | None:
    """Return what all members have in common that divide the keys in one way, or None if the member has no keys."""
    part, divided, count = member.partition("/")
    if divided:
        return divided + count if part.isdecimal() else None
    return "each" if part else "one"
