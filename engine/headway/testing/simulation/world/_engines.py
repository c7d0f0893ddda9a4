"""Further engines on the store of a server, as on one etcd, and the view that each engine has of the shared store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from headway.controller import App
from headway.engine import Engine, Timing
from headway.errors import StoreUnusable
from headway.events import ignore
from headway.resource import Registry
from headway.testing._engine import open_engine
from headway.testing.simulation.world._store import SimulatedStore

if TYPE_CHECKING:
    from headway.testing.simulation.world._peer_network import PeerEnd

DOWN = 20.0
"""The number of seconds until a killed engine starts again: longer than its leases last, so that another one leads."""

_LEASE_TTL = 15.0
_WRITES = ("commit", "raise_fence", "record_checkpoint", "acquire_lease", "keep_lease", "release_lease")


class Opening:
    """The view that one engine has of a store that several engines share. It has the attributes of the store.

    Once the engine is killed, it can no longer write, so its leases last until they expire.
    """

    shared = True

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self.dead = False

    async def __aenter__(self) -> Opening:
        return self

    async def __aexit__(self, *_: object) -> None:
        # The other engines keep the store open.
        pass

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _WRITES:
            return found

        async def write(*arguments: Any, **named: Any) -> Any:
            if self.dead:
                raise StoreUnusable("the engine was killed")
            return await found(*arguments, **named)

        return write


class OtherEngine:
    """An engine beside the one that serves users: it has no program, and runs what Headway itself runs in an engine.

    Args:
        store: returns the store, which a restore replaces.
        types: returns the types that it serves.
        process: the name of its process.
        links: connects it with the engines of peers.
    """

    def __init__(
        self, store: Callable[[], SimulatedStore], types: Callable[[], Registry], process: str, links: PeerEnd
    ) -> None:
        self._store = store
        self._types = types
        self.process = process
        self.links = links
        self.engine: Engine | None = None
        self._opening = Opening(store())
        self._scope = trio.CancelScope()
        self._up = trio.Event()
        self._waiting = trio.CancelScope()
        self._down = 0.0

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the engine, and run it again whenever it was killed."""
        while True:
            app = App("types")
            app.registry = self._types()
            self._opening, self._scope = Opening(self._store()), trio.CancelScope()
            with self._scope:
                opened: Any = self._opening
                async with open_engine(
                    opened,
                    app,
                    process=self.process,
                    timing=Timing(lease_ttl=_LEASE_TTL),
                    report=ignore,
                    peer_links=self.links,
                ) as self.engine:
                    self._up.set()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep_forever()
            if not self._opening.dead:
                return
            await trio.sleep(self._down)

    def kill(self, down: float = DOWN) -> None:
        """Kill the engine. It starts again after some seconds, on the store that there is then."""
        self._down, self._opening.dead, self.engine = down, True, None
        self._up = trio.Event()
        self._scope.cancel()
        self._waiting.cancel()
        self.links.drop()

    async def wait_idle(self) -> None:
        """Wait until its controllers are idle, which takes some seconds after it was killed."""
        while True:
            while (engine := self.engine) is None:
                await self._up.wait()
            with trio.CancelScope() as self._waiting:
                await engine.wait_idle()
            if engine is self.engine:
                return


def leads(engine: Engine | None, controller: str = "peer-streams") -> bool:
    """Return True if an engine runs one of Headway's controllers."""
    found = None if engine is None else engine.controllers.get(controller)
    return found is not None and found.status().phase == "running"


def leaderless(engines: Sequence[Engine | None]) -> bool:
    """Return True if one of Headway's controllers runs in none of these engines, so that its work is not done."""
    names = {name for each in engines if each is not None for name in each.controllers}
    return any(not any(leads(each, name) for each in engines) for name in names)
