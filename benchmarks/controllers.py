"""`controllers`: the cost of one event with ten controllers on the same types, compared with one controller.

Measured: the wall time from a commit until all ten controllers have reconciled it, for each of 2,000 creations of
distinct keys of the type that they all manage. Each controller also watches one other type. The time includes
everything that `trickle` includes, ten times, except for the stream and the cache, which the controllers share. This
row has no bound, because ten controllers reconcile ten times.

Against: the same with one controller.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, put
from headway.events import ignore
from headway.storage import MemoryBackend

CONTROLLERS = 10


def measure(size: int, rounds: int) -> Row:
    """Commit ``size`` creations, one after the other."""
    ours, against = interleaved(
        lambda: trio.run(_seconds, CONTROLLERS, size), lambda: trio.run(_seconds, 1, size), rounds
    )
    return Row("controllers", ours / size * 1e6, against / size * 1e6, "us", None)


async def _seconds(controllers: int, size: int) -> float:
    app = headway.App("bench")
    managed, watched = (app.type("bench", "v1", kind, Note) for kind in ("Managed", "Watched"))
    left = 0
    done = trio.Event()

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal left
        assert rt.cache.get(managed, request.id) is not None
        left -= 1
        if not left:
            done.set()

    for number in range(controllers):
        app.controller(
            manages=managed, watches=[headway.watch(watched, headway.mappers.same_name())], name=f"notes-{number}"
        )(notes)
    puts = [put(managed, resource) for resource in built_many(managed, size)]
    backend = MemoryBackend()
    async with headway.open_engine(backend, app, report=ignore) as engine:
        await engine.wait_idle()
        begin = time.perf_counter()
        for each in puts:
            left, done = controllers, trio.Event()
            await backend.commit([each])
            await done.wait()
        return time.perf_counter() - begin


SCENARIO = Scenario("controllers", None, measure, size=2_000, rounds=5)
