"""A random sequence of faults of servers and the engines on them, by a seed, and the faults of an etcd cluster."""

from __future__ import annotations

import random
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import trio

from tests.helpers.etcd_cluster import EtcdCluster
from tests.helpers.etcd_server import EtcdMember
from tests.helpers.fault_engines import EngineProcess
from tests.helpers.fault_program import TTL
from tests.helpers.loopback_wires import OUTSIDE


class FaultPlan(ABC):
    """Injects faults into servers and their engines, one at a time. Between two faults everything works.

    Attributes:
        faults: what injects each fault, and repairs what it broke.
        log: the faults so far, with their times.
        counts: the number of faults of each kind.
    """

    faults: Mapping[str, Callable[[], Awaitable[None]]]

    def __init__(self, engines: Sequence[EngineProcess], nursery: trio.Nursery, seed: int) -> None:
        self._engines = engines
        self._nursery = nursery
        self._random = random.Random(seed)
        self.counts = Counter[str]()
        self.log: list[str] = []
        self._began = trio.current_time()

    @abstractmethod
    async def _healthy(self) -> None:
        """Wait until everything works."""

    async def run(self, seconds: float) -> None:
        """Repeat all faults in random order until the time is up."""
        waiting: list[str] = []
        deadline = trio.current_time() + seconds
        while trio.current_time() < deadline:
            if not waiting:
                waiting = list(self.faults)
                self._random.shuffle(waiting)
            await self.do(waiting.pop())
            await trio.sleep(self._random.uniform(0.3, 1.0))

    async def do(self, fault: str) -> None:
        """Run one of `faults`."""
        self.log.append(f"{trio.current_time() - self._began:.1f} {fault}")
        self.counts[fault] += 1
        await self.faults[fault]()
        await self._healthy()

    async def _last(self) -> None:
        """Wait for the duration of a fault."""
        await trio.sleep(self._random.uniform(0.5, 3.0))

    async def _kill_engine(self) -> None:
        engine = self._random.choice(self._engines)
        await engine.kill()
        await trio.sleep(self._random.uniform(0.0, TTL))
        await engine.start(self._nursery)
        await engine.wait_line("ready")

    async def _stop_engine(self) -> None:
        engine = self._random.choice(self._engines)
        engine.signal(signal.SIGSTOP)
        # Longer than a lease, in many cases, so that other engines acquire leases that this one believes to hold.
        await trio.sleep(self._random.uniform(0.5, 2.5) * TTL)
        engine.signal(signal.SIGCONT)


class EtcdFaults(FaultPlan):
    """Faults of a cluster of three members.

    While two of them are missing, the cluster need not answer. Its answers must still be right.
    """

    def __init__(
        self, cluster: EtcdCluster, engines: Sequence[EngineProcess], nursery: trio.Nursery, seed: int
    ) -> None:
        super().__init__(engines, nursery, seed)
        self._cluster = cluster
        self._kept: dict[str, Path] = {}
        self.faults = {
            "kill the leader": self._kill_leader,
            "kill a follower": self._kill_follower,
            "kill two members": self._kill_majority,
            "stop the leader": self._stop_leader,
            "stop a follower": self._stop_follower,
            "cut off the leader": self._cut_leader,
            "cut off a follower": self._cut_follower,
            "cut off a member's clients": self._cut_clients,
            "move the leader": self._move_leader,
            "put back old data": self._put_back_old_data,
            "kill an engine": self._kill_engine,
            "stop an engine": self._stop_engine,
        }

    async def _healthy(self) -> None:
        await self._cluster.healthy()

    async def _kill(self, *members: EtcdMember) -> None:
        for member in members:
            await self._cluster.kill(member)
            self._kept.setdefault(member.name, self._cluster.keep_data(member))
        await self._last()
        for member in members:
            member.start()

    async def _kill_leader(self) -> None:
        await self._kill(await self._cluster.leader())

    async def _kill_follower(self) -> None:
        await self._kill(await self._cluster.follower())

    async def _kill_majority(self) -> None:
        await self._kill(await self._cluster.leader(), await self._cluster.follower())

    async def _stop(self, member: EtcdMember) -> None:
        self._cluster.pause(member)
        await self._last()
        member.resume()

    async def _stop_leader(self) -> None:
        await self._stop(await self._cluster.leader())

    async def _stop_follower(self) -> None:
        await self._stop(await self._cluster.follower())

    async def _cut(self, member: EtcdMember) -> None:
        self._cluster.partition(member, clients=self._random.random() < 0.5)
        await self._last()
        self._cluster.wires.mend()

    async def _cut_leader(self) -> None:
        await self._cut(await self._cluster.leader())

    async def _cut_follower(self) -> None:
        await self._cut(await self._cluster.follower())

    async def _cut_clients(self) -> None:
        member = self._random.choice(list(self._cluster.members.values()))
        self._cluster.faults["clients cut off from a member"] += 1
        self._cluster.wires.cut(member.name, OUTSIDE)
        await self._last()
        self._cluster.wires.mend()

    async def _move_leader(self) -> None:
        await self._cluster.move_leader()

    async def _put_back_old_data(self) -> None:
        member = await self._cluster.follower()
        await self._cluster.kill(member)
        kept = self._kept.pop(member.name, None)
        if kept is None:
            # Without an older copy, keep this one, and let the member run on for some time.
            kept = self._cluster.keep_data(member)
            await self._cluster.start(member)
            await self._last()
            await self._cluster.kill(member)
        # A commit may be on two members only. The third must have it before this member loses it.
        await self._cluster.caught_up()
        await self._cluster.put_back(member, kept)
