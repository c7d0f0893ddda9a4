"""The server of a simulation, with its store. On command it restarts, restores a backup or overtakes a writer.

Further engines may share the store, as on one etcd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio
from typing_extensions import override

from headway.api import Code, Interrupted, PassingChannel
from headway.client import Client
from headway.controller import App
from headway.engine import Engine, Timing
from headway.errors import StoreUnusable
from headway.events import ignore
from headway.fields import owners_in, with_owners
from headway.peering import PeeringRules
from headway.protobuf import copy_message
from headway.quotas import QuotaRules, QuotaService, rule_of
from headway.resource import TOMBSTONE, Key, Kind, Registry, is_marked, pb, type_name
from headway.rpc import Channel, InProcessChannel, Metadata
from headway.service import LeaseService, ResourceService, StoreService, TypesService
from headway.storage import Backend, Fence, Put
from headway.testing._engine import open_engine
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Committed
from headway.testing.simulation.oracles import is_of_peering
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._peer_network import PeerEnd
from headway.testing.simulation.world._store import CREATING, OnCommit, SimulatedStore, asked_again
from headway.versions import Versions, chains_in

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
                    gc_freeze=False,
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


ANOTHER_WRITER = "another-writer"
"""The entry of the metadata that another writer adds."""


_LEADERS_MOVE = 1.0
"""The number of seconds between two looks at which engine runs Headway's own controllers."""

_OF_HEADWAY = "headway"
"""The name under which Headway's own controllers write, such as the one that removes what is marked for deletion."""


