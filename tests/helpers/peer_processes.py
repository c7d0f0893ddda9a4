"""Two engines in processes of their own, each with a SQLite store, and a relay between them that a test can disturb."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

import headway
from headway.client import Subject
from headway.peering import copies_partition
from headway.storage import backup_store, restore_store
from tests.helpers.peers import TEAM, app

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0

Content = Mapping[tuple[str, str], int]
"""The sizes of teams, by namespace and name."""


@dataclass
class Side:
    """One engine process with its store. ``client`` keeps working over restarts."""

    folder: Path
    name: str
    client: headway.Client
    process: trio.Process | None = None
    lines: list[str] = field(default_factory=list)

    @property
    def store(self) -> str:
        return f"sqlite:{self.folder}/{self.name}.db"

    @property
    def socket(self) -> str:
        return f"{self.folder}/{self.name}.sock"

    async def start(self) -> None:
        """Start the process, and wait until it serves."""
        command = [sys.executable, "-m", "tests.helpers.peer_program", self.store, self.socket]
        self.process = await trio.lowlevel.open_process(
            command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/engine"}
        )
        assert self.process.stdout is not None
        text = b""
        with trio.fail_after(PATIENCE):
            while b"serves\n" not in text:
                more = await self.process.stdout.receive_some()
                assert more, f"{self.name} has ended: {text.decode()}"
                text += more

    async def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it is gone."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()

    async def restart(self) -> None:
        """Kill the process, and start another on the same store."""
        await self.kill()
        await self.start()

    async def backup(self) -> Path:
        """Write a backup of the store, which may be in use."""
        file = self.folder / f"{self.name}.backup"
        await backup_store(self.store, file, replace=True)
        return file

    async def put_back(self, backup: Path) -> None:
        """Kill the process, replace its store by a backup, and start it again."""
        await self.kill()
        await restore_store(backup, self.store, replace=True)
        await self.start()

    async def content(self, partition: str = "default") -> Content:
        """Return the teams in a partition."""
        return {
            (each.id.namespace, each.name): each.data.size for each in await self.client.list(TEAM, partition=partition)
        }

    async def holds(self, wanted: Content, partition: str) -> None:
        """Wait until the partition has these teams, and no others. A test that fails shows the difference."""
        found: dict[tuple[str, str], int] = {}
        with trio.move_on_after(PATIENCE):
            async with self.client.subscribe([Subject(TEAM, partition=partition)]) as batches:
                async for batch in batches:
                    if batch.snapshot:
                        found.clear()
                    for event in batch.events:
                        if isinstance(event, headway.client.Upserted):
                            found[event.resource.id.namespace, event.resource.name] = event.resource.data.size
                        elif isinstance(event, headway.client.Deleted):
                            found.pop((event.resource.id.namespace, event.resource.name), None)
                    if found == wanted:
                        return
        assert found == wanted, f"the copies in {partition} of {self.name}"


class Relay:
    """A TCP relay to a Unix socket, which can be cut and slowed down."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._cut = False
        self._open: set[trio.CancelScope] = set()
        self._room: int | None = None
        self.full = trio.Event()
        self.delay = 0.0
        self.address = ""

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until canceled."""
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, self._relay, listeners)
            self.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            task_status.started()

    def hold(self, room: int) -> trio.Event:
        """Let this many parts of the server's answers through, and hold what follows until `mend`.

        Returns:
            an event that is set once a part is held.
        """
        self._room, self.full = room, trio.Event()
        return self.full

    def cut(self) -> None:
        """End all connections, and accept none."""
        self._cut = True
        for scope in self._open:
            scope.cancel()

    def mend(self) -> None:
        """Accept connections again."""
        self._cut, self._room = False, None

    async def _relay(self, near: trio.SocketStream) -> None:
        if self._cut:
            return
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with await trio.open_unix_socket(self._socket) as far, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, near, far, scope)
                    nursery.start_soon(self._pump, far, near, scope, True)
            except OSError:
                # The server behind it is down.
                pass
            finally:
                self._open.discard(scope)

    async def _pump(
        self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope, answers: bool = False
    ) -> None:
        try:
            while data := await source.receive_some(64 << 10):
                if answers and self._room is not None:
                    if not self._room:
                        # A part that is held is lost with its connection.
                        self.full.set()
                        await trio.sleep_forever()
                    self._room -= 1
                if self.delay:
                    await trio.sleep(self.delay)
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


@dataclass
class World:
    """Both sides, and the link by which the east dials the west."""

    west: Side
    east: Side
    link: Relay

    async def establish(self) -> None:
        """Let the sides peer. Each exports its teams."""
        addresses = [self.link.address]
        token = await headway.peering.generate_token(
            self.west.client, "east", [TEAM], addresses=addresses, plain_text=True
        )
        await headway.peering.establish(self.east.client, "west", token, [TEAM], plain_text=True)

    async def converge(self) -> None:
        """Wait until each side has copies of exactly what the other one has. Nothing may have been written back."""
        self.link.mend()
        self.link.delay = 0.0
        originals = {side.name: await side.content() for side in (self.west, self.east)}
        await self.east.holds(originals["west"], copies_partition("west"))
        await self.west.holds(originals["east"], copies_partition("east"))
        for side in (self.west, self.east):
            assert await side.content() == originals[side.name], f"the originals of {side.name}"


@asynccontextmanager
async def open_world(folder: Path, *, established: bool = True) -> AsyncIterator[World]:
    """Start both processes. With ``established``, they peer, and each exports its teams."""
    async with (
        headway.connect(f"unix:{folder}/west.sock", app) as to_west,
        headway.connect(f"unix:{folder}/east.sock", app) as to_east,
        trio.open_nursery() as nursery,
    ):
        sides = west, east = Side(folder, "west", to_west), Side(folder, "east", to_east)
        link = Relay(west.socket)
        await nursery.start(link.serve)
        try:
            for side in sides:
                await side.start()
            world = World(west, east, link)
            if established:
                await world.establish()
            yield world
        finally:
            with trio.CancelScope(shield=True):
                for side in sides:
                    await side.kill()
        nursery.cancel_scope.cancel()
