"""A check, every two seconds, of whether an engine can use its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from headway.cache import Informers
from headway.errors import HeadwayError, StoreRolledBack, Unavailable
from headway.events import Report, StoreFailed, StoreRecovered
from headway.storage import Backend, StoreProblem, find_problem

EVERY = 2.0
PATIENCE = 5.0
"""The number of seconds without an answer after which a store counts as away."""


class StoreHealth:
    """The health of a store, as of the last check.

    Args:
        informers: consulted for whether the store was rolled back.

    Attributes:
        problem: why the store cannot be used now; None if it can.
    """

    def __init__(self, backend: Backend, informers: Sequence[Informers], report: Report) -> None:
        self.problem: StoreProblem | None = None
        self._backend = backend
        self._informers = informers
        self._report = report
        self._since = 0.0
        self._changed: Callable[[StoreProblem | None], None] | None = None

    def follow(self, changed: Callable[[StoreProblem | None], None]) -> None:
        """Call a function now, and again at every change of the problem."""
        self._changed = changed
        changed(self.problem)

    async def watch(self) -> None:
        """Check the store repeatedly until canceled."""
        async with trio.open_nursery() as nursery:
            while True:
                looked = trio.Event()
                # The check has a task of its own, because a thread that hangs in a read from a broken disk can't be
                # canceled.
                nursery.start_soon(self._look, looked, name="look at the store")
                with trio.move_on_after(PATIENCE):
                    await looked.wait()
                if not looked.is_set():
                    self._found(StoreProblem.AWAY, Unavailable(f"the store has not answered for {PATIENCE} s"))
                    await looked.wait()
                await trio.sleep(EVERY)

    async def _look(self, looked: trio.Event) -> None:
        found = await find_problem(self._backend)
        if found is None and any(informers.rolled_back for informers in self._informers):
            found = StoreProblem.ROLLED_BACK, StoreRolledBack("the store answers with lower revisions than before")
        self._found(*(found or (None, None)))
        looked.set()

    def _found(self, problem: StoreProblem | None, error: HeadwayError | None) -> None:
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
