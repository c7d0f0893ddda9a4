"""The samples of a soak, and the judgment whether they drift: the last third of them against the middle third.

The first third is left out, because it fills the bounded memories: the history of the store, the journal, Python's
free lists. After it, the same load must cost the same. The bounds:

- **Objects, tasks, files, threads.** They are counted when the engine is idle, after a full collection, with the same
  resources and readers each time. A leak of one object for each team that comes and goes is hundreds of objects in a
  third. The count leaves out cancel scopes, because Trio keeps up to a thousand whose block has ended. The rest varies
  by a few dozen. The bound of the objects is 0.5 % and 150; the others may not grow by more than three.
- **Resident memory.** Python's allocator takes and returns memory in arenas of 1 MB, so the memory of a steady program
  varies by a few of them. The bound is 3 % and 2 MB: less than 1 kB for each team of a run of ten minutes.
- **Collections.** The processor time of a full collection, which grows with all live objects, and of the longest
  collection that Python begins by itself between two samples. Programs share the caches of a processor, so its time
  varies by a half on a busy machine. The bound is a factor of 2.
- **Latency.** The 99th percentile of each sample, in wall time, from a write to its reconcile. The medians over the
  thirds are compared, so a stall of the machine in fewer than half of the samples changes nothing. The bound is a
  factor of 3 and 50 ms: what slows down with its age exceeds any factor in the end.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

import trio


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures at the end of a round, and of the time since the sample before.

    Attributes:
        rss: the resident memory, in bytes.
        objects: the objects that the collector tracks, without cancel scopes.
        tasks: the living tasks of Trio.
        files: the open files and sockets.
        threads: the threads of Python.
        collection: the seconds of a full collection.
        pause: the longest pause by a collection since the sample before, in seconds.
        p99: the 99th percentile of the latencies since the sample before, in seconds.
    """

    rss: float
    objects: float
    tasks: float
    files: float
    threads: float
    collection: float
    pause: float
    p99: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The highest allowed value in the last third: a factor of that in the middle third, and an allowance."""

    factor: float
    allowance: float

    def of(self, middle: float) -> float:
        """Return the highest allowed value."""
        return middle * self.factor + self.allowance


BOUNDS = {
    "rss": Bound(1.03, 2e6),
    "objects": Bound(1.005, 150.0),
    "tasks": Bound(1.0, 3.0),
    "files": Bound(1.0, 3.0),
    "threads": Bound(1.0, 3.0),
    "collection": Bound(2.0, 0.005),
    "pause": Bound(2.0, 0.005),
    "p99": Bound(3.0, 0.05),
}
assert list(BOUNDS) == [each.name for each in fields(Sample)]


def thirds(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return the medians of each figure over the middle third and over the last third."""
    third = len(samples) // 3
    middle, last = samples[-2 * third : -third], samples[-third:]
    return {
        name: (median(getattr(each, name) for each in middle), median(getattr(each, name) for each in last))
        for name in BOUNDS
    }


def drifts(samples: Sequence[Sample]) -> list[str]:
    """Return a sentence for each figure that is above its bound. Raise ValueError for fewer than nine samples."""
    if len(samples) < 9:
        raise ValueError(f"{len(samples)} samples are too few to compare thirds of them; take at least 9")
    return [
        f"{name} drifts: {last:.6g} in the last third, {middle:.6g} in the middle one, and at most "
        f"{BOUNDS[name].of(middle):.6g} is allowed"
        for name, (middle, last) in thirds(samples).items()
        if last > BOUNDS[name].of(middle)
    ]


class Sampler:
    """Takes samples, and listens to the garbage collector in between. Use it in a ``with`` block."""

    def __init__(self) -> None:
        self._pauses: list[float] = []
        self._began = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._collecting)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        gc.callbacks.remove(self._collecting)

    def take(self, latencies: list[float]) -> Sample:
        """Return a sample, and empty the list of latencies."""
        pause = max(self._pauses, default=0.0)
        self._pauses.clear()
        gc.collect()
        (collection,) = self._pauses
        self._pauses.clear()
        found = sorted(latencies)
        latencies.clear()
        return Sample(
            rss=float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
            objects=sum(type(each) is not trio.CancelScope for each in gc.get_objects()),
            tasks=trio.lowlevel.current_statistics().tasks_living,
            files=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            collection=collection,
            pause=pause,
            p99=found[len(found) * 99 // 100],
        )

    def _collecting(self, phase: str, _: dict[str, Any]) -> None:
        # Processor time, so that other programs lengthen no pause.
        if phase == "start":
            self._began = time.process_time()
        else:
            self._pauses.append(time.process_time() - self._began)
