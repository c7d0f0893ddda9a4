"""`postgres_fanout`: one commit, delivered to 25 watchers in each of 4 engines on one database.

Measured: the wall time from a commit until the last of 100 watchers has received its event, over 50 commits, per
commit. The engines are in one process. Each reads the commit once, whatever the number of its watchers.

Against: a bare psycopg connection inserts the same bytes and notifies, and four others, which listen, each select the
row, one after the other; followed by 100 items through a bare Trio memory channel; per commit.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import psycopg
import trio

from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, put, texts
from benchmarks._postgres import postgres
from benchmarks._primed import one_type
from benchmarks.reconcile import through_channel
from headway.protobuf import encode
from headway.resource import Changes, EndOfSnapshot, ResourceType, Within
from headway.storage import PostgresBackend, Watch

COMMITS, ENGINES = 50, 4


def measure(size: int, rounds: int) -> Row:
    """Deliver each of a number of commits to ``size`` watchers."""
    _, type = one_type()
    with postgres() as server:
        ours, against = interleaved(
            lambda: trio.run(_delivered, server.new_url(), type, size),
            lambda: _bare(server.dsn(), type) + trio.run(through_channel, size * COMMITS),
            rounds,
        )
    return Row("postgres_fanout", ours / COMMITS * 1e6, against / COMMITS * 1e6, "us", None)


async def _delivered(url: str, type: ResourceType[Note], size: int) -> float:
    value = encode(Note(text=TEXT))
    heard = 0
    all_heard = trio.Event()

    async def follow(watch: Watch, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        nonlocal heard
        while not isinstance(await watch.next(), EndOfSnapshot):
            pass
        task_status.started()
        while True:
            if isinstance(await watch.next(), Changes):
                heard += 1
                if heard % size == 0:
                    all_heard.set()

    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresBackend(url)) for _ in range(ENGINES)]
        nursery = await stack.enter_async_context(trio.open_nursery())
        for number in range(size):
            await nursery.start(follow, await stores[number % ENGINES].watch(type.kind, Within()))
        begin = time.perf_counter()
        for number in range(COMMITS):
            all_heard = trio.Event()
            await stores[0].commit([put(type, built(type, texts(number), value))])
            await all_heard.wait()
        seconds = time.perf_counter() - begin
        nursery.cancel_scope.cancel()
    return seconds


def _bare(dsn: str, type: ResourceType[Note]) -> float:
    body = encode(built(type, texts(0), encode(Note(text=TEXT))))
    made = [psycopg.connect(dsn, autocommit=True) for _ in range(ENGINES + 1)]
    writer, *readers = made
    try:
        writer.execute("CREATE TABLE IF NOT EXISTS bare_fanout (id bigserial PRIMARY KEY, body bytea)")
        for each in readers:
            each.execute("LISTEN bare_fanout")
        begin = time.perf_counter()
        for _ in range(COMMITS):
            with writer.transaction():
                row = writer.execute("INSERT INTO bare_fanout (body) VALUES (%s) RETURNING id", [body]).fetchone()
                writer.execute("NOTIFY bare_fanout")
            assert row is not None
            for each in readers:
                next(each.notifies())
                each.execute("SELECT body FROM bare_fanout WHERE id >= %s", row).fetchall()
        return time.perf_counter() - begin
    finally:
        for each in made:
            each.close()


SCENARIO = Scenario("postgres_fanout", None, measure, size=100, rounds=5)
