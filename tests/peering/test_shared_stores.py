"""Two sides that peer, with two engines each on one etcd store: the leaders change while both sides are written to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from headway import Engine, events
from headway.errors import OutcomeUnknown
from headway.peering import PEERING, PeeringState, establish, generate_token, peering_of, state_of
from headway.storage import open_store
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.peers import TEAM, Team
from tests.peering.test_admission import leads

PATIENCE = 240.0
Content = Mapping[str, int]


class SharedSide:
    """The engines on one store. Each has a sharded controller, which notes the copies that it reconciles.

    Attributes:
        noted: the sizes of the copies as some engine has reconciled them last, by name.
    """

    def __init__(self, store: str, path: Path, name: str, nursery: trio.Nursery) -> None:
        self.store = store
        self.name = name
        self.noted: dict[str, int | None] = {}
        self.engines: dict[str, Engine] = {}
        self._path = path
        self._nursery = nursery
        self._closing: dict[str, tuple[trio.Event, trio.Event]] = {}

    def _program(self) -> headway.App:
        app = headway.App("noting")
        team = app.type("staff", "v1", "Team", Team)

        @app.controller(manages=team, placement=headway.sharded(shards=4))
        async def noting(rt: headway.Runtime, request: headway.Request) -> None:
            found = rt.cache.get(team, request.id)
            if peering_of(request.id.partition):
                self.noted[request.id.name] = None if found is None else found.data.size

        return app

    def address(self, which: str) -> str:
        """Return the address of an engine."""
        return f"unix:{self._path}/{self.name}-{which}"

    async def open(self, which: str) -> None:
        """Open an engine of this side, in a task of its own."""
        self.engines[which] = await self._nursery.start(self._run, which)

    async def _run(self, which: str, *, task_status: trio.TaskStatus[Engine]) -> None:
        over, closed = self._closing[which] = trio.Event(), trio.Event()
        try:
            async with headway.open_engine(
                self.store,
                self._program(),
                process=f"{self.name}-{which}",
                network=headway.Network([self.address(which)], insecure=True),
                report=events.ignore,
            ) as engine:
                task_status.started(engine)
                await over.wait()
        finally:
            closed.set()

    async def close(self, which: str) -> None:
        """Close an engine of this side."""
        self.engines.pop(which)
        over, closed = self._closing.pop(which)
        over.set()
        await closed.wait()

    @property
    def client(self) -> headway.Client:
        """The client of an engine that does not lead, if there is one."""
        return min(self.engines.values(), key=leads).client

    async def leader(self) -> str:
        """Wait until an engine leads, and return its name."""
        with trio.move_on_after(PATIENCE):
            while not (found := [name for name, each in self.engines.items() if leads(each)]):  # noqa: ASYNC110  # a status has no event
                await trio.sleep(0.02)
            return found[0]
        states = [each.controllers["peer-streams"].status() for each in self.engines.values()]
        raise AssertionError(f"{self.name}: no engine leads, but {states}")

    async def resign(self) -> None:
        """Release the lease of the leader, as an operator may do. Any engine may lead next."""
        async with open_store(self.store) as store:
            for each in (await store.list_leases("headway/peer-streams"))[0]:
                await store.release_lease(each.lease.name, each.lease.holder, each.lease.term)

    async def content(self, partition: str = "default") -> Content:
        """Return the sizes of the teams in a partition."""
        return {each.name: each.data.size for each in await self.client.list(TEAM, partition=partition)}

    async def holds(self, partition: str, wanted: Content) -> None:
        """Wait until a partition has these teams, and a controller of some engine has reconciled each of them."""
        seen: object = None
        with trio.move_on_after(PATIENCE):
            while True:
                seen = (await self.content(partition), dict(self.noted))
                if seen == (wanted, self._known(wanted)):
                    return
                # The notes have no event.
                await trio.sleep(0.05)
        raise AssertionError(f"{self.name}: {seen} instead of {wanted}")

    def _known(self, wanted: Content) -> dict[str, int | None]:
        return {name: wanted.get(name) for name in {*self.noted, *wanted}}


@asynccontextmanager
async def open_sides(etcd: EtcdServer, path: Path) -> AsyncIterator[tuple[SharedSide, SharedSide]]:
    """Open both sides, with two engines each, and connect them."""
    async with trio.open_nursery() as nursery:
        west, east = (
            SharedSide(f"etcd://{etcd.endpoint}{etcd.new_prefix()}", path, name, nursery) for name in ("west", "east")
        )
        for side in (west, east):
            for which in "12":
                await side.open(which)
        addresses = [west.address(which) for which in "12"]
        token = await generate_token(west.client, "east", [TEAM], addresses=addresses, plain_text=True)
        # On a busy machine, no engine may have taken the lease yet. The one that does exchanges the token then.
        with contextlib.suppress(OutcomeUnknown):
            await establish(east.client, "west", token, [TEAM], plain_text=True)
        yield west, east
        for side in (west, east):
            for which in list(side.engines):
                await side.close(which)


async def write(side: SharedSide, over: trio.Event) -> None:
    """Create, update and delete teams of a side until the event is set."""
    number = 0
    while not over.is_set():
        number += 1
        name = f"t{number % 7}"
        if number % 5:
            await side.client.apply(TEAM.new(name, Team(size=number)))
        else:
            await side.client.delete(TEAM.id(name))
        # A pace, so that a slow change of leaders does not pile up writes.
        await trio.sleep(0.05)


@pytest.mark.deep
@pytest.mark.timeout(1200)
async def test_both_sides_converge_while_their_leaders_change(etcd: EtcdServer, tmp_path: Path) -> None:
    """A leader loses its lease, and then its process ends. Nothing is lost, and nothing is written back."""
    async with open_sides(etcd, tmp_path) as (west, east):
        for ending in ("lease", "process"):
            over = trio.Event()
            async with trio.open_nursery() as nursery:
                for side in (west, east):
                    await side.leader()
                for side in (west, east):
                    nursery.start_soon(write, side, over)
                for side in (west, east):
                    if ending == "lease":
                        await side.resign()
                await west.leader()
                await east.leader()
                over.set()
            if ending == "process":
                for side in (west, east):
                    which = await side.leader()
                    await side.close(which)
                    await side.client.apply(TEAM.new("meanwhile", Team(size=len(ending))))
                    await side.open(which)
            originals = [await side.content() for side in (west, east)]
            await east.holds("peer-west", originals[0])
            await west.holds("peer-east", originals[1])
            assert [await side.content() for side in (west, east)] == originals
        for side, name in ((west, "east"), (east, "west")):
            await headway.until(
                side.client, PEERING, name, lambda each: each is not None and state_of(each) is PeeringState.ACTIVE
            )
