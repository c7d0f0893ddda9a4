"""`postgres`: durable writes by 64 concurrent writers to a store in PostgreSQL.

Measured: 64 tasks create 6,400 resources by ``client.write``, each its share, in a store of a real PostgreSQL with its
default durability; the wall time per write. The time includes everything that `write` includes, the transactions
(concurrent writes share them), and the follower, which reads every change.

Against: a bare psycopg connection writes the same rows that the store has just written into tables of the same
definition, in transactions of 64: it inserts resources and history by `executemany`, which sends them as a pipeline,
and updates the row with the revision; the wall time per resource.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
import trio

import headway
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import TEXT, Note, texts
from benchmarks._postgres import postgres
from headway.events import ignore
from headway.resource import ResourceType
from headway.storage.postgres._schema import statements

WRITERS = 64
_RESOURCES = "type_group, kind, partition, namespace, name, uid, owner_uid, form, revision, body, metadata"
_HISTORY = "revision, seq, type_group, kind, deleted, version, added, grown, body"


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    with postgres() as server:
        urls: list[str] = []

        def written() -> float:
            urls.append(server.new_url())
            return trio.run(_written, app, type, urls[-1], size)

        ours, against = interleaved(
            collected(written), collected(lambda: _inserted(server.dsn(), urls[-1].partition("schema=")[2])), rounds
        )
    return Row("postgres", ours / size * 1e6, against / size * 1e6, "us", 2.0)


async def _written(app: headway.App, type: ResourceType[Note], url: str, size: int) -> float:
    given = [texts(number) for number in range(size)]
    new = [type.new(text.name, Note(text=TEXT), metadata={"group": text.group}) for text in given]
    async with headway.open_engine(url, app, report=ignore) as engine:

        async def write(writer: int) -> None:
            for resource in new[writer::WRITERS]:
                await engine.client.write(resource)

        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(write, writer)
        return time.perf_counter() - begin


def _inserted(dsn: str, schema: str) -> float:
    """Return the seconds to insert the rows of a store into a copy of its tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS bare CASCADE")
        connection.execute("CREATE SCHEMA bare")
        for table in statements("bare").tables:
            connection.execute(table)
        made = f"FROM {schema}.{{}} WHERE kind = 'Managed'"
        # JSON stays the text that the server is given.
        resources = connection.execute(f"SELECT {_RESOURCES}::text {made.format('resources')}").fetchall()
        history = connection.execute(f"SELECT {_HISTORY} {made.format('history')}").fetchall()
        connection.execute(f"INSERT INTO bare.store SELECT * FROM {schema}.store")
        begin = time.perf_counter()
        for at in range(0, len(resources), WRITERS):
            with connection.transaction():
                _insert(connection, "resources", _RESOURCES, resources[at : at + WRITERS])
                _insert(connection, "history", _HISTORY, history[at : at + WRITERS])
                connection.execute("UPDATE bare.store SET revision = revision + %s", [WRITERS])
        return time.perf_counter() - begin


def _insert(connection: psycopg.Connection[Any], table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    values = ", ".join(["%s"] * len(rows[0]))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO bare.{table} ({columns}) VALUES ({values})", rows)


SCENARIO = Scenario("postgres", 2.0, measure, size=6400, rounds=5)
