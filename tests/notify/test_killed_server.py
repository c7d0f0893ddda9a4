"""A cache over TCP, while the process that serves it is killed with -9 and started again, and while it is restored."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from tests.helpers.cached import Staff, names
from tests.helpers.resources import Team

PATIENCE = 60.0
SERVE = """
import sys, trio, headway
from headway.events import ignore
from tests.helpers.cached import Staff

async def main():
    # Only the address goes to the output. The default report writes there, too, such as when the machine is so busy
    # that the loop is blocked.
    network = headway.Network([sys.argv[2]], insecure=True)
    opened = headway.open_engine(sys.argv[1], Staff().app, network=network, report=ignore)
    async with opened as engine:
        print(engine.addresses[0], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


class Server:
    """A process that serves a store at one address, and can be killed and started again."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.address = "127.0.0.1:0"
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start the process, and wait until it listens."""
        command = [sys.executable, "-c", SERVE, f"sqlite:{self.store}", self.address]
        root = Path(__file__).parents[2]
        with trio.fail_after(PATIENCE):
            self._process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=root)
            assert self._process.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                line += await self._process.stdout.receive_some()
        self.address = line.decode().strip()

    async def kill(self) -> None:
        """Kill it with -9, if it runs."""
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdout.aclose()


@asynccontextmanager
async def serving(store: Path) -> AsyncIterator[Server]:
    """Serve a store in a process of its own until the block ends."""
    server = Server(store)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@pytest.mark.wide
async def test_cache_reads_on_while_its_server_is_killed_and_started_again(tmp_path: Path) -> None:
    """It is never empty, and follows the next life of the server. A handle gets the newest value then."""
    staff = Staff()
    async with serving(tmp_path / "staff.db") as server, headway.connect(server.address, staff.app) as client:
        await client.apply(staff.team.new("core", Team(members=["ada"])))
        async with (
            headway.open_cache(server.address, staff.app, watches=[staff.team], report=lambda _: None) as cache,
            cache.notify() as updates,
        ):
            core = updates.get(staff.team, "core")
            with trio.fail_after(PATIENCE):
                await updates.primed()
                for life in range(2):
                    await server.kill()
                    while core.error is None:
                        await anext(updates)
                        assert names(cache.list(staff.team)) == ["core"]
                    assert cache.status().cut_off
                    await server.start()
                    written = await client.apply(staff.team.new("core", Team(members=[f"m{life}"])))
                    await cache.wait_for(written)
                    while core.error is not None or core.value is None or core.value.version != written.version:
                        await anext(updates)
                    assert not core.restored
                    assert names(cache.list(staff.team)) == ["core"]
