"""Engines on a real cluster keep every rule of a history while members and engines are killed, stopped and cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.helpers.etcd_cluster import open_cluster
from tests.helpers.etcd_server import need_etcd_for_faults
from tests.helpers.fault_fleet import Fleet, sentences
from tests.helpers.fault_plan import EtcdFaults
from tests.helpers.fault_program import owes

SECONDS = float(os.environ.get("HEADWAY_FAULT_SECONDS", "60"))
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "1"))

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(SECONDS + 240)
async def test_engines_keep_every_rule_on_a_cluster_with_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No acknowledged write is lost, no cache goes back, no two hold a term, and every key ends reconciled."""
    binary = need_etcd_for_faults()
    async with open_cluster(binary, tmp_path) as cluster:
        fleet = Fleet(f"etcd://{','.join(cluster.endpoints)}/faults", tmp_path, SEED)
        plan: list[EtcdFaults] = []

        async def faults(nursery: trio.Nursery) -> None:
            plan.append(EtcdFaults(cluster, fleet.engines, nursery, SEED))
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
