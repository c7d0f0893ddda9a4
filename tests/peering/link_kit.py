"""Peer streams between two stores of one process, without a network, so that time can be virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio

from headway._gen.headway.peering import v1 as wire
from headway.engine import EngineServices, Host
from headway.peering import PEERING, Peering, PeeringHost, PeerLimits, Role, copies_partition, ensure_partition
from headway.peering._hub import Entry, StreamEnded
from headway.peering.links import Link, open_importer
from headway.resource import Registry, Resource, ResourceType, pb
from headway.storage import MemoryBackend
from headway.subscribing import subscribing_extension
from tests.helpers.resources import ACCOUNT, TEAM, Team

Message = wire.PeerMessage


def exported(*types: ResourceType[Any]) -> list[wire.Export]:
    """Return exports of types in the partition default."""
    tenancy = pb.Tenancy(partition="default", namespace="*")
    return [wire.Export(type=each.name.message(), tenancy=tenancy) for each in types]


class Side:
    """One store with a peering to the other.

    Attributes:
        ends: why each stream of this side has ended.
        on_server: called with the peer's addresses.
    """

    def __init__(self, host: PeeringHost, entry: Entry, events: list[object]) -> None:
        self.host = host
        self.entry = entry
        self.events = events
        self.ends: list[StreamEnded] = []
        self.on_server: Any = None

    async def write(self, name: str, *members: str) -> Resource[Team]:
        """Write a team."""
        return await self.host.client.apply(TEAM.new(name, Team(members=list(members))))

    async def copies(self) -> dict[str, list[str]]:
        """Return the members of each copied team."""
        found = await self.host.client.list(TEAM, partition=copies_partition(self.entry.peering.name))
        return {each.name: each.data.members for each in found}

    async def ended(self) -> bool:
        """Return True once a stream of this side has ended."""
        return bool(self.ends)

    async def change(self, **fields: Any) -> None:
        """Change the Peering, as its controller would notice it."""
        peering = await self.host.client.read(PEERING, self.entry.peering.name)
        for name, value in fields.items():
            setattr(peering.data, name, value)
        self.entry.update(await self.host.client.write(peering))

    async def run(self, send: Any, receive: Any, *, limits: PeerLimits | None = None) -> None:
        """Run a stream of this side, until it ends."""
        limits = limits or PeerLimits()

        async def taken() -> Message | None:
            try:
                message: Message = await receive.receive()
            except trio.EndOfChannel:
                return None
            return message

        dialing = self.entry.peering.data.role is Role.DIALS
        importer = await open_importer(self.host, self.entry.peering, limits)
        link = Link(
            self.host, self.entry, importer, send.send, taken, limits=limits, dialing=dialing, on_server=self.on_server
        )
        async with send, receive:
            self.ends.append(await link.run())


@asynccontextmanager
async def open_side(
    name: str,
    role: Role,
    *types: ResourceType[Any],
    registry: Any = (TEAM, ACCOUNT),
    store: MemoryBackend | None = None,
) -> AsyncIterator[Side]:
    """Open a store with a peering that exports types. A store that has the peering keeps it."""
    known = Registry()
    events: list[object] = []
    for type in registry:
        known.register(type)
    backend = store or MemoryBackend()
    served = Host(backend, known, events.append)
    async with EngineServices(served, [subscribing_extension(served)]).open_channels(lasting_leases=False):
        host = PeeringHost(served)
        peering = await host.client.get(PEERING, name)
        if peering is None:
            peering = await host.client.create(PEERING.new(name, Peering(role=role, exports=exported(*types))))
            await ensure_partition(backend, host.client, peering)
        yield Side(host, Entry(peering, lambda: None), events)


async def eventually(look: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Look every tenth of a second, in virtual time, until the result is the wanted one."""
    found: object = None
    for _ in range(6000):
        found = await look()
        if found == wanted:
            return
        await trio.sleep(0.1)
    raise AssertionError(f"expected {wanted!r}, and it is {found!r}")


class _Stopping:
    """The sending end of a stream on which nothing arrives after a number of responses."""

    def __init__(self, channel: trio.MemorySendChannel[Message], most: int) -> None:
        self._channel, self._left = channel, most

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *about: object) -> None:
        await self._channel.aclose()

    async def send(self, message: Message) -> None:
        """Send a message, or wait forever."""
        if message.response is not None:
            if not self._left:
                await trio.sleep_forever()
            self._left -= 1
        await self._channel.send(message)


class Pair:
    """Two sides, and the streams between them.

    Attributes:
        a: the accepting side.
        b: the dialing side.
    """

    def __init__(self, a: Side, b: Side, nursery: trio.Nursery) -> None:
        self.a, self.b = a, b
        self._nursery = nursery

    def connect(self, *, most: int = 0, limits: PeerLimits | None = None) -> trio.CancelScope:
        """Open a stream. Cancel the scope to cut it.

        Args:
            most: the number of responses that reach the dialing side; 0 for all.
        """
        to_a, at_a = trio.open_memory_channel[Message](0)
        to_b, at_b = trio.open_memory_channel[Message](0)
        sending: Any = _Stopping(to_b, most) if most else to_b
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(self.a.run, sending, at_a, limits=limits))
                    nursery.start_soon(partial(self.b.run, to_a, at_b, limits=limits))

        self._nursery.start_soon(run)
        return scope

    async def wait(self, side: Side, wanted: dict[str, list[str]]) -> None:
        """Wait until a side has these copies."""
        await eventually(side.copies, wanted)


@asynccontextmanager
async def open_pair(
    *types: ResourceType[Any], dialing: tuple[ResourceType[Any], ...] = (), **options: Any
) -> AsyncIterator[Pair]:
    """Open two stores that peer. Both export these types, or the dialing one others; teams by default."""
    types = types or (TEAM,)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(open_side("west", Role.ACCEPTS, *types))
        b = await stack.enter_async_context(open_side("east", Role.DIALS, *(dialing or types), **options))
        async with trio.open_nursery() as nursery:
            yield Pair(a, b, nursery)
            nursery.cancel_scope.cancel()


class Raw:
    """A peer by hand: the test reads and sends its messages."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self.times: list[tuple[float, Message]] = []

    async def send(self, message: Message) -> None:
        """Send a message."""
        await self._send.send(message)

    async def receive(self) -> Message:
        """Return the next message."""
        message: Message = await self._receive.receive()
        self.times.append((trio.current_time(), message))
        return message

    async def end(self) -> None:
        """End the stream without an error."""
        await self._send.aclose()

    async def drain(self) -> None:
        """Read until the stream ends."""
        try:
            while True:
                await self.receive()
        except trio.EndOfChannel:
            return


@asynccontextmanager
async def raw_peer(side: Side, **options: Any) -> AsyncIterator[Raw]:
    """Open a stream of a side whose peer is the test."""
    to_side, at_side = trio.open_memory_channel[Message](0)
    to_test, at_test = trio.open_memory_channel[Message](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: side.run(to_test, at_side, **options))
        yield Raw(to_side, at_test)
        nursery.cancel_scope.cancel()