class Server(PassingChannel):
    """A channel to the services of an engine, which may move when the server restarts.

    Attributes:
        store: the store. A restore replaces it.
        client: reads and writes as a user, without faults.

    Args:
        types: the types that it serves.
        on_restart: called when the server restarts, to break the connections to it.
        harm_streams: called with the fault of a change that was committed.
        name: the name of its store.
        peer_links: connects the engines on its store with their peers. The first of them serves users.
        on_commit: called with each change of the store.
        on_replaced: called when the store was replaced, with the new one and the id of the old one.
    """

    remote = True
    client: Client

    def __init__(
        self,
        injector: Injector,
        types: Registry,
        *,
        on_restart: Callable[[], None],
        harm_streams: Callable[[Kind, faults.ChangeFault], None],
        name: str = "store",
        peer_links: Sequence[PeerEnd] = (),
        on_commit: OnCommit = lambda *_: None,
        on_replaced: Callable[[SimulatedStore, str], None] = lambda *_: None,
    ) -> None:
        super().__init__()
        self.store = SimulatedStore(self._committed, name=name)
        self._name = name
        self._peer_links = peer_links[0] if peer_links else None
        self._others = [
            OtherEngine(lambda: self.store, lambda: self._types, f"{name}-{at}", links)
            for at, links in enumerate(peer_links[1:], 2)
        ]
        # The engine's view of the store, if engines share it.
        self._opening: Opening | None = None
        self._down = 0.0
        self._on_commit = on_commit
        self._on_replaced = on_replaced
        self._injector = injector
        self._types = types
        self._on_restart = on_restart
        self._harm_streams = harm_streams
        self._channel: Channel | None = None
        self._engine: Engine | None = None
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()
        self._up = trio.Event()
        self._restarts = 0
        # The last desired state by users, by kind and key. After a restore they ask for it again.
        self._wishes: dict[tuple[Kind, Key], pb.Resource | None] = {}
        # Those that have written, by their full names.
        self._controllers: set[str] = set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the server, and run it again after each restart."""
        while True:
            app = App("types")
            app.registry = self._types
            self._scope = trio.CancelScope()
            with self._scope:
                opened: Any = self.store
                if self._others:
                    opened = self._opening = Opening(self.store)
                async with open_engine(
                    opened,
                    app,
                    process=f"{self._name}-1" if self._others else None,
                    report=ignore,
                    gc_freeze=False,
                    wrap_channel=self._take,
                    peer_links=self._peer_links,
                ) as self._engine:
                    assert self._channel is not None
                    self.client = Client(self._channel, self._types)
                    self._up.set()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep_forever()
            if not self._restarts:
                return
            self._restarts -= 1
            if self._down:
                await trio.sleep(self._down)
                self._down = 0.0

    async def serve_beside(self) -> None:
        """Run the other engines on the store, once this one serves."""
        async with trio.open_nursery() as nursery:
            for each in self._others:
                nursery.start_soon(each.serve, name=f"engine {each.process}")

    def _take(self, channel: Channel) -> Channel:
        self._channel = _Creations(channel)
        return self._channel

    async def serve_types(self, types: Registry) -> None:
        """Restart the server with other types, unless they are the same."""
        if {*types} != {*self._types} or chains_in(types) != chains_in(self._types):
            self._types = types
            await self.restart()

    async def restart(self) -> None:
        """Restart the server, and wait until it is up."""
        self._channel, self._engine = None, None
        if self._up.is_set():
            # Otherwise another restart is under way, and its waiters keep waiting on the same event.
            self._up = trio.Event()
        self._restarts += 1
        self._scope.cancel()
        self._waiting.cancel()
        if self._peer_links is not None:
            self._peer_links.drop()
        self._on_restart()
        await self._is_up()

    async def wait_up(self) -> None:
        """Wait until the server is up, which takes a moment after a restart."""
        await self._is_up()

    async def _is_up(self) -> Engine:
        while (engine := self._engine) is None or not self._up.is_set():
            await self._up.wait()
        return engine

    async def wait_idle(self) -> None:
        """Wait until the server's own controllers are idle."""
        while True:
            engine = await self._is_up()
            # Canceled by a restart, because waiting for an engine that has ended would take forever.
            with trio.CancelScope() as self._waiting:
                await engine.wait_idle()
                for each in self._others:
                    await each.wait_idle()
            if engine is not self._engine:
                continue
            if not self._others or not leaderless(self._engines):
                return
            # If the leader of a controller is dead, no process has its work as pending.
            await trio.sleep(_LEADERS_MOVE)

    @property
    def _engines(self) -> list[Engine | None]:
        return [self._engine, *(each.engine for each in self._others)]

    # --- the lease of peer streams, if several engines share the store ---

    async def kill_engine(self) -> None:
        """Kill the engine that has the streams to peers, and wait until the one that serves users is up."""
        for each in self._others:
            if leads(each.engine):
                each.kill()
                return
        if self._opening is not None:
            self._opening.dead, self._down = True, DOWN
        await self.restart()

    def hand_over_streams(self) -> None:
        """Give the lease of the streams to the next engine. The old leader learns of it when it renews the lease."""
        if not self._others:
            return
        engines = self._engines
        leader = next((at for at, each in enumerate(engines) if leads(each)), 0)
        heir = (leader + 1) % len(engines)
        if engines[heir] is not None:
            self.store.hand_over(["headway/peer-streams"], f"{self._name}-{heir + 1}")

    # --- what faults do to the store ---

    async def restore(self, revision: int) -> None:
        """Replace the store by a backup of itself. Then users ask again for what is lost."""
        await self._replace(await self.store.restored(revision))

    async def roll_back(self, revision: int) -> None:
        """Replace the store by an older copy of itself. Then users ask again for what is lost."""
        await self._replace(self.store.rolled_back(revision))

    async def _replace(self, store: SimulatedStore) -> None:
        before, self.store = self.store.position.store_id, store
        self._on_replaced(store, before)
        for each in self._others:
            each.kill(0.0)
        if self._opening is not None:
            self._opening.dead = True
        await self.restart()
        client = (await self._is_up()).client
        for (kind, key), wish in self._wishes.items():
            type = next((each for each in self._types if each.kind == kind), None)
            if type is None:
                continue
            if wish is None:
                await client.delete(type.id(key[2], partition=key[0], namespace=key[1]))
                continue
            # In its stored version, if the program knows that version.
            stored_as = type_name(wish.id.type if wish.id is not None else None)
            asked = (self._types.find(stored_as) or type).view(asked_again(wish))
            owned = owners_in(asked.type, wish.metadata) if asked.type.owned_fields else {}
            by_users = {manager: paths for manager, paths in owned.items() if manager not in self._controllers}
            for manager, paths in by_users.items():
                await client.apply(asked, fields=paths, manager=manager, force=True)
            if not by_users:
                await client.apply(asked)

    async def overtake(self, kind: Kind, key: Key) -> bool:
        """Write a resource as another writer, who adds an entry to its metadata that no controller may destroy.

        Returns False if the resource does not exist.
        """
        stored = self.store.now.get((kind, key))
        if stored is None:
            return False
        # Not a user's write, so it is not asked for again after a restore.
        wishes = dict(self._wishes)
        changed = copy_message(stored)
        changed.metadata[ANOTHER_WRITER] = "was first"
        await self.store.commit([Put(kind, key, changed, stored.version)])
        self._wishes = wishes
        return True

    def _committed(
        self, revision: int, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None, fence: Fence | None
    ) -> None:
        by, term, member = "", 0, ""
        if fence is None:
            if is_of_peering(kind, key):
                # Written by Headway, for a peering.
                term = 1
            else:
                self._wishes[kind, key] = None if new is not None and is_marked(new.metadata) else new
        else:
            self._controllers.add(fence.controller)
            app, _, by = fence.controller.partition("/")
            # Headway's own fences may be of no term.
            by, term = (by, fence.term) if app != _OF_HEADWAY else ("", fence.term or 1)
            member = fence.member
            if (step := self._injector.writer_of(kind, key)) is not None:
                step.revision = revision
        if kind[0] != "internal" or kind == TOMBSTONE.kind:
            self._injector.trace.add(Committed(trio.current_time(), revision, kind, key, old, new, by, term, member))
        self._on_commit(revision, kind, key, old, new, fence)
        self._injector.reach(revision)
        fault = self._injector.strike_change(kind, revision)
        if fault is not None:
            self._harm_streams(kind, fault)

    # --- as a channel ---

    @property
    def is_up(self) -> bool:
        """True if the server answers."""
        return self._channel is not None

    @property
    @override
    def inner(self) -> Channel:
        """The channel of the engine. Raise Interrupted while the server is down."""
        if self._channel is None:
            raise Interrupted(Code.UNAVAILABLE, "the server is unavailable")
        return self._channel


