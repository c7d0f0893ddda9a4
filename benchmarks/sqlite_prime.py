"""`sqlite_prime`: priming a controller from an SQLite file with 100,000 resources.

Measured: the wall time per resource from opening an engine on the file to the `RunStarted` report of a controller of
the one type, which has an index of 10 groups. The time includes the check of the file for damage, which reads it once,
the commits of a session and of a fence, the snapshot (each row is checked against its checksum and decoded), and
the other steps that `prime` describes. The store keeps no history (``max_changes=1``).

Against: reading the bodies of the same rows with the `sqlite3` module, and decoding each into the same message.

The file is on the file system for temporary files; set ``TMPDIR`` to choose another disk. The message has one metadata
entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import trio

from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note
from benchmarks._primed import filled, one_type, primed_after
from headway.protobuf import decode
from headway.resource import ResourceType, pb
from headway.storage import SqliteBackend


def measure(size: int, rounds: int) -> Row:
    """Prime from a file of ``size`` resources."""
    app, type = one_type()
    with tempfile.TemporaryDirectory(prefix="headway-sqlite-") as folder:
        path = Path(folder) / "store.db"
        url = f"sqlite:{path}?max_changes=1"
        trio.run(_filled, path, type, size)
        ours, against = interleaved(lambda: trio.run(primed_after, url, app), lambda: _read(path, type, size), rounds)
    return Row("sqlite_prime", ours / size * 1e6, against / size * 1e6, "us", None)


async def _filled(path: Path, type: ResourceType[Note], size: int) -> None:
    async with SqliteBackend(path, max_changes=1) as store:
        await filled(store, type, size)


def _read(path: Path, type: ResourceType[Note], size: int) -> float:
    begin = time.perf_counter()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT body FROM resources WHERE type_group = ? AND kind = ?", type.kind)
        assert len([decode(pb.Resource, body) for (body,) in rows]) == size
    return time.perf_counter() - begin


SCENARIO = Scenario("sqlite_prime", None, measure, size=100_000, rounds=3)
