"""Control planes with the proxies of the tests: engines on one store, in virtual time."""

from __future__ import annotations

import datetime
import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import trio
from cryptography.fernet import Fernet

import headway
from headway.engine import Extension, Host
from headway.storage import Backend, MemoryBackend
from mesh.certificates import IdentityKey, Leaf, Leaves
from mesh.certificates.controllers import authority_app
from mesh.certificates.sealing import Sealing
from mesh.certificates.types import CERTIFICATE_AUTHORITY

# TLS compares certificates with the clock of the machine.
START = datetime.datetime.now(datetime.UTC)


def now() -> datetime.datetime:
    """Return the time of a clock that begins at `START`."""
    return START + datetime.timedelta(seconds=trio.current_time())


class SharedMemory(MemoryBackend):
    """A store in memory that reports itself as shared, like a store on a network."""

    shared = True


def key_file(folder: Path, name: str = "mesh.key") -> Path:
    """Write a new key file."""
    path = folder / name
    path.write_bytes(Fernet.generate_key())
    path.chmod(0o600)
    return path


@dataclass
class Proxy:
    """A proxy, with what it has accepted."""

    identity: IdentityKey
    roots: tuple[str, ...] = ()
    leaf: Leaf | None = None
    takes: float = 0.0


@dataclass
class Plane:
    """One control plane: an engine, its leaves, and the proxies that are connected to it."""

    name: str
    key: Path
    proxies: list[Proxy] = field(default_factory=list)
    acknowledges: bool = True
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    events: list[object] = field(default_factory=list)
    engine: headway.Engine = field(init=False)

    def __post_init__(self) -> None:
        self.leaves = Leaves(now=now, chance=random.Random(self.name).random)
        all_have = self._all_have if self.acknowledges else None
        self.app = authority_app(Sealing(self.key), self.leaves, process=self.name, now=now, all_have=all_have)
        self._changed = trio.Event()
        self.leaves.subscribe(lambda _: self._changed.set())

    def _all_have(self, roots: tuple[str, ...]) -> bool:
        return all(each.roots == roots for each in self.proxies)

    async def _renew(self, _: Host) -> None:
        await self.leaves.renew()

    async def _serve(self, _: Host) -> None:
        """Give each proxy what is new. Each takes its time to accept it."""
        while True:
            self._changed = trio.Event()
            if roots := self.leaves.roots():
                for each in self.proxies:
                    leaf = await self.leaves.leaf(each.identity)
                    await trio.sleep(each.takes)
                    each.roots, each.leaf = roots, leaf
            with trio.move_on_after(1):
                await self._changed.wait()

    async def run(self, store: Backend, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the engine until it is killed."""
        extension = Extension(apps=[self.app], tasks=[self._renew, self._serve])
        engine = headway.open_engine(
            nullcontext(store), process=self.name, report=self.events.append, extensions=[extension]
        )
        try:
            with self.scope:
                async with engine as self.engine:
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self.ended.set()

    async def kill(self) -> None:
        """End the engine. Its proxies keep what they have."""
        self.scope.cancel()
        await self.ended.wait()

    async def reason(self) -> str:
        """Return what the rotation waits for."""
        found = (await self.engine.client.read(CERTIFICATE_AUTHORITY, "mesh")).status
        return "" if not found else found["certificate-authority"].conditions[0].reason