class _Creations(PassingChannel):
    """A channel that lets the store know which of its commits are creations by `Client.create`."""

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        token = CREATING.set(bool(getattr(request, "create_token", "")))
        try:
            return await self.inner.unary(path, request, reply_type, metadata=metadata)
        finally:
            CREATING.reset(token)


class OwnServices(PassingChannel):
    """A channel to services in a process that opens the store itself, as engines on one etcd do.

    They are up while the server is, and know the types of the process's own program.
    """

    remote = True

    def __init__(self, server: Server, types: Registry) -> None:
        super().__init__()
        self._server = server
        self._types = types
        self._store: Backend | None = None

    @property
    @override
    def inner(self) -> Channel:
        """The channel to services on the present store. Raise Interrupted while the server is down."""
        if not self._server.is_up:
            raise Interrupted(Code.UNAVAILABLE, "the store is unavailable")
        store = self._server.store
        if self._store is not store:
            # A restore has replaced the store.
            self._store = store
            rule_of(store)
            self.over(
                _Creations(
                    InProcessChannel(
                        ResourceService(
                            store,
                            self._types,
                            forms=with_owners(Versions(self._types), self._types),
                            rules=[QuotaRules(store), PeeringRules()],
                        ),
                        LeaseService(store),
                        StoreService(store, self._types),
                        QuotaService(store, self._types),
                        TypesService(self._types),
                    )
                )
            )
        return self._inner
