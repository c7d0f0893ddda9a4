"""The load of a soak: an engine with steady writes, reconciles, deletions, failures, and readers that come and go.

Everything happens by the number of the step and not by the clock, so that the same steps leave the same state. At the
end of a round of `ROUND` steps, there are always the same numbers of resources and of readers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from unittest.mock import patch

import trio

import headway
from headway import field
from headway.events import ignore
from headway.journal import JournalOptions
from headway.resource import pb
from headway.run import _own_writes
from headway.service import ResourceEncodings
from headway.storage import Backend

ROUND = 40
"""The number of steps of a round."""

_LIVES = 80
"""The number of steps from the creation of a team to its deletion. Each is changed half-way."""

_READER_EVERY = 5
"""A reader comes with every fifth step, and stays for four times as many."""

_FAILS = 8
"""The first reconcile of every eighth team fails."""

_PATIENCE = 60.0
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)


@headway.message(name="soak.Team")
class Team:
    members: list[str] = field(1)
    round: int = field(2)


@headway.message(name="soak.Account")
class Account:
    login: str = field(1)


class NotYet(Exception):
    """The failure of a team's first reconcile."""


class Load:
    """The app, its controller, and the steps of the load.

    Attributes:
        latencies: the seconds from each write of a team to the beginning of the reconcile that sees it.
        reconciles: the number of reconciles so far.
        failures: the number of those that have failed.
        received: the number of events that readers have received.
    """

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.reconciles = self.failures = self.received = 0
        self.app = headway.App("soak")
        self.team = self.app.type("soak", "v1", "Team", Team)
        self.account = self.app.type("soak", "v1", "Account", Account)
        self._written: dict[tuple[str, int], float] = {}
        self._readers: list[trio.CancelScope] = []
        self.app.controller(
            manages=self.team, watches=[headway.watch(self.account, headway.mappers.owner())], concurrency=8
        )(self.accounts)

    async def accounts(self, rt: headway.Runtime, request: headway.Request[Team]) -> None:
        """Keep an account for each member of a team, and report the team as ready."""
        self.reconciles += 1
        team = rt.resource(request)
        if team is None:
            return
        written = self._written.pop((team.name, team.data.round), None)
        if written is not None:
            self.latencies.append(time.perf_counter() - written)
            if int(team.name[5:]) % _FAILS == 0 and team.data.round == 0:
                self.failures += 1
                raise NotYet(team.name)
        async with rt.outputs(self.account, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(f"{team.name}-{login}", Account(login=login))
        await rt.client.write_status(team, "accounts", [_READY])

    async def step(self, engine: headway.Engine, nursery: trio.Nursery, number: int) -> None:
        """Create a team, change another one and delete a third, and let readers come and go."""
        client = engine.client
        await self._write(client, number, 0, ["ada", "grace"])
        if number >= _LIVES // 2:
            await self._write(client, number - _LIVES // 2, 1, ["ada", "joan"])
        if number >= _LIVES:
            await client.delete(self.team.id(_name(number - _LIVES)))
        if number % _READER_EVERY == 0:
            if len(self._readers) == 4:
                self._readers.pop(0).cancel()
            readers = (self._watch, self._watch_over_network, self._cache, self._subscribe)
            self._readers.append(await nursery.start(self._read, readers[number // _READER_EVERY % 4], engine))

    async def _write(self, client: headway.Client, number: int, round: int, members: list[str]) -> None:
        self._written[_name(number), round] = time.perf_counter()
        await client.write(self.team.new(_name(number), Team(members=members, round=round)))

    async def settle(self, engine: headway.Engine) -> None:
        """Wait until the engine is idle, and all resources of deleted teams are gone."""
        with trio.fail_after(_PATIENCE):
            while True:
                await engine.wait_idle()
                teams, accounts = await engine.client.list(self.team), await engine.client.list(self.account)
                if len(accounts) == 2 * len(teams) and all("accounts" in team.status for team in teams):
                    return
                await trio.sleep(0.01)

    async def _read(
        self,
        reader: Callable[[headway.Engine, Callable[[], None]], Awaitable[None]],
        engine: headway.Engine,
        *,
        task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.CancelScope() as scope:
            await reader(engine, lambda: task_status.started(scope))

    async def _watch(self, engine: headway.Engine, begun: Callable[[], None]) -> None:
        await self._follow(engine.client, begun)

    async def _watch_over_network(self, engine: headway.Engine, begun: Callable[[], None]) -> None:
        async with headway.connect(engine.addresses, self.app) as client:
            await self._follow(client, begun)

    async def _follow(self, client: headway.Client, begun: Callable[[], None]) -> None:
        async with client.watch(self.team) as changes:
            async for change in changes:
                if isinstance(change, headway.client.SnapshotEnd):
                    begun()
                self.received += 1

    async def _cache(self, engine: headway.Engine, begun: Callable[[], None]) -> None:
        async with engine.open_cache(watches=[self.team, self.account]) as cache, cache.notify() as updates:
            updates.list(self.account)
            begun()
            async for _ in updates:
                self.received += 1

    async def _subscribe(self, engine: headway.Engine, begun: Callable[[], None]) -> None:
        async with engine.client.subscribe([self.team, self.account]) as batches:
            async for batch in batches:
                if batch.snapshot:
                    begun()
                self.received += 1


def _name(number: int) -> str:
    return f"team-{number:07d}"


@asynccontextmanager
async def opened(load: Load, store: str | Backend) -> AsyncIterator[headway.Engine]:
    """Run the engine of a load, with a port for the readers that come over the network.

    Its bounded memories are small, so that they are soon full and a leak is not taken for one of them: the journal, the
    writes of a run, and the encodings of resources.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(_own_writes, "KEPT", 500))
        stack.enter_context(patch.object(ResourceEncodings.__init__, "__defaults__", (128 << 10,)))
        async with headway.open_engine(
            store,
            load.app,
            report=ignore,
            network=headway.Network(["127.0.0.1:0"], insecure=True),
            journal=JournalOptions(memory=64 << 10),
        ) as engine:
            await engine.wait_idle()
            yield engine
