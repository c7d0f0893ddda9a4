"""A check, every two seconds, of whether an engine can use its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from headway.errors import StoreRolledBack, Unavailable
from headway.events import Report, StoreFailed, StoreRecovered
from headway.informers import Informers
from headway.storage import Backend, StoreProblem, find_problem

EVERY = 2.0
PATIENCE = 5.0
"""The number of seconds without an answer after which a store counts as away."""


class StoreHealth:
    """The health of a store, as of the last check.

    Args:
        informers: consulted for whether the store was rolled back.

    Attributes:
        backend: the store.
        problem: why the store cannot be used now; None if it can.
    """

    def __init__(self, backend: Backend, informers: Sequence[Informers], report: Report) -> None:
        self.problem: StoreProblem | None = None
        self.backend = backend
        self._informers = informers
        self._report = report
        self._since = 0.0
        # When the check under way has begun; None between two checks.
        self._looking_since: float | None = None
        self._changed: Callable[[StoreProblem | None], None] | None = None

    def follow(self, changed: Callable[[StoreProblem | None], None]) -> None:
        """Call a function now, and again at every change of the problem."""
        self._changed = changed
        changed(self.problem)

    async def watch(self) -> None:
        """Check the store repeatedly until canceled."""
        async with trio.open_nursery() as nursery:
            # The checks have a task of their own, because a thread that hangs in a read from a broken disk can't be
            # canceled. Both tasks last: a check costs no task, event or cancel scope of its own.
            nursery.start_soon(self._look_often, name="look at the store")
            while True:
                since = self._looking_since
                await trio.sleep_until((trio.current_time() if since is None else since) + PATIENCE)
                # If the loop was held for that long, the answer may have arrived: a thread's result takes three turns.
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                if since is not None and since == self._looking_since:
                    self._found(StoreProblem.AWAY, Unavailable(f"the store has not answered for {PATIENCE} s"))
                    await trio.sleep(PATIENCE)

    async def _look_often(self) -> None:
        while True:
            self._looking_since = trio.current_time()
            found = await find_problem(self.backend)
            if found is None and any(informers.rolled_back for informers in self._informers):
                found = StoreProblem.ROLLED_BACK, StoreRolledBack("the store answers with lower revisions than before")
            self._looking_since = None
            self._found(*(found or (None, None)))
            await trio.sleep(EVERY)

    def _found(self, problem: StoreProblem | None, error: Exception | None) -> None:
        if problem is self.problem:
            return
        now = trio.current_time()
        before, self.problem = self.problem, problem
        if before is None:
            self._since = now
        if problem is not None and error is not None:
            self._report(StoreFailed(problem.name.lower(), error))
        elif before is not None:
            self._report(StoreRecovered(before.name.lower(), now - self._since))
        if self._changed is not None:
            self._changed(problem)
