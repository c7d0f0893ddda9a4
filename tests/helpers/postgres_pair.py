"""A PostgreSQL with a streaming replica, and wires before both, which a test can kill, freeze, cut off and swap."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.helpers.etcd_cluster import until
from tests.helpers.etcd_server import free_ports
from tests.helpers.loopback_wires import Wires
from tests.helpers.postgres_server import PostgresServer, need_postgres

SETTINGS = (
    "fsync=off",
    "full_page_writes=off",
    "wal_keep_size=64MB",
    "max_connections=60",
    "wal_retrieve_retry_interval=200ms",
)
"""The settings of a server whose processes are killed, but not its machine."""

SCHEMA = "faults"
"""The schema of the store."""


class PostgresPair:
    """A primary and its replica.

    Args:
        folder: an empty folder.
        synchronous: True if the primary acknowledges what the replica has.

    Attributes:
        primary, replica: the servers in their present roles.
        wires: the proxies before both.
    """

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        binaries = need_postgres()
        self._synchronous = synchronous
        servers = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            servers.append(PostgresServer(binaries, folder / name, SETTINGS))
        self.primary, self.replica = servers
        self._servers = tuple(servers)
        self._outer = free_ports(2)
        self.wires = Wires(dict)

    @property
    def url(self) -> str:
        """The URL of a store, by way of the wires to both."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._outer)
        return f"postgresql://postgres@{hosts}/postgres?schema={SCHEMA}&connect_timeout=5"

    def name(self, server: PostgresServer) -> str:
        """Return the name of a server for the wires."""
        return f"server {self._servers.index(server)}"

    async def run_wires(self, nursery: trio.Nursery) -> None:
        """Start the proxies, and serve until canceled."""
        for server, port in zip(self._servers, self._outer, strict=True):
            await nursery.start(partial(self.wires.serve, port, self.name(server), server.port))

    async def begin(self) -> None:
        """Make the primary and the replica, and wait until they serve."""
        self.primary.create()
        self.primary.start()
        await self.primary.until_healthy()
        await self.replicate()

    async def replicate(self) -> None:
        """Make the replica a fresh one of the primary, and wait until it has all."""
        shutil.rmtree(self.replica.data, ignore_errors=True)
        copy = ("-D", str(self.replica.data), "-d", self.primary.dsn(), "-R", "-X", "stream", "-c", "fast", "-N")
        await trio.to_thread.run_sync(lambda: self.replica.run("pg_basebackup", *copy))
        self.replica.start()
        if self._synchronous:
            self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.primary.sql("SELECT pg_reload_conf()")
        await self.healthy()

    async def healthy(self) -> None:
        """Wait until both serve, and the replica has what the primary has now."""

        async def follows() -> bool:
            answer = await trio.to_thread.run_sync(_asked, self.primary)
            return answer.startswith("t")

        await until(follows, 60)

    def promote(self) -> None:
        """Make the replica the primary. The other server is left alone."""
        self.replica.sql("SELECT pg_promote()")
        self.primary, self.replica = self.replica, self.primary

    async def fail_over(self) -> None:
        """Lose the primary, promote the replica, and make a new replica of the lost one."""
        await trio.to_thread.run_sync(self.primary.lose)
        self.promote()
        await self.replicate()

    def close(self) -> None:
        """End both."""
        for each in self._servers:
            each.stop()


def _asked(primary: PostgresServer) -> str:
    statement = (
        "SELECT coalesce(bool_or(state = 'streaming' AND replay_lsn >= pg_current_wal_lsn()), false)"
        " FROM pg_stat_replication"
    )
    try:
        return primary.sql(statement)
    except (AssertionError, subprocess.TimeoutExpired):
        return ""


@asynccontextmanager
async def postgres_pair(folder: Path, *, synchronous: bool) -> AsyncIterator[PostgresPair]:
    """Run a primary and a replica until the end of the block."""
    pair = PostgresPair(folder, synchronous=synchronous)
    async with trio.open_nursery() as nursery:
        try:
            await pair.run_wires(nursery)
            await pair.begin()
            yield pair
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(pair.close)
        nursery.cancel_scope.cancel()
