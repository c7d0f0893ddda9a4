"""`make soak`: run an engine under a steady load for some time, and fail if what it costs drifts.

python -m tests.soak SECONDS [STORE]

STORE is ``memory`` (the default) or ``sqlite``, in a directory of its own. There are `RATE` steps a second. The exit
status is 1 if a figure drifts (tests/soak/samples.py says which, and by how much), and 2 if the arguments are invalid.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import trio

from headway.storage import Backend, MemoryBackend, SqliteBackend
from tests.soak.load import ROUND, Load, opened
from tests.soak.samples import BOUNDS, Sample, Sampler, drifts, thirds

RATE = 20.0
"""Steps a second. A step makes about ten commits."""

SAMPLES = 60
"""About this many samples are taken, at the ends of rounds."""

HISTORY = 1_000
"""The number of changes that the store keeps. They are complete long before the first third ends."""


def store_of(kind: str, folder: str) -> Backend:
    """Return the store, with a short history."""
    if kind == "sqlite":
        return SqliteBackend(Path(folder) / "soak.db", max_changes=HISTORY)
    return MemoryBackend(max_changes=HISTORY)


async def soaked(load: Load, store: Backend, rounds: int, rate: float, rounds_per_sample: int = 1) -> list[Sample]:
    """Run rounds of the load, and return a sample for each ``rounds_per_sample``.

    Args:
        rate: steps a second at most; 0 for as many as possible.
    """
    samples = []
    async with opened(load, store) as engine, trio.open_nursery() as nursery:
        with Sampler() as sampler:
            begin = trio.current_time()
            for round in range(rounds):
                for number in range(round * ROUND, (round + 1) * ROUND):
                    if rate:
                        await trio.sleep_until(begin + number / rate)
                    await load.step(engine, nursery, number)
                if (round + 1) % rounds_per_sample == 0:
                    await load.settle(engine)
                    samples.append(sampler.take(load.latencies))
        nursery.cancel_scope.cancel()
    return samples


def main(arguments: list[str]) -> int:
    """Run the load, print the figures of both thirds, and return the exit status."""
    seconds, kind = float(arguments[0]), (arguments[1:] or ["memory"])[0]
    if kind not in ("memory", "sqlite") or seconds <= 0:
        print(f"{arguments!r} is not valid; write seconds above 0 and memory or sqlite: 600 sqlite", file=sys.stderr)
        return 2
    rounds = max(9, int(seconds * RATE / ROUND))
    load, began, cpu = Load(), time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as folder:
        samples = trio.run(soaked, load, store_of(kind, folder), rounds, RATE, max(1, rounds // SAMPLES))
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    print(
        f"{rounds * ROUND:,} steps in {wall:.0f} s, {cpu:.0f} s of the processor, {load.reconciles:,} reconciles, "
        f"{load.received:,} events received, {len(samples)} samples"
    )
    for name, (middle, last) in thirds(samples).items():
        print(f"{name:<11} middle {middle:>14.6g}  last {last:>14.6g}  at most {BOUNDS[name].of(middle):>14.6g}")
    for each in drifts(samples):
        print(each, file=sys.stderr)
    return 1 if drifts(samples) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
