"""`sqlite`: durable Writes through the service by many writers at once.

Measured: 64 tasks that each create their share of 6,400 resources by ``client.write``, on the SQLite store (write-ahead
log, synchronous FULL) behind the service in one process; for each write. In it: everything that `write` measures, the
turns of 64 tasks in the event loop, the worker thread of the transactions, and the disk. Out of it: opening and closing
the store, and ``TYPE.new``.

Against: the `sqlite3` module inserting the same rows, resource and history, as the store has just written them, into
tables of the same definition in transactions of 64, write-ahead log and synchronous FULL too; for each resource.

Each measurement has a file of its own on one file system, by default that of the system's temporary files; another
``TMPDIR`` is another disk. The message has one metadata entry and 120 bytes of payload. No channel buffer plays a part.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, texts
from headway.client import Client
from headway.events import ignore
from headway.resource import Resource, ResourceType

WRITERS = 64

_TABLES = "SELECT sql FROM sqlite_master WHERE tbl_name IN ('resources', 'history') AND sql IS NOT NULL"


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    with tempfile.TemporaryDirectory(prefix="headway-sqlite-") as folder:
        rows = Inserts(Path(folder))
        ours, against = interleaved(lambda: trio.run(_written, app, type, size, rows), lambda: rows.inserted(), rounds)
    return Row("sqlite", ours / size * 1e6, against / size * 1e6, "us", 10.0)


async def _written(app: headway.App, type: ResourceType[Note], size: int, rows: Inserts) -> float:
    """Seconds for ``size`` creations."""
    given = [texts(number) for number in range(size)]
    new = [type.new(text.name, Note(text=TEXT), metadata={"group": text.group}) for text in given]
    path = rows.new_path()
    async with headway.open_engine(f"sqlite:{path}", app, report=ignore) as engine:
        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(_write, engine.client, new[writer::WRITERS])
        took = time.perf_counter() - begin
    rows.learn(path)
    return took


async def _write(client: Client, resources: list[Resource[Note]]) -> None:
    for resource in resources:
        await client.write(resource)


class Inserts:
    """The other side: what a store has written, inserted by itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._tables: list[str] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}

    def new_path(self) -> Path:
        """Of a file that isn't there yet."""
        self._files += 1
        return self._folder / f"{self._files}.db"

    def learn(self, path: Path) -> None:
        """Take tables and rows from a store's file."""
        with closing(sqlite3.connect(path)) as connection:
            self._tables = [sql for (sql,) in connection.execute(_TABLES)]
            for table in ("resources", "history"):
                self._rows[table] = connection.execute(f"SELECT * FROM {table} ORDER BY revision").fetchall()

    def inserted(self) -> float:
        """Seconds for the same rows in transactions of `WRITERS`."""
        with closing(sqlite3.connect(self.new_path(), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            for statement in self._tables:
                connection.execute(statement)
            inserts = {
                table: f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"
                for table, rows in self._rows.items()
            }
            begin = time.perf_counter()
            for first in range(0, len(self._rows["resources"]), WRITERS):
                connection.execute("BEGIN IMMEDIATE")
                for table, insert in inserts.items():
                    connection.executemany(insert, self._rows[table][first : first + WRITERS])
                connection.execute("COMMIT")
            return time.perf_counter() - begin


SCENARIO = Scenario("sqlite", 10.0, measure, size=6_400, rounds=7, quick=1_920)
