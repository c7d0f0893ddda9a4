"""A PostgreSQL that has lost acknowledged commits, or all of its data, is reported and not believed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from tests.helpers.cluster import Job
from tests.helpers.copying_program import Program
from tests.helpers.etcd_cluster import until
from tests.helpers.postgres_pair import SETTINGS, postgres_pair
from tests.helpers.postgres_server import PostgresServer, need_postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


class Jobs:
    """An engine whose program copies jobs, and what its tests do with it."""

    def __init__(self, program: Program, engine: headway.Engine) -> None:
        self.program = program
        self.engine = engine

    async def write(self, name: str, text: str) -> None:
        await self.engine.client.apply(self.program.job.new(name, Job(text=text)))

    async def copied(self, **wanted: str) -> None:
        """Wait until the copies are these."""

        async def has_copies() -> bool:
            try:
                return await self.program.copies(self.engine) == wanted
            except headway.errors.RemoteError:
                return False

        await until(has_copies)

    async def rolled_back(self) -> None:
        """Wait until the engine has reported that its store was rolled back."""

        async def reported() -> bool:
            return headway.errors.StoreRolledBack in self.program.errors()

        await until(reported)


@asynccontextmanager
async def jobs_on(url: str) -> AsyncIterator[Jobs]:
    program = Program()
    timing = headway.Timing(lag_limit=2.0, lease_ttl=2.0)
    async with headway.open_engine(
        url, program.app, process="web-1", report=program.events.append, timing=timing
    ) as engine:
        yield Jobs(program, engine)


async def test_asynchronous_failover_that_loses_commits_is_reported(tmp_path: Path) -> None:
    """No cache is rolled back by itself. After an operator has accepted the store, the engine goes on with it."""
    async with postgres_pair(tmp_path, synchronous=False) as pair, jobs_on(pair.url) as jobs:
        await jobs.write("kept", "old")
        await jobs.copied(kept="old")
        await pair.healthy()
        pair.replica.kill()
        await jobs.write("kept", "new")
        await jobs.write("lost", "new")
        await jobs.copied(kept="new", lost="new")
        pair.primary.kill()
        pair.replica.start()
        await pair.replica.until_healthy()
        pair.promote()
        await jobs.rolled_back()
        assert jobs.engine.accept_store()
        await jobs.copied(kept="old")
        await jobs.write("kept", "newer")
        await jobs.copied(kept="newer")


async def test_synchronous_failover_loses_nothing(tmp_path: Path) -> None:
    async with postgres_pair(tmp_path, synchronous=True) as pair, jobs_on(pair.url) as jobs:
        await jobs.write("kept", "new")
        await jobs.copied(kept="new")
        await pair.fail_over()
        await jobs.copied(kept="new")
        await jobs.write("kept", "newer")
        await jobs.copied(kept="newer")
        assert headway.errors.StoreRolledBack not in jobs.program.errors()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PostgresServer]:
    server = PostgresServer(need_postgres(), tmp_path, SETTINGS)
    server.create()
    server.start()
    await server.until_healthy()
    yield server
    server.stop()


async def replace(server: PostgresServer, put: Callable[[], Any]) -> None:
    """Kill the server, let something replace its data, and start it again."""
    server.kill()
    shutil.rmtree(server.data)
    await trio.to_thread.run_sync(put)
    server.start()
    await server.until_healthy()


@pytest.mark.parametrize("empty", [False, True], ids=["at once", "after it was empty"])
async def test_store_restored_from_a_base_backup_is_reported(server: PostgresServer, empty: bool) -> None:
    """A server without the store gets no new one from an engine that runs, which would take everything for deleted."""
    async with jobs_on(server.dsn()) as jobs:
        await jobs.write("kept", "old")
        await jobs.copied(kept="old")
        backup = server.data.parent / "backup"
        copy = ("-D", str(backup), "-d", server.dsn(), "-X", "stream", "-c", "fast", "-N")
        await trio.to_thread.run_sync(lambda: server.run("pg_basebackup", *copy))
        await jobs.write("lost", "new")
        await jobs.copied(kept="old", lost="new")
        if empty:
            await replace(server, server.create)

            async def misses_it() -> bool:
                with pytest.raises(headway.errors.RemoteError) as raised:
                    await jobs.engine.client.get(jobs.program.job, "kept")
                return "not there" in str(raised.value)

            await until(misses_it)
            await trio.sleep(1)
            assert server.sql("SELECT to_regnamespace('headway') IS NULL") == "t"
        await replace(server, lambda: backup.rename(server.data))
        await jobs.rolled_back()
        assert jobs.engine.accept_store()
        await jobs.copied(kept="old")
