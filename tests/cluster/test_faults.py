"""Engines on a real cluster keep every rule of a history while members and engines are killed, stopped and cut off."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.testing import History, Violation, WriteAnswered
from tests.helpers.etcd_cluster import open_cluster, until
from tests.helpers.etcd_server import need_etcd_for_faults
from tests.helpers.fault_engines import EngineProcess
from tests.helpers.fault_plan import FaultPlan
from tests.helpers.fault_program import SHARDS, Job, Watcher, owes, recorded, types_of

SECONDS = float(os.environ.get("HEADWAY_FAULT_SECONDS", "60"))
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "1"))
ENGINES = 3

pytestmark = pytest.mark.cluster


class Fleet:
    """Engine processes on one store, and a watcher in this process."""

    def __init__(self, store: str, folder: Path, seed: int) -> None:
        self.history = History()
        self.store = store
        self.engines = [EngineProcess(f"web-{n}", store, folder, seed * 1000 + n * 100) for n in range(1, ENGINES + 1)]

    async def run(self, during: Callable[[trio.Nursery], Awaitable[None]]) -> None:
        """Start all engines, call ``during`` while they run, wait until all are idle, and end them.

        The facts are read even after a failure.
        """
        try:
            await self._run(during)
        finally:
            for engine in self.engines:
                engine.read_into(self.history)

    async def _run(self, during: Callable[[trio.Nursery], Awaitable[None]]) -> None:
        app = headway.App("staff")
        job, copy, stamp = types_of(app)
        async with (
            recorded(self.store, app, "witness", self.history.add) as (_, client),
            trio.open_nursery() as nursery,
        ):
            watcher = Watcher(client, nursery, (job, copy, stamp))
            await watcher.reached(1)
            for engine in self.engines:
                await engine.start(nursery)
            for engine in self.engines:
                await engine.wait_line("ready")
            await during(nursery)
            for engine in self.engines:
                await engine.send("stop-writing")
            for engine in self.engines:
                await engine.wait_line("stopped")
            await self._wait_idle()
            assert await _copied(client, job, copy, stamp)
            # The last write: when its change has arrived, all earlier changes have arrived, too.
            last = await client.apply(job.new("last", Job(text="last")))
            await until(lambda: _copied(client, job, copy, stamp), 60)
            await self._wait_idle()
            await watcher.reached(int(last.version))
            for engine in self.engines:
                await engine.end()
            nursery.cancel_scope.cancel()

    async def _wait_idle(self) -> None:
        """Wait until the engines run all shards of each controller, and are idle.

        After a lease ends, its shard runs in no engine for a while. That must not count as idle.
        """
        before: list[Any] = []

        async def idle() -> bool:
            nonlocal before
            shares = []
            for engine in self.engines:
                await engine.send("wait-idle")
                shares.append(json.loads(await engine.wait_line("idle")))
            shards = sorted(shard for share in shares for shard in share["shards"])
            whole = [share["copier"] for share in shares].count(True) == 1 and shards == list(range(SHARDS))
            same, before = shares == before, shares
            return whole and same

        await until(idle, 60)

    def answers(self) -> Counter[str]:
        """Count the writes by their outcome."""
        return Counter(fact.outcome for fact in self.history.facts if isinstance(fact, WriteAnswered))


async def _copied(client: headway.Client, job: Any, *made: Any) -> bool:
    """Return True if each job, and nothing else, has its copy and its stamp."""
    wanted, *found = [{each.name: each.data.text for each in await client.list(type)} for type in (job, *made)]
    return all(each == wanted for each in found)


def sentences(violations: Sequence[Violation]) -> str:
    return "\n".join(f"{rule}: {sentence}" for rule, sentence in violations[:20])


@pytest.mark.timeout(SECONDS + 240)
async def test_engines_keep_every_rule_on_a_cluster_with_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No acknowledged write is lost, no cache goes back, no two hold a term, and every key ends reconciled."""
    binary = need_etcd_for_faults()
    async with open_cluster(binary, tmp_path) as cluster:
        fleet = Fleet(f"etcd://{','.join(cluster.endpoints)}/faults", tmp_path, SEED)
        plan: list[FaultPlan] = []

        async def faults(nursery: trio.Nursery) -> None:
            plan.append(FaultPlan(cluster, fleet.engines, nursery, SEED))
            await plan[0].run(SECONDS)

        began, ended_well = trio.current_time(), False
        try:
            await fleet.run(faults)
            ended_well = True
        finally:
            # After a failed run, some keys may still have to be reconciled.
            violations = fleet.history.violations(owes() if ended_well else None)
            answers = fleet.answers()
            took = trio.current_time() - began
            with capsys.disabled():
                print(f"\n{binary}, seed {SEED}, {took:.0f} s: {dict(cluster.faults)}")
                print(f"writes {dict(answers)}, {len(fleet.history.facts)} facts, {len(violations)} violations")
                if violations or not ended_well:
                    print(f"in this order: {'; '.join(plan[0].log if plan else ())}\n{sentences(violations)}")
    assert not violations
    # A run without writes or faults would prove nothing.
    assert answers["acknowledged"] > 2 * SECONDS
    assert len(plan[0].log) > SECONDS / 15
