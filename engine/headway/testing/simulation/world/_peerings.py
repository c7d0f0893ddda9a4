"""The peerings of a world: they are established before the scenario, harmed by faults, and judged at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio

from headway.client import Client, until
from headway.errors import HeadwayError
from headway.peering import PEERING, STREAM_KEY, establish, generate_token
from headway.resource import ConditionState, Position, Resource
from headway.storage import Fence
from headway.testing.simulation import faults
from headway.testing.simulation.faults import HOME
from headway.testing.simulation.oracles import ROLLED_BACK, Feed, Finding, PeerWatch, difference
from headway.testing.simulation.world._injector import GivenUp, Injector
from headway.testing.simulation.world._peer_network import PeerNetwork
from headway.testing.simulation.world._process import Process
from headway.testing.simulation.world._server import Server
from headway.testing.simulation.world._setting import Peer
from headway.testing.simulation.world._store import SimulatedStore

_COPIED_WITHIN = 600.0
"""A number of seconds longer than any delay of a peering, with the faults before it."""
_FIRST_LOOK, _LONGEST_LOOK = 0.1, 5.0
"""The numbers of seconds between two looks at what peerings have copied."""
_LOOK = 0.5
"""The number of seconds between two looks of an operator at a condition."""
_STORED = 0.5
"""The number of seconds in which a side stores what it has received."""
_NOTICED = 150.0
"""The number of seconds after which the condition of a stream is not one of an earlier stream."""
_ACCEPTS_WITHIN = 600.0
"""The number of seconds for which an operator looks for a store that was rolled back."""


class Side(Protocol):
    """One engine of a peering, with its store."""

    server: Server
    injector: Injector
    processes: list[Process]


class Peerings:
    """The peerings between the program's side and its peers.

    Attributes:
        deleted: the deleted peerings, each as its side and its name there.
    """

    def __init__(self, peers: Mapping[str, Peer], network: PeerNetwork, injector: Injector) -> None:
        self._peers = peers
        self._network = network
        self._injector = injector
        self._feeds = [feed for name, peer in peers.items() for feed in peer.feeds(name)]
        self._watch = PeerWatch(self._feeds)
        self._sides: Mapping[str, Side] = {}
        self.deleted: list[tuple[str, str]] = []
        network.strike = self._strike

    @property
    def findings(self) -> list[Finding]:
        """The findings about commits so far."""
        return self._watch.findings

    def committed(
        self, side: str, _revision: int, kind: Any, key: Any, old: Any, new: Any, fence: Fence | None
    ) -> None:
        """Check a change of a side's store."""
        self._watch.committed(side, kind, key, old, new, fence)

    def replaced(self, side: str, store: SimulatedStore, before: str) -> None:
        """Note that a side's store was replaced. Its id was ``before``."""
        # An older copy of the same store has to be accepted first.
        self._watch.replaced(side, store.now, accepted=store.position.store_id != before)

    # --- the beginning ---

    async def establish(self, sides: Mapping[str, Side]) -> None:
        """Connect the sides, and wait until all first copies are complete.

        Raises:
            GivenUp: they did not become complete.
        """
        self._sides = sides
        for name, peer in self._peers.items():
            given = {name: (HOME, peer.exports), HOME: (name, peer.imports)}
            accepting, dialing = (name, HOME) if peer.accepts else (HOME, name)
            client, addresses = self._client(accepting), self._network.addresses(accepting)
            token = await generate_token(client, *given[accepting], addresses=addresses)
            await establish(self._client(dialing), given[dialing][0], token, given[dialing][1])
        for feed in self._feeds:
            with trio.move_on_after(_COPIED_WITHIN) as waiting:
                await until(self._client(feed.holder), PEERING, feed.name, _is_current)
            if waiting.cancelled_caught:
                peering = await self._peering(feed.holder, feed.name)
                why = "" if peering is None else _condition(peering, "Connected")[2]
                raise GivenUp(
                    f"peering {feed.name} of {feed.holder} has no complete copy after {_COPIED_WITHIN:.0f} s: {why}"
                )
        self._network.counting = True

    def _client(self, side: str) -> Client:
        return self._sides[side].server.client

    async def _peering(self, side: str, name: str) -> Resource[Any] | None:
        await self._sides[side].server.wait_up()
        try:
            return await self._client(side).get(PEERING, name)
        except HeadwayError:
            # The server has just been restarted.
            return None

    # --- idleness, and the end ---

    async def wait_copied(self, idle: Callable[[], Awaitable[None]]) -> None:
        """Wait until all sides are idle, and each has copies of exactly what the others export.

        Raises:
            GivenUp: the copies did not become complete.
        """
        look, ends = _FIRST_LOOK, trio.current_time() + _COPIED_WITHIN
        while True:
            before = self._positions()
            await idle()
            if not (unlike := self.problems()):
                if before == self._positions():
                    return
                continue
            if trio.current_time() > ends:
                more = f" (and {len(unlike) - 1} more)" if len(unlike) > 1 else ""
                raise GivenUp(f"the copies are not complete after {_COPIED_WITHIN:.0f} s: {unlike[0].text}{more}")
            # A stream may be down, or about to copy.
            await trio.sleep(look)
            look = min(2 * look, _LONGEST_LOOK)

    def _positions(self) -> list[Position]:
        return [each.server.store.position for each in self._sides.values()]

    def problems(self) -> list[Finding]:
        """Return how the copies differ now from what they should be."""
        found: list[Finding] = []
        for feed in self._feeds:
            origin, holder = self._sides[feed.origin].server.store.now, self._sides[feed.holder].server.store.now
            if self._is_deleted(feed):
                origin = {}
            found += difference(feed, origin, holder)
        return found

    def _is_deleted(self, feed: Feed) -> bool:
        name = {feed.origin, feed.holder} - {HOME}
        return any({side, peering} - {HOME} == name for side, peering in self.deleted)

    # --- faults ---

    def _strike(self, fault: faults.MessageFault) -> None:
        side = getattr(fault, "side", HOME)
        found = self._sides.get(side)
        if found is None:
            return
        self._injector.strike(fault)
        server = found.server
        match fault:
            case faults.PeerCut():
                self._network.cut(fault.seconds)
            case faults.PeerHistoryLost():
                self._network.cut(fault.seconds, lambda: server.store.compact())
            case faults.EngineKilled():
                self._later(server.kill_engine)
            case faults.PeerHandOver():
                server.hand_over_streams()
            case faults.PeerRestored():
                found.injector.note(f"restore(0, {fault.revision})", fault=True)
                self._later(server.restore, fault.revision)
            case faults.PeerRolledBack():
                # The caches of its processes are above the older copy.
                for process in found.processes:
                    process.kill()
                found.injector.note(ROLLED_BACK, fault=True)
                self._later(self._roll_back, side, server, fault.revision)
            case faults.PeeringDeleted():
                self._later(self._delete, side)

    def _later(self, function: Any, *arguments: Any) -> None:
        """Run a function in a task. Until it ends, the world is not idle."""
        # The message that the fault strikes is lost, and nothing more comes through before the task begins.
        if function != self._delete:
            self._network.break_pipes()

        async def run() -> None:
            await function(*arguments)
            self._injector.end_pending()

        self._injector.begin_pending()
        self._injector.nursery.start_soon(run)

    async def _delete(self, side: str) -> None:
        name = next(iter(self._peers)) if side == HOME else HOME
        self.deleted.append((side, name))
        for feed in self._feeds:
            if self._is_deleted(feed):
                self._watch.deleted(feed.origin, feed.holder)
        await self._client(side).delete(PEERING.id(name))

    async def _roll_back(self, side: str, server: Server, revision: int) -> None:
        """Put an older copy of a store in its place. An operator then accepts it on the other sides."""
        await server.roll_back(revision)
        # A message that had arrived before may still be stored. No other stream opens so soon.
        rolled_back = server.store.position.store_id
        await trio.sleep(_STORED)
        if server.store.position.store_id != rolled_back:
            # A restore has replaced it by another store. Such a store needs no acceptance.
            return
        self._watch.rolled_back(side)
        for feed in self._feeds:
            if feed.origin == side:
                await self._accept(feed, server.store.position.session)

    async def _accept(self, feed: Feed, session: str) -> None:
        since = trio.current_time()
        with trio.move_on_after(_ACCEPTS_WITHIN):
            while True:
                peering = await self._peering(feed.holder, feed.name)
                if peering is not None:
                    current, reason, text = _condition(peering, "Copied")
                    if reason in ("OriginRolledBack", "OriginBehind") and session in text:
                        break
                    connected = _condition(peering, "Connected")[0]
                    if current and connected and trio.current_time() > since + _NOTICED:
                        # Nothing had been copied that the older copy lacks.
                        self._watch.accepted(feed.origin)
                        return
                await trio.sleep(_LOOK)
        self._watch.accepted(feed.origin)
        while True:
            peering = await self._peering(feed.holder, feed.name)
            if peering is None or peering.is_deleting:
                return
            peering.metadata["acceptSession"] = session
            try:
                await self._client(feed.holder).write(peering)
            except HeadwayError:
                await trio.sleep(_LOOK)
                continue
            self._injector.note(f"an operator accepts the store of {feed.origin} at {feed.holder}")
            return


def _is_current(peering: Resource[Any] | None) -> bool:
    return peering is not None and _condition(peering, "Copied")[0]


def _condition(peering: Resource[Any], type: str) -> tuple[bool, str, str]:
    """Return whether a condition of the stream is true, its reason and its message."""
    status = peering.status.get(STREAM_KEY)
    for each in () if status is None else status.conditions:
        if each.type == type:
            return each.state is ConditionState.TRUE, each.reason, each.message
    return False, "", ""
