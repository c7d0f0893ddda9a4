"""`postgres_prime`: priming a controller from a store in PostgreSQL with 100,000 resources.

Measured: the wall time per resource from opening an engine on the store to the `RunStarted` report of a controller of
the one type, which has an index of 10 groups. The time includes connecting, beginning a session, reading all rows in
pages at one revision, decoding them, the controller's lease and fence, and the other steps that `prime` describes.

Against: a bare psycopg connection selects the same rows, by one statement in PostgreSQL's binary format, and each body
is decoded into the same message: a cache holds messages, and no bytes.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time

import psycopg
import trio

from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import Note
from benchmarks._postgres import postgres
from benchmarks._primed import filled, one_type, primed_after
from headway.protobuf import decode
from headway.resource import ResourceType, pb
from headway.storage import PostgresBackend


def measure(size: int, rounds: int) -> Row:
    """Prime from a store of ``size`` resources."""
    app, type = one_type()
    with postgres() as server:
        url = server.new_url()
        trio.run(_filled, url, type, size)
        schema = url.partition("schema=")[2]
        ours, against = interleaved(
            collected(lambda: trio.run(primed_after, url, app)),
            collected(lambda: _read(server.dsn(), schema, size)),
            rounds,
        )
    return Row("postgres_prime", ours / size * 1e6, against / size * 1e6, "us", 2.0)


async def _filled(url: str, type: ResourceType[Note], size: int) -> None:
    async with PostgresBackend(url) as store:
        await filled(store, type, size)


def _read(dsn: str, schema: str, size: int) -> float:
    begin = time.perf_counter()
    with psycopg.connect(dsn) as connection:
        statement = f"SELECT revision, body FROM {schema}.resources WHERE kind = 'Managed'"
        rows = connection.execute(statement, binary=True).fetchall()
        found = [decode(pb.Resource, body) for _, body in rows]
        assert len(found) == size
        return time.perf_counter() - begin


SCENARIO = Scenario("postgres_prime", 2.0, measure, size=100_000, rounds=3)
