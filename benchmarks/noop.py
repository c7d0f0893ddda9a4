"""`noop`: the cost of reconciling a key at the start when there is nothing to do.

Measured: the wall time per key from a run's beginning (`RunStarted`: everything is primed) until the last of 100,000
cached keys has been reconciled by a function that does nothing. The time includes the queue's work on the backlog, 8
workers, the reports, and a deadline of 300 s around each reconcile. It excludes opening the engine and priming, which
`prime` measures.

Against: a plain loop in one task that awaits the same function for each key, and a checkpoint after it. There is no
bound.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, fill
from headway.events import RunStarted
from headway.storage import MemoryBackend


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys that exist at the start."""
    backend = MemoryBackend(max_changes=1)
    resources = built_many(headway.App("bench").type("bench", "v1", "Managed", Note), size)
    trio.run(fill, backend, headway.App("bench").type("bench", "v1", "Managed", Note), resources)
    ours, against = interleaved(lambda: trio.run(reconciled, backend, size), lambda: trio.run(_awaited, size), rounds)
    return Row("noop", ours / size * 1e6, against / size * 1e6, "us", None)


async def reconciled(backend: MemoryBackend, size: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a clock from the run's beginning until every key has been reconciled."""
    app = headway.App("bench")
    managed = app.type("bench", "v1", "Managed", Note)
    done, left, begun = trio.Event(), size, 0.0

    def report(event: object) -> None:
        nonlocal begun
        if isinstance(event, RunStarted) and event.controller == "bench/notes":
            begun = clock()

    @app.controller(manages=managed, concurrency=8, deadline=300.0)
    async def notes(_: headway.Runtime, __: headway.Request) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with headway.open_engine(backend, app, report=report):
        await done.wait()
        return clock() - begun


async def _awaited(size: int) -> float:
    async def notes(_: object, __: object) -> None:
        """Do nothing."""

    begin = time.perf_counter()
    for _ in range(size):
        await notes(None, None)
        await trio.lowlevel.checkpoint()
    return time.perf_counter() - begin


SCENARIO = Scenario("noop", None, measure, size=100_000, rounds=5)
