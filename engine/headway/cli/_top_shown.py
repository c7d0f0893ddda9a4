"""The content of `headway top`: the controllers of each process, and the row of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from headway.cli._scrape import scrape
from headway.errors import Unavailable
from headway.observe import ControllerState

HEADS = ("CONTROLLER", "STATE", "RATE", "FAILED", "QUEUED", "RUNNING", "RESTING", "NOT DONE", "OLDEST", "LAG", "CACHED")
"""The columns. RATE and FAILED are reconciles a second."""


@dataclass
class Shown:
    """The content of `top`: the controllers of each process, or the reason why it has none.

    Attributes:
        problems: the reason for each process that did not answer the last time.
    """

    addresses: Sequence[str]
    interval: float
    states: dict[str, list[ControllerState]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)

    async def look(self) -> None:
        """Read all pages at once."""
        async with trio.open_nursery() as nursery:
            for each in self.addresses:
                nursery.start_soon(self._look_at, each)

    async def _look_at(self, address: str) -> None:
        try:
            found = await scrape(address)
        except Unavailable as error:
            self.problems[address] = str(error)
            self.states.pop(address, None)
            return
        now = trio.current_time()
        before = {(each.process, each.name): each for each in self.states.get(address, ())}
        for state in found:
            earlier = before.get((state.process, state.name))
            if earlier is not None and now > self.at[address]:
                state.rates_since(earlier, now - self.at[address])
        self.problems.pop(address, None)
        self.states[address], self.at[address] = found, now

    async def keep_looking(self) -> None:
        """Read all pages repeatedly, until canceled."""
        while True:
            await self.look()
            await trio.sleep(self.interval)

    @property
    def several(self) -> bool:
        """True if there may be controllers of more than one process."""
        return len(self.addresses) > 1 or len({each.process for each in self.all}) > 1

    @property
    def all(self) -> list[ControllerState]:
        """The controllers of all processes, in the order of the addresses."""
        return [state for address in self.addresses for state in self.states.get(address, ())]


def cells(state: ControllerState) -> list[str]:
    """Return the row of a controller."""
    return [
        state.name,
        state.state,
        _rate(state.rate),
        _rate(state.failures),
        *(f"{count:,.0f}" for count in (state.queued, state.running, state.resting, state.not_done)),
        _seconds(state.oldest),
        f"{state.lag:,.0f}",
        f"{state.resources:,.0f}",
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}/s"


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
