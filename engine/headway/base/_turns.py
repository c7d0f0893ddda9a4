"""Taking items from several groups in turn, so that a long group does not fill a bounded list alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

CALLER: ContextVar[Hashable] = ContextVar("headway.caller", default=None)
"""For whom this task works: a caller over the network. Callers take turns where their calls wait for one another."""


def in_turn(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first of each group, then the second of each, and so on."""
    waiting = [iter(each) for each in groups]
    while waiting:
        left = []
        for group in waiting:
            for each in group:
                yield each
                left.append(group)
                break
        waiting = left


def by_turns(items: Iterable[T], group: Callable[[T], Hashable]) -> Iterator[T]:
    """Yield all items: the groups in turn, and the items of a group in their order."""
    groups: dict[Hashable, list[T]] = {}
    for each in items:
        groups.setdefault(group(each), []).append(each)
    return in_turn(groups.values())
