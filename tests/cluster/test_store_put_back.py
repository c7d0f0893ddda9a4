"""A cluster whose members are all rolled back to old data has lost acknowledged writes, and reports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headway
from headway.storage import open_store
from tests.helpers.cluster import Job
from tests.helpers.copying_program import Program
from tests.helpers.etcd_cluster import EtcdCluster, open_cluster, until
from tests.helpers.etcd_server import need_etcd_for_faults
from tests.helpers.loopback_wires import OUTSIDE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    async with open_cluster(need_etcd_for_faults(), tmp_path) as cluster:
        yield cluster


async def put_back(cluster: EtcdCluster, kept: dict[str, Path]) -> None:
    """Kill every member, and restart all on their old data, as an operator who restores a backup by hand would."""
    for member in cluster.members.values():
        await cluster.kill(member)
    for member in cluster.members.values():
        cluster.restore(member, kept[member.name])
    for member in cluster.members.values():
        member.start()
    await cluster.healthy()


async def keep(cluster: EtcdCluster) -> dict[str, Path]:
    """Copy the data of all members at one moment."""
    for member in cluster.members.values():
        await cluster.kill(member)
    kept = {name: cluster.keep_data(member) for name, member in cluster.members.items()}
    for member in cluster.members.values():
        member.start()
    await cluster.healthy()
    return kept


@pytest.mark.parametrize("passed", [False, True], ids=["below what was told", "above it again"])
async def test_rolled_back_store_stops_runs_until_an_operator_accepts_it(cluster: EtcdCluster, passed: bool) -> None:
    """No cache is rolled back by itself, even after new writes have raised the revisions above the earlier ones."""
    program = Program()
    url = f"etcd://{','.join(cluster.endpoints)}/back"
    async with headway.open_engine(
        url,
        program.app,
        process="web-1",
        report=program.events.append,
        timing=headway.Timing(lag_limit=2.0, lease_ttl=2.0),
    ) as engine:

        async def write(name: str, text: str) -> None:
            await engine.client.apply(program.job.new(name, Job(text=text)))

        async def copied(wanted: dict[str, str]) -> None:
            async def has_copies() -> bool:
                return await program.copies(engine) == wanted

            await until(has_copies)

        await write("kept", "old")
        await copied({"kept": "old"})
        kept = await keep(cluster)
        await write("kept", "new")
        await write("lost", "new")
        await copied({"kept": "new", "lost": "new"})
        errors_before = len(program.errors())
        if passed:
            for member in cluster.members:
                cluster.wires.cut(member, OUTSIDE)
        await put_back(cluster, kept)
        if passed:
            # Another client, with its own connection, continues to write to the restored state.
            direct = f"etcd://{','.join(member.endpoint for member in cluster.members.values())}/back"
            async with open_store(direct) as store:
                for number in range(200):
                    await store.raise_fence("other", "", 0, number)
            cluster.wires.mend()

        async def reported() -> bool:
            return headway.errors.StoreRolledBack in program.errors()[errors_before:]

        await until(reported)
        assert engine.accept_store()
        await copied({"kept": "old"})
        await write("kept", "newer")
        await copied({"kept": "newer"})
