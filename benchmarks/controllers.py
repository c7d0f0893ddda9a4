"""`controllers_10`, `controllers_50`: the cost of one event for each controller, as their number grows.

`controllers_10`: the processor time from a commit until ten controllers have reconciled it, per controller, for each of
300 creations of distinct keys of the type that they all manage. Each controller also watches one other type. The time
includes everything that `trickle` includes, ten times, except for the stream and the cache, which the controllers
share. Against: the same with one controller. Nothing is subtracted, so one controller pays for the stream alone, and
ten must be cheaper each.

`controllers_50`: the cost that each of 40 further controllers adds to ten. Against: the cost that each of nine adds to
one. These differences leave out the stream and the cache.

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

BOUND = 1.5
EVENTS = 300
_TEN = 10


def _each(size: int, rounds: int) -> Row:
    """Compare ``size`` controllers with one."""
    ours, against = interleaved(lambda: trio.run(_seconds, size) / size, lambda: trio.run(_seconds, 1), rounds)
    return Row("controllers_10", ours * 1e6, against * 1e6, "us", BOUND)


def _further(size: int, rounds: int) -> Row:
    """Compare the cost of each controller after the tenth with that of each one before it."""
    few = min(_TEN, size - 1)

    def added(many: int, few: int) -> float:
        return (trio.run(_seconds, many) - trio.run(_seconds, few)) / (many - few)

    ours, against = interleaved(lambda: added(size, few), lambda: added(few, 1), rounds)
    return Row("controllers_50", ours * 1e6, against * 1e6, "us", BOUND)


async def _seconds(controllers: int) -> float:
    """Return the seconds of processor time of one event."""
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
    puts = [put(managed, resource) for resource in built_many(managed, EVENTS)]
    backend = MemoryBackend()
    async with headway.open_engine(backend, app, report=ignore) as engine:
        await engine.wait_idle()
        begin = time.process_time()
        for each in puts:
            left, done = controllers, trio.Event()
            await backend.commit([each])
            await done.wait()
        return (time.process_time() - begin) / len(puts)


ROWS = (
    Scenario("controllers_10", BOUND, _each, size=_TEN, rounds=5, quick=_TEN),
    Scenario("controllers_50", BOUND, _further, size=50, rounds=3, quick=50),
)
