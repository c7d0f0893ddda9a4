"""Three real etcd members on loopback, which a test can kill, stop, partition, or restart with old data."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.helpers.etcd_server import EtcdBinary, EtcdMember, free_ports
from tests.helpers.loopback_wires import OUTSIDE, Wires
from tests.helpers.server_process import START

NAMES = ("alpha", "beta", "gamma")


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = START) -> None:
    """Poll until the condition holds. Raises TooSlowError if it takes too long."""
    with trio.fail_after(seconds):
        while True:
            if await condition():
                return
            await trio.sleep(0.05)


class NoLeader(Exception):
    """No member that answers knows a leader that also answers."""


class EtcdCluster:
    """Three etcd members, and the wires between them and to their clients.

    Attributes:
        endpoints: the addresses for clients: ``host:port`` of the wire to each member.
        faults: the number of times that each kind of fault was injected.
    """

    def __init__(self, binary: EtcdBinary, folder: Path, *, tick: float = 0.05, snapshot_count: int = 1000) -> None:
        ports = iter(free_ports(4 * len(NAMES)))
        self._ways = {name: (next(ports), next(ports), next(ports), next(ports)) for name in NAMES}
        self._folder = folder
        self._http = httpx.AsyncClient(timeout=2.0)
        self.binary = binary
        self.faults: Counter[str] = Counter()
        self.wires = Wires(self._processes)
        self.endpoints = [f"127.0.0.1:{outer}" for _, outer, _, _ in self._ways.values()]
        everyone = ",".join(f"{name}=http://127.0.0.1:{ways[3]}" for name, ways in self._ways.items())
        self.members = {
            name: EtcdMember(
                binary,
                name,
                folder,
                port=port,
                peer_port=peer,
                advertised=outer_peer,
                cluster=everyone,
                tick=tick,
                # A member that was away for long gets a snapshot, as in a busy cluster.
                options=[f"--snapshot-count={snapshot_count}"],
            )
            for name, (port, _, peer, outer_peer) in self._ways.items()
        }

    def _processes(self) -> Mapping[str, int]:
        return {name: member.process for name, member in self.members.items() if member.running}

    async def call(self, member: EtcdMember, path: str, **fields: Any) -> Any:
        """Call the JSON gateway of a member without its wires. Raises httpx.HTTPError if it does not succeed."""
        answer = await self._http.post(f"http://{member.endpoint}/v3/{path}", json=fields)
        answer.raise_for_status()
        return answer.json()

    async def leader(self, seconds: float = START) -> EtcdMember:
        """Return the member that reports itself as the leader. Raises NoLeader if no member leads for too long."""
        with trio.move_on_after(seconds):
            while True:
                leading = {}
                for member in self.members.values():
                    if member.running:
                        with trio.move_on_after(1):
                            try:
                                said = await self.call(member, "maintenance/status")
                            except httpx.HTTPError:
                                continue
                            if said.get("leader") == said["header"]["member_id"]:
                                leading[int(said["header"]["raft_term"])] = member
                if leading:
                    # A leader that is cut off reports itself for a while. The real leader has the highest term.
                    return leading[max(leading)]
                await trio.sleep(0.05)
        raise NoLeader

    async def follower(self) -> EtcdMember:
        """Return a member that runs and does not lead."""
        leader = await self.leader()
        return next(each for each in self.members.values() if each is not leader and each.running)

    async def healthy(self) -> None:
        """Wait until every running member serves."""
        for member in self.members.values():
            if member.running:
                await member.until_healthy()

    async def caught_up(self) -> None:
        """Wait until every running member has applied everything that any of them has now."""
        goal = 0

        async def reached() -> bool:
            nonlocal goal
            running = [member for member in self.members.values() if member.running]
            try:
                said = [await self.call(member, "maintenance/status") for member in running]
            except httpx.HTTPError:
                return False
            goal = goal or max(int(each["raftIndex"]) for each in said)
            return all(int(each["raftAppliedIndex"]) >= goal for each in said)

        await until(reached)

    async def kill(self, member: EtcdMember) -> None:
        """Kill a member with SIGKILL."""
        self.faults["kill -9"] += 1
        member.kill()

    async def start(self, member: EtcdMember) -> None:
        """Start a member again, and wait until it serves."""
        member.start()
        await member.until_healthy()

    def pause(self, member: EtcdMember) -> None:
        """Stop a member with SIGSTOP. `EtcdMember.resume` continues it."""
        self.faults["SIGSTOP"] += 1
        member.pause()

    def partition(self, member: EtcdMember, *, clients: bool) -> None:
        """Cut a member off from the others, and with ``clients`` also from its clients, until ``wires.mend()``."""
        self.faults["partition from peers and clients" if clients else "partition from peers"] += 1
        for other in self.members:
            if other != member.name:
                self.wires.cut(member.name, other)
        if clients:
            self.wires.cut(member.name, OUTSIDE)

    async def move_leader(self) -> EtcdMember:
        """Make the leader hand over to another member, and return that member. Retry while the cluster refuses."""
        self.faults["leader moved"] += 1
        leader, heir = await self.leader(), await self.follower()

        async def moved() -> bool:
            nonlocal leader, heir
            try:
                heir_id = (await self.call(heir, "maintenance/status"))["header"]["member_id"]
                await self.call(leader, "maintenance/transfer-leadership", targetID=heir_id)
            except httpx.HTTPError:
                # The leadership may have moved already, or another election may have come first.
                if (now := await self.leader()) is not leader:
                    heir = now
                    return True
                heir = await self.follower()
                return False
            return True

        await until(moved)
        return heir

    def keep_data(self, member: EtcdMember) -> Path:
        """Copy the data directory of a stopped member, as a backup would."""
        assert not member.running
        kept = self._folder / f"{member.name}.kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(member.data, kept)
        return kept

    def restore(self, member: EtcdMember, kept: Path) -> None:
        """Put the old data directory of a stopped member back."""
        assert not member.running
        self.faults["old data directory"] += 1
        shutil.rmtree(member.data)
        shutil.copytree(kept, member.data)

    async def put_back(self, member: EtcdMember, kept: Path) -> int:
        """Put the old data directory of a stopped member back, start it, and let it catch up.

        A member ends itself if the leader knows that it once had more data. etcd accepts it only under a leader that
        has had no contact with it yet. Returns the number of times that it ended itself before it served.
        """
        self.restore(member, kept)
        for ended in range(6):
            try:
                await self.start(member)
                return ended
            except RuntimeError:
                if member.running:
                    raise
                await self.move_leader()
        raise RuntimeError(f"{member.name} did not rejoin the cluster: {member.log.read_text()[-2000:]}")

    async def close(self) -> None:
        """End every process."""
        for member in self.members.values():
            member.kill()
        await self._http.aclose()

    async def run_wires(self, nursery: trio.Nursery) -> None:
        """Start the proxies, and serve until canceled."""
        for name, (port, outer, peer, outer_peer) in self._ways.items():
            await nursery.start(partial(self.wires.serve, outer, name, port))
            await nursery.start(partial(self.wires.serve, outer_peer, name, peer))


@asynccontextmanager
async def open_cluster(binary: EtcdBinary, folder: Path, **options: Any) -> AsyncIterator[EtcdCluster]:
    """Run three members until the end of the block. They serve when it begins."""
    cluster = EtcdCluster(binary, folder, **options)
    async with trio.open_nursery() as nursery:
        try:
            await cluster.run_wires(nursery)
            for member in cluster.members.values():
                member.start()
            await cluster.healthy()
            yield cluster
        finally:
            with trio.CancelScope(shield=True):
                await cluster.close()
        nursery.cancel_scope.cancel()
