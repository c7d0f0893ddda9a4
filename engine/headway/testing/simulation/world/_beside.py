"""The functions of a program beside its controllers: each runs in every life of a process, and its calls are steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import trio

from headway.base import leaves
from headway.testing.simulation._trace import Reconcile, Reconciled
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._traced_app import RECONCILE

_MOST_FAILURES = 20
"""The number of failures after which a run is given up."""
_MOST_IN_A_ROW = 6
"""The number of failures in a row, the last one after all faults have healed, after which a run is given up."""
_LONGEST_DELAY = 32.0
"""The longest delay, in seconds, before a process starts again. It doubles while the process fails soon each time."""


class _Process(Protocol):
    @property
    def name(self) -> str: ...


class Besides:
    """The functions beside the controllers of one process, over all of its lives."""

    def __init__(self, functions: Sequence[Callable[[Any], Awaitable[object]]], injector: Injector) -> None:
        self._functions = functions
        self._injector = injector
        self._failures = 0
        # The failures in a row, each within `_LONGEST_DELAY` seconds of the start.
        self._in_a_row = 0

    @property
    def delay(self) -> float:
        """The seconds before the process's next life, as the supervisor of a process that keeps failing has it."""
        return min(2.0 ** (self._in_a_row - 1), _LONGEST_DELAY) if self._in_a_row else 0.0

    def __len__(self) -> int:
        return len(self._functions)

    async def run(self, process: _Process) -> None:
        """Run them until canceled. Return if one has failed under a fault, as a process ends in production.

        Raises:
            Exception: a function has failed although no fault has struck.
        """
        began, in_a_row, self._in_a_row = trio.current_time(), self._in_a_row, 0
        try:
            async with trio.open_nursery() as nursery:
                for function in self._functions:
                    nursery.start_soon(self._one, function, process)
                await trio.sleep_forever()
        except* Exception as group:
            error = next(iter(leaves(group)))
            if not self._injector.struck:
                raise
            self._failures += 1
            self._in_a_row = in_a_row + 1 if trio.current_time() - began < _LONGEST_DELAY else 1
            self._injector.note(f"{process.name} ends: {type(error).__name__}: {error}")
            hopeless = self._injector.healed and self._in_a_row > _MOST_IN_A_ROW
            if hopeless or self._failures > _MOST_FAILURES:
                self._injector.give_up(f"{process.name} has ended {self._failures} times: {error!r}")

    async def _one(self, function: Callable[[Any], Awaitable[object]], process: _Process) -> None:
        injector, name = self._injector, getattr(function, "__name__", repr(function))
        call = Reconcile(
            trio.current_time(),
            process.name,
            "",
            ("", ""),
            ("", "", ""),
            "",
            0,
            {},
            steps=len(injector.trace.steps),
            trace=injector.trace.entries,
            function=name,
        )
        injector.begin_reconcile(call)
        RECONCILE.set(call)
        result = "canceled"
        try:
            await function(process)
            result = "done"
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
            raise
        finally:
            injector.trace.add(Reconciled(trio.current_time(), call, result))
