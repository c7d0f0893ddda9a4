"""The check for functions that mutate an argument that they may only read. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headway.errors import HeadwayError, IsolationBroken
from headway.protobuf import copy_message, equal
from headway.resource import pb

Answer = TypeVar("Answer")


class Isolation:
    """A comparison of the arguments of a program's functions before and after each call (C9).

    Index functions, projections, predicates and mappers may only read their arguments.

    A function that mutates its argument fails with IsolationBroken at every call, and the engine raises the first of
    these errors when it closes. Each call costs a copy and a comparison, so this is for tests.

    Attributes:
        broken: the errors found, in order.
    """

    def __init__(self) -> None:
        self.broken: list[IsolationBroken] = []

    def reading(self, who: str, message: pb.Resource, given: Any, call: Callable[[], Answer]) -> Answer:
        """Call the function that ``who`` names, and compare.

        Args:
            message: the cached message.
            given: the function's argument: the message itself, or a `Resource` or `Projected` of it.
        """
        before = copy_message(message)
        try:
            answer = call()
        except IsolationBroken:
            # A function that this one called is at fault, and the error names it.
            raise
        except BaseException:
            self._compare(who, before, message, given)
            raise
        self._compare(who, before, message, given)
        return answer

    def _compare(self, who: str, before: pb.Resource, message: pb.Resource, given: Any) -> None:
        if not equal(before, message):
            self._found(f"{who} has changed cached data", before)
        if given is not message and _differs(given, before):
            self._found(f"{who} has changed its argument", before)

    def _found(self, what: str, before: pb.Resource) -> None:
        broken = IsolationBroken(f"{what}: {before.id.name if before.id else ''!r} at version {before.version}")
        self.broken.append(broken)
        raise broken


def _differs(given: Any, before: pb.Resource) -> bool:
    """Return True if a view of a message differs from the original message."""
    fresh = given.type.view(before)
    if given.metadata != fresh.metadata or given.status.keys() != fresh.status.keys():
        return True
    if not all(equal(status, fresh.status[key]) for key, status in given.status.items()):
        return True
    try:
        return not equal(given.data, fresh.data)
    except HeadwayError:
        # Without a readable payload, none can have changed.
        return False
