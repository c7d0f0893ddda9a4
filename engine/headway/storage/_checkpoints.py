"""The checkpoints of a controller's members, and where a new member begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping


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
