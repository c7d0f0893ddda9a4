"""`governor`: what a runaway controller costs other writers while its `write_limit` holds it to 10 writes a second.

Measured: the wall time below which 99 % of a client's writes stay, in the process of the engine and on the memory
store, while a controller writes in a loop, as often as it may. Its burst is over before the measurement begins. The
scenario fails if the controller makes more writes than its limit allows.

Against: the same writes beside the same controller, which writes nothing.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import Note
from headway.events import ignore

BOUND = 1.1
LIMIT = headway.WriteLimit(10, burst=10)


def measure(size: int, rounds: int) -> Row:
    """Make ``size`` writes."""
    ours, against = interleaved(
        collected(lambda: trio.run(_beside, size, True)), collected(lambda: trio.run(_beside, size, False)), rounds
    )
    return Row("governor", ours * 1e6, against * 1e6, "us", BOUND)


async def _beside(size: int, runs_away: bool) -> float:
    """Return the 99th percentile of the seconds of a write beside a controller."""
    app = headway.App("bench")
    managed, other = app.type("bench", "v1", "Managed", Note), app.type("bench", "v1", "Other", Note)
    written, settled = 0, trio.Event()

    @app.controller(manages=managed, write_limit=LIMIT)
    async def runaway(rt: headway.Runtime, request: headway.Request[Note]) -> None:
        nonlocal written
        while runs_away:
            note = await rt.client.read(managed, request.id)
            note.metadata["written"] = str(written)
            await rt.client.write(note)
            written += 1
            if written == LIMIT.burst:
                settled.set()
        settled.set()

    async with headway.open_engine("memory:", app, report=ignore) as engine:
        await engine.client.write(managed.new("one"))
        await settled.wait()
        before, began = written, time.perf_counter()
        client, notes, taken = engine.client, [other.new(f"note-{number:04}") for number in range(100)], []
        for number in range(size):
            begin = time.perf_counter()
            await client.write(notes[number % 100])
            taken.append(time.perf_counter() - begin)
            # Let the others run, so that their work is not all between two writes.
            await trio.lowlevel.checkpoint()
        seconds = time.perf_counter() - began
    assert written - before <= seconds * LIMIT.per_second + 1, "the controller writes more than its limit allows"
    assert not runs_away or written > before or seconds < 0.2, "the controller does not run away"
    return sorted(taken)[size * 99 // 100]


SCENARIO = Scenario("governor", BOUND, measure, size=20_000, rounds=7, quick=5_000)
