"""Engines on a real cluster keep every rule of a history while members and engines are killed, stopped and cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.etcd_cluster import open_cluster
from tests.helpers.etcd_server import need_etcd_for_faults
from tests.helpers.fault_fleet import Fleet
from tests.helpers.fault_plan import EtcdFaults

SECONDS = float(os.environ.get("HEADWAY_FAULT_SECONDS", "60"))
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "1"))

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(SECONDS + 240)
async def test_engines_keep_every_rule_on_a_cluster_with_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No acknowledged write is lost, no cache goes back, no two hold a term, and every key ends reconciled."""
    async with open_cluster(need_etcd_for_faults(), tmp_path) as cluster:
        fleet = Fleet(f"etcd://{','.join(cluster.endpoints)}/faults", tmp_path, SEED)
        await fleet.judge(lambda nursery: EtcdFaults(cluster, fleet.engines, nursery, SEED), SECONDS, capsys)
