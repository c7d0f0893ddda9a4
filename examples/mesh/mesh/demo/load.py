"""The client that calls all the time, and what may come of a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Flag, auto

import httpx
import trio

LANES = 3
"""The number of calls at one time."""
_PAUSE = 0.005
_TIMEOUT = 10.0
_SHOWN = 20
"""The number of faults that are kept in words."""


class Result(Flag):
    """What comes of a call."""

    SERVED = auto()
    """A service has answered."""
    REFUSED = auto()
    """A proxy has denied the call."""
    LOST = auto()
    """Anything else: no answer, or an error."""


@dataclass(eq=False)
class _Call:
    allowed: Result


class Load:
    """Calls without an end, each of which must have one of the results that were allowed while it ran.

    Attributes:
        counts: the results by their words: the name of the workload that has answered, or an error.
        faults: calls with another result, in words. Only the first ones are kept.
        wrong: the number of these calls.
        lost: the number of calls that were lost while that was allowed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._allowed = Result.SERVED
        self._running: set[_Call] = set()
        self._hearers: set[Callable[[str, Result], None]] = set()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.wrong = 0
        self.lost = 0

    async def run(self) -> None:
        """Call until canceled."""
        async with trio.open_nursery() as nursery:
            for _ in range(LANES):
                nursery.start_soon(self._lane)

    async def _lane(self) -> None:
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            while True:
                call = _Call(self._allowed)
                self._running.add(call)
                try:
                    self._judge(call, *await self._get(client))
                finally:
                    self._running.discard(call)
                await trio.sleep(_PAUSE)

    async def _get(self, client: httpx.AsyncClient) -> tuple[str, Result]:
        try:
            response = await client.get(self._url)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}", Result.LOST
        text = response.text.strip()
        if response.status_code == httpx.codes.OK:
            return text, Result.SERVED
        refused = response.status_code == httpx.codes.FORBIDDEN
        return f"{response.status_code} {text}", Result.REFUSED if refused else Result.LOST

    def _judge(self, call: _Call, words: str, result: Result) -> None:
        self.counts[words] += 1
        if result not in call.allowed:
            self.wrong += 1
            if len(self.faults) < _SHOWN:
                self.faults.append(f"{words!r}, where {call.allowed.name} was expected")
        elif result is Result.LOST:
            self.lost += 1
        for hear in list(self._hearers):
            hear(words, result)

    def expect(self, allowed: Result) -> None:
        """Allow these results from now on. A call that is running may also have one that was allowed before."""
        self._allowed = allowed
        for each in self._running:
            each.allowed |= allowed

    @contextmanager
    def _hearing(self, hear: Callable[[str, Result], None]) -> Iterator[None]:
        self._hearers.add(hear)
        try:
            yield
        finally:
            self._hearers.discard(hear)

    async def until(self, wanted: Callable[[str, Result], bool], in_a_row: int = 1) -> float:
        """Wait until some calls in a row end as wanted. Return the seconds that it took."""
        began, found = trio.current_time(), trio.Event()
        row = 0

        def hear(words: str, result: Result) -> None:
            nonlocal row
            row = row + 1 if wanted(words, result) else 0
            if row >= in_a_row:
                found.set()

        with self._hearing(hear):
            await found.wait()
        return trio.current_time() - began

    async def sample(self, count: int) -> Counter[str]:
        """Return what the next calls end with."""
        found: Counter[str] = Counter()
        done = trio.Event()

        def hear(words: str, _: Result) -> None:
            found[words] += 1
            if found.total() == count:
                done.set()

        with self._hearing(hear):
            await done.wait()
        return found
