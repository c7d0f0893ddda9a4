"""Turns of connections at the work that their requests ask for."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import trio

# The turns of the loop between two that go on: a request takes some twelve turns, and others would otherwise work in
# each of them.
_APART = 4


class InputTurns:
    """The turns of the connections whose input waits to be handled.

    One goes on at a time, and groups of connections take turns.
    """

    def __init__(self) -> None:
        # The next one of each group is the first, and the next group is the first.
        self._waiting: dict[Hashable, deque[trio.Event]] = {}
        self._taken = False

    async def take(self, group: Hashable, *, first: bool = False) -> None:
        """Wait for the turn of a connection: as the last one of its group, or as the first one."""
        if not self._taken:
            self._taken = True
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._pass_on()
            return
        waiting, turn = self._waiting.setdefault(group, deque()), trio.Event()
        (waiting.appendleft if first else waiting.append)(turn)
        try:
            await turn.wait()
            for _ in range(_APART):
                await trio.lowlevel.checkpoint()
        finally:
            if turn.is_set():
                self._pass_on()
            else:
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[group]

    def _pass_on(self) -> None:
        self._taken = bool(self._waiting)
        if self._taken:
            group = next(iter(self._waiting))
            waiting = self._waiting.pop(group)
            waiting.popleft().set()
            if waiting:
                self._waiting[group] = waiting
