"""`quiet` and `quiet_types`: a write by the client, and then 20 ms in which nothing happens, per write.

Measured: an engine on the store in memory, without a controller of its own. A client creates resources, and sleeps
for 20 ms after each. `quiet_types` has a controller that watches 20 other types; they never change. The figure is the
processor time of all that the engine does, less that of the same number of sleeps.

Against: the same creations without the sleeps.

What a write wakes shows only with silence after it: in a burst, tasks that are woken run once for many writes. The
processor's caches are cold after each sleep, so that the same instructions take two to five times as long.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, note, texts
from headway.events import ignore

SILENCE = 0.02
"""The seconds of silence after a write."""

TYPES = 20


def measure_as(name: str, types: int, bound: float, size: int, rounds: int) -> Row:
    """Make ``size`` creations with silence between them, and as many without, beside watched types."""
    ours, against = interleaved(
        lambda: trio.run(_written, types, size, SILENCE), lambda: trio.run(_written, types, size * 20, 0.0), rounds
    )
    return Row(name, ours * 1e6, against * 1e6, "us", bound)


async def _written(types: int, count: int, silence: float) -> float:
    """Return the seconds of processor time for each write."""
    app = headway.App("bench")
    written = app.type("bench", "v1", "Note", Note)
    if types:
        others = [app.type("bench", "v1", f"Other{number}", Note) for number in range(types)]

        watched = [headway.watch(each, headway.mappers.owner()) for each in others[1:]]

        @app.controller(manages=others[0], watches=watched)
        async def others_changed(rt: headway.Runtime, request: headway.Request) -> None: ...

    async with headway.open_engine("memory:", app, report=ignore) as engine:
        made = [written.new(texts(at).name, note(at), metadata={"group": texts(at).group}) for at in range(count + 20)]
        for each in made[count:]:
            await engine.client.write(each)
        await engine.wait_idle()
        asleep = -time.process_time()
        if silence:
            for _ in range(count):
                await trio.sleep(silence)
        asleep += time.process_time()
        begun = time.process_time()
        for each in made[:count]:
            await engine.client.write(each)
            if silence:
                await trio.sleep(silence)
        return (time.process_time() - begun - asleep) / count


def _row(name: str, types: int, bound: float) -> Scenario:
    return Scenario(name, bound, lambda size, rounds: measure_as(name, types, bound, size, rounds), 100, 7, quick=40)


ROWS = (_row("quiet", 0, 8.0), _row("quiet_types", TYPES, 7.0))
