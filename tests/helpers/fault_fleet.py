"""The engine processes of the fault tests on one store, and a watcher that records beside them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.testing import History, WriteAnswered, WriteSent
from tests.helpers.etcd_cluster import until
from tests.helpers.fault_engines import EngineProcess
from tests.helpers.fault_plan import FaultPlan
from tests.helpers.fault_program import SHARDS, Job, Watcher, owes, recorded, types_of

ENGINES = 3


class Fleet:
    """Engine processes on one store, and a watcher in this process."""

    def __init__(self, store: str, folder: Path, seed: int) -> None:
        self.history = History()
        self.store = store
        self.seed = seed
        self.engines = [EngineProcess(f"web-{n}", store, folder, seed * 1000 + n * 100) for n in range(1, ENGINES + 1)]

    async def judge(
        self,
        plan: Callable[[trio.Nursery], FaultPlan],
        seconds: float,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Run the faults of a plan for some seconds, print what has happened, and check the history."""
        plans: list[FaultPlan] = []

        async def faults(nursery: trio.Nursery) -> None:
            plans.append(plan(nursery))
            await plans[0].run(seconds)

        began, ended_well = trio.current_time(), False
        try:
            await self.run(faults)
            ended_well = True
        finally:
            # After a failed run, some keys may still have to be reconciled.
            violations = self.history.violations(owes() if ended_well else None)
            answers, took = self.answers(), trio.current_time() - began
            counts, log = (plans[0].counts, plans[0].log) if plans else (Counter[str](), [])
            with capsys.disabled():
                print(f"\n{self.store.partition(':')[0]}, seed {self.seed}, {took:.0f} s")
                print(f"{counts.total()} faults: {', '.join(f'{each} {counts[each]}' for each in sorted(counts))}")
                print(f"writes: {', '.join(f'{number} {outcome}' for outcome, number in answers.items())}")
                print(f"{len(self.history.facts)} facts, {len(violations)} violations")
                if violations or not ended_well:
                    print(f"in this order: {'; '.join(log)}")
                    print("\n".join(f"{rule}: {sentence}" for rule, sentence in violations[:20]))
        assert not violations
        # A run without writes or faults would prove nothing.
        assert answers["acknowledged"] > 2 * seconds
        assert counts.total() > seconds / 15

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
        """Count the writes by their outcome: also unknown is that of a process that was killed before its answer."""
        facts = self.history.facts
        counted = Counter(fact.outcome for fact in facts if isinstance(fact, WriteAnswered))
        counted["unknown"] += sum(isinstance(fact, WriteSent) for fact in facts) - counted.total()
        return counted


async def _copied(client: headway.Client, job: Any, *made: Any) -> bool:
    """Return True if each job, and nothing else, has its copy and its stamp."""
    wanted, *found = [{each.name: each.data.text for each in await client.list(type)} for type in (job, *made)]
    return all(each == wanted for each in found)
