"""Sorting of long lists in turns with other tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

from headway.base._trio import give_way

T = TypeVar("T")

TURN = 2000
"""The number of elements between two checkpoints. It takes some milliseconds."""


async def in_order(resources: list[T], key: Callable[[T], Any]) -> list[T]:
    """Return the resources sorted by key. If they are in order already, this only compares them.

    The list itself is changed. If it were copied, freeing a list of a million resources at once would block the loop
    for many turns.
    """
    begins = [0]
    for begin in range(0, len(resources), TURN):
        if begin:
            await give_way()
        run = sorted(resources[begin : begin + TURN], key=key)
        if begin and key(resources[begin - 1]) > key(run[0]):
            begins.append(begin)
        resources[begin : begin + TURN] = run
    if len(begins) == 1:
        return resources
    ordered: list[T] = []
    # Not slices, which would be dropped at once too.
    runs = (map(resources.__getitem__, range(*ends)) for ends in pairwise([*begins, len(resources)]))
    for each in heapq.merge(*runs, key=key):
        ordered.append(each)
        if len(ordered) % TURN == 0:
            await give_way()
    while resources:
        del resources[-TURN:]
        await give_way()
    return ordered
