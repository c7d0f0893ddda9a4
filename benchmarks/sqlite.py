"""`sqlite`: durable writes through the service by many concurrent writers.

Measured: 64 tasks create 6,400 resources by ``client.write``, each its share, in an SQLite store (write-ahead log,
synchronous FULL) behind the service in one process; the wall time per write. The time includes everything that `write`
includes, the turns of 64 tasks in the event loop, the worker thread of the transactions, and the disk. It excludes
opening and closing the store, and ``TYPE.new``.

Against: the `sqlite3` module inserts the same rows that the store has just written, resources and history, into tables
of the same definition, in transactions of 64, also with a write-ahead log and synchronous FULL; the wall time per
resource.

Each measurement has a file of its own. All files are on one file system, by default the one for temporary files; set
``TMPDIR`` to choose another disk. The message has one metadata entry and 120 bytes of payload. No channel buffer is
involved.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    """Return the seconds for ``size`` creations."""
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
    """The other side: the rows that a store has written, inserted by the `sqlite3` module alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._tables: list[str] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}

    def new_path(self) -> Path:
        """Return the path of a new file."""
        self._files += 1
        return self._folder / f"{self._files}.db"

    def learn(self, path: Path) -> None:
        """Copy the table definitions and the rows from a store's file."""
        with closing(sqlite3.connect(path)) as connection:
            self._tables = [sql for (sql,) in connection.execute(_TABLES)]
            for table in ("resources", "history"):
                self._rows[table] = connection.execute(f"SELECT * FROM {table} ORDER BY revision").fetchall()

    def inserted(self) -> float:
        """Return the seconds for inserting the same rows in transactions of `WRITERS`."""
        with self._opened() as connection:
            begin = time.perf_counter()
            for first in range(0, len(self._rows["resources"]), WRITERS):
                connection.execute("BEGIN IMMEDIATE")
                for table in self._rows:
                    connection.executemany(self._insert(table), self._rows[table][first : first + WRITERS])
                connection.execute("COMMIT")
            return time.perf_counter() - begin

    def replaced(self) -> float:
        """Return the seconds of processor time for replacing the resources, each in a transaction of its own.

        Each transaction also inserts one of the last rows of history.
        """
        resources, history = self._rows.values()
        replace, insert = self._insert("resources").replace("INSERT", "REPLACE"), self._insert("history")
        with self._opened() as connection:
            connection.execute("BEGIN")
            connection.executemany(replace, resources)
            connection.executemany(insert, history[: -len(resources)])
            connection.execute("COMMIT")
            begin = time.process_time()
            for row, change in zip(resources, history[-len(resources) :], strict=True):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(replace, row)
                connection.execute(insert, change)
                connection.execute("COMMIT")
            return time.process_time() - begin

    def _insert(self, table: str) -> str:
        return f"INSERT INTO {table} VALUES ({', '.join('?' * len(self._rows[table][0]))})"

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open a new file with the tables."""
        with closing(sqlite3.connect(self.new_path(), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            for statement in self._tables:
                connection.execute(statement)
            yield connection


SCENARIO = Scenario("sqlite", 10.0, measure, size=6_400, rounds=7, quick=1_920)
