"""`sqlite_one`: durable updates through the service by one writer, one after the other.

Measured: one task updates each of 500 resources by ``client.write``, in an SQLite store (write-ahead log, synchronous
FULL) behind the service in one process; the processor time of all threads per write. It includes everything that
`write` includes, the thread of the transactions and the wake-ups between it and the loop, and the system's part of
each flush. The resources have been created by the same process. A disk that is busy with other work makes both sides
wait, which does not count.

Against: the `sqlite3` module replaces the same rows of resources and inserts the same rows of history, in tables of the
same definition, each resource in a transaction of its own, also with a write-ahead log and synchronous FULL; the
processor time per resource. It has no thread, no loop, and no check.

Each measurement has a file of its own, on the file system for temporary files; set ``TMPDIR`` to choose another disk.
The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, texts
from benchmarks.sqlite import Inserts
from headway.events import ignore
from headway.resource import ResourceType

BOUND = 5.0


def measure(size: int, rounds: int) -> Row:
    """Update ``size`` resources."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    with tempfile.TemporaryDirectory(prefix="headway-sqlite-") as folder:
        rows = Inserts(Path(folder))
        ours, against = interleaved(lambda: trio.run(_updated, app, type, size, rows), rows.replaced, rounds)
    return Row("sqlite_one", ours / size * 1e6, against / size * 1e6, "us", BOUND)


async def _updated(app: headway.App, type: ResourceType[Note], size: int, rows: Inserts) -> float:
    """Return the seconds of processor time for ``size`` updates."""
    given = [texts(number) for number in range(size)]
    path = rows.new_path()
    async with headway.open_engine(f"sqlite:{path}", app, report=ignore) as engine:
        stored = [
            await engine.client.write(type.new(text.name, Note(text=TEXT), metadata={"group": text.group}))
            for text in given
        ]
        begin = time.process_time()
        for resource in stored:
            await engine.client.write(resource)
        took = time.process_time() - begin
    rows.learn(path)
    return took


SCENARIO = Scenario("sqlite_one", BOUND, measure, size=500, rounds=9, quick=200)
