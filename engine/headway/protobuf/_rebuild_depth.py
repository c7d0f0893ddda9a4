"""Limits on the size of an empty message, which contains an empty message for each required field. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headway._gen.headway.types import v1 as types_pb

DEEPEST, LARGEST = 100, 10_000
"""The maximum nesting depth and number of messages. No program declares as many, but a server could send any number."""


def check_empty_messages(messages: Sequence[types_pb.Message]) -> None:
    """Raise ValueError if an empty instance of a message would contain itself, or exceed a limit."""
    needed = [_required(message) for message in messages]
    # The (depth, count) of each visited message, which includes itself, or None while it is being visited.
    known: dict[int, tuple[int, int] | None] = {}
    for first in range(len(messages)):
        # An explicit stack, since the descriptions that this guards against would exceed the recursion limit.
        stack = [first]
        while stack:
            place = stack[-1]
            if known.get(place) is not None:
                stack.pop()
                continue
            name = messages[place].full_name
            if place not in known:
                known[place] = None
                for held in needed[place]:
                    if held in known and known[held] is None:
                        raise ValueError(
                            f"an empty {name!r:.80} would contain {messages[held].full_name!r:.80} endlessly"
                        )
                    if held not in known:
                        stack.append(held)
                continue
            sizes = [size for held in needed[place] if (size := known[held]) is not None]
            deep = 1 + max((size[0] for size in sizes), default=0)
            many = 1 + sum(size[1] for size in sizes)
            if deep > DEEPEST or many > LARGEST:
                raise ValueError(
                    f"an empty {name!r:.80} would contain {many} messages, nested {deep} deep: "
                    f"the limits are {LARGEST} and {DEEPEST}"
                )
            known[place] = (deep, many)


def _required(message: types_pb.Message) -> list[int]:
    """Return the indexes of the messages that an empty message contains."""
    return [
        field.held
        for field in message.fields
        if field.shape == types_pb.Shape.SINGLE and field.kind in ("message", "wrapper")
    ]
