"""Taking items from several groups in turn, so that a long group does not fill a bounded list alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar

import trio

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


class CallerTurns:
    """A limit on the number of tasks in a block at once. Those that wait enter it in turns by `CALLER`.

    It is an async context manager. Entering it is a checkpoint. A caller with one task waits for one task of each other
    caller, however many those have.
    """

    def __init__(self, most: int) -> None:
        # Invariant: nobody waits while one is free.
        self._free = most
        # The next one of each caller is the first, and the next caller is the first.
        self._waiting: dict[Hashable, deque[trio.lowlevel.Task]] = {}

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._free:
            self._free -= 1
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        caller, task = CALLER.get(), trio.lowlevel.current_task()
        self._waiting.setdefault(caller, deque()).append(task)

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._waiting[caller].remove(task)
            if not self._waiting[caller]:
                del self._waiting[caller]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, *_: object) -> None:
        if not self._waiting:
            self._free += 1
            return
        caller = next(iter(self._waiting))
        tasks = self._waiting.pop(caller)
        trio.lowlevel.reschedule(tasks.popleft())
        if tasks:
            self._waiting[caller] = tasks


class KeyTurns:
    """The turns of the tasks that change the same thing, such as a resource, in the order in which they ask.

    Writers that read a resource and write it at the version that they have read would otherwise refuse each other: of
    twenty at once, one would succeed in each round.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, trio.Lock] = {}

    def __len__(self) -> int:
        """Return the number of keys at which a task has a turn, or waits for one."""
        return len(self._locks)

    def __contains__(self, key: Hashable) -> bool:
        """Return True if a task has a turn at this key."""
        return key in self._locks

    @asynccontextmanager
    async def at(self, key: Hashable, seconds: float = math.inf) -> AsyncIterator[None]:
        """Let the block have its turn. Raises trio.TooSlowError if that has not come within ``seconds``."""
        lock = self._locks.setdefault(key, trio.Lock())
        try:
            with trio.fail_after(seconds):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            if not lock.locked():
                # Nobody waits for it: it would have passed to them.
                self._locks.pop(key, None)
