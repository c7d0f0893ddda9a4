"""How much an empty message of a description holds: what is required in it is made with it, and so on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headway._gen.headway.types import v1 as types_pb

DEEPEST, LARGEST = 100, 10_000
"""Messages within one another, and in all: no program declares so many, and a server could say any number."""


def check_empty_messages(messages: Sequence[types_pb.Message]) -> None:
    """Raise ValueError when one of them could not be made, as it requires itself, or would hold too much."""
    needed = [_required(message) for message in messages]
    # Of each message that has been looked at: (how deep, how many), itself included. None: it is being looked at.
    known: dict[int, tuple[int, int] | None] = {}
    for first in range(len(messages)):
        # By hand and not by calls: what is being guarded against would end those.
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
                            f"an empty {name!r:.80} would need a {messages[held].full_name!r:.80} for ever"
                        )
                    if held not in known:
                        stack.append(held)
                continue
            sizes = [size for held in needed[place] if (size := known[held]) is not None]
            deep = 1 + max((size[0] for size in sizes), default=0)
            many = 1 + sum(size[1] for size in sizes)
            if deep > DEEPEST or many > LARGEST:
                raise ValueError(
                    f"an empty {name!r:.80} would hold {many} messages, {deep} deep: more than {LARGEST}, or {DEEPEST}"
                )
            known[place] = (deep, many)


def _required(message: types_pb.Message) -> list[int]:
    """The places of the messages that each of this class holds from the start."""
    return [
        field.held
        for field in message.fields
        if field.shape == types_pb.Shape.SINGLE and field.kind in ("message", "wrapper")
    ]
