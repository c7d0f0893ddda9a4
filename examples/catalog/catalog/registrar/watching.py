"""The checks of a workload, made again and again, and what is known from them."""

from __future__ import annotations

import random

import trio

from catalog.messages import Health
from catalog.registrar import checks
from catalog.registrar.checks import Result
from catalog.registrar.definitions import Check, Registered


class Watched:
    """A workload with the last results of its checks.

    Attributes:
        results: the results by the names of the checks.
        number: the number of changes of a check's health so far.
        critical_since: since when a check with ``deregister_critical_after`` is critical, by its name, on Trio's clock.
    """

    def __init__(self, registered: Registered) -> None:
        self.registered = registered
        self.results: dict[str, Result] = {}
        self.critical_since: dict[str, float] = {}
        self._changed = trio.Condition()
        self.number = 0

    @property
    def known(self) -> bool:
        """True once every check has been made."""
        return len(self.results) == len(self.registered.checks)

    @property
    def health(self) -> Health:
        """The worst result."""
        return max((each.health for each in self.results.values()), default=Health.HEALTH_PASSING)

    @property
    def deregister_at(self) -> float:
        """When it is to be deleted, on Trio's clock, if it does not recover."""
        ends = [
            self.critical_since[each.name] + each.deregister_after
            for each in self.registered.checks
            if each.deregister_after and each.name in self.critical_since
        ]
        return min(ends, default=float("inf"))

    async def run(self) -> None:
        """Make all checks until canceled."""
        async with trio.open_nursery() as nursery:
            for each in self.registered.checks:
                nursery.start_soon(self._repeat, each, name=f"check {each.name} of {self.registered.workload.name}")

    async def _repeat(self, check: Check) -> None:
        while True:
            began = trio.current_time()
            await self._note(check, await checks.run(check), began)
            # With jitter, so that the checks of a host are not all made at once. Never later than the interval.
            await trio.sleep_until(began + check.interval * random.uniform(0.9, 1.0))

    async def _note(self, check: Check, result: Result, began: float) -> None:
        if result.health < Health.HEALTH_CRITICAL:
            self.critical_since.pop(check.name, None)
        else:
            self.critical_since.setdefault(check.name, began)
        old = self.results.get(check.name)
        self.results[check.name] = result
        # An output that changes each time, such as one with the time, is not worth a write each time.
        if old is None or old.health != result.health:
            async with self._changed:
                self.number += 1
                self._changed.notify_all()

    async def wait_changed(self, seen: int) -> None:
        """Wait until a check has another health than at this `number`."""
        async with self._changed:
            while self.number == seen:
                await self._changed.wait()
