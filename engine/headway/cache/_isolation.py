"""The checking mode: who changes what it was given to read. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headway.errors import HeadwayError, IsolationBroken
from headway.resource import copy_message, equal, pb

Answer = TypeVar("Answer")


class Isolation:
    """Compares what index functions, projections, predicates and mappers are given before and after (C9).

    Who changes it has IsolationBroken for an error, at every call; the engine raises the first of them when it is
    closed. Each call costs a copy and a comparison, so this is for tests.

    Attributes:
        broken: what has been found, in order.
    """

    def __init__(self) -> None:
        self.broken: list[IsolationBroken] = []

    def reading(self, who: str, message: pb.Resource, given: Any, call: Callable[[], Answer]) -> Answer:
        """Call what ``who`` names, and compare.

        Args:
            message: what the cache holds.
            given: what the function has of it: the message itself, or a `Resource` or `Projected` of it.
        """
        before = copy_message(message)
        try:
            answer = call()
        except IsolationBroken:
            # Whom it calls has done it, and is named.
            raise
        except BaseException:
            self._compare(who, before, message, given)
            raise
        self._compare(who, before, message, given)
        return answer

    def _compare(self, who: str, before: pb.Resource, message: pb.Resource, given: Any) -> None:
        if not equal(before, message):
            self._found(f"{who} has changed what the cache holds", before)
        if given is not message and _differs(given, before):
            self._found(f"{who} has changed what it was given to read", before)

    def _found(self, what: str, before: pb.Resource) -> None:
        broken = IsolationBroken(f"{what}: {before.id.name if before.id else ''!r} at version {before.version}")
        self.broken.append(broken)
        raise broken


def _differs(given: Any, before: pb.Resource) -> bool:
    """Whether a view of a message says something else than the message did."""
    fresh = given.type.view(before)
    if given.metadata != fresh.metadata or given.status.keys() != fresh.status.keys():
        return True
    if not all(equal(status, fresh.status[key]) for key, status in given.status.items()):
        return True
    try:
        return not equal(given.data, fresh.data)
    except HeadwayError:
        # There is no payload to be changed.
        return False
