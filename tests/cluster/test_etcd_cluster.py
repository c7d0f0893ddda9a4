"""The faults of the cluster helper have their real effect, as etcd's own revisions and leaders show."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.etcd_cluster import EtcdCluster, open_cluster, until
from tests.helpers.etcd_server import EtcdMember, need_etcd_for_faults

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    async with open_cluster(need_etcd_for_faults(), tmp_path) as cluster:
        yield cluster


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def put(cluster: EtcdCluster, member: EtcdMember, key: str, value: str) -> int:
    """Write, and return the revision of the write."""
    answer = await cluster.call(member, "kv/put", key=text(key), value=text(value))
    return int(answer["header"]["revision"])


async def get(cluster: EtcdCluster, member: EtcdMember, key: str, *, stale: bool = False) -> str | None:
    """Read; ``stale`` reads this member's own state."""
    answer = await cluster.call(member, "kv/range", key=text(key), serializable=stale)
    found = answer.get("kvs", ())
    return base64.b64decode(found[0]["value"]).decode() if found else None


async def has(cluster: EtcdCluster, member: EtcdMember, key: str, value: str) -> None:
    """Wait until the member itself has the value."""

    async def there() -> bool:
        return await get(cluster, member, key, stale=True) == value

    await until(there)


async def leads_no_more(cluster: EtcdCluster, member: EtcdMember) -> None:
    """Wait until another member leads."""

    async def another() -> bool:
        return await cluster.leader() is not member

    await until(another)


async def test_another_member_leads_after_the_leader_is_killed(cluster: EtcdCluster) -> None:
    """No write is lost. The killed member restarts and catches up."""
    leader = await cluster.leader()
    first = await put(cluster, leader, "a", "before")
    await cluster.kill(leader)
    heir = await cluster.leader()
    assert heir is not leader
    assert await get(cluster, heir, "a") == "before"
    assert await put(cluster, heir, "a", "after") > first
    await cluster.start(leader)
    await has(cluster, leader, "a", "after")
    assert cluster.faults == {"kill -9": 1}


async def test_another_member_leads_while_the_leader_is_stopped(cluster: EtcdCluster) -> None:
    """The stopped member does not answer, and follows when it is resumed."""
    leader = await cluster.leader()
    cluster.pause(leader)
    heir = await cluster.leader()
    assert heir is not leader
    with pytest.raises(httpx.HTTPError):
        await put(cluster, leader, "b", "arrives late, or never")
    await put(cluster, heir, "a", "from the heir")
    leader.resume()
    await has(cluster, leader, "a", "from the heir")
    assert await cluster.leader() is not leader


@pytest.mark.parametrize("clients", [False, True])
async def test_partitioned_leader_commits_nothing_and_the_others_go_on(cluster: EtcdCluster, clients: bool) -> None:
    """A direct connection to it shows only its earlier state. After the partition it has everything."""
    leader = await cluster.leader()
    await put(cluster, leader, "a", "before")
    wire = cluster.endpoints[list(cluster.members).index(leader.name)]
    async with httpx.AsyncClient(timeout=1.0) as client:
        assert (await client.get(f"http://{wire}/health")).status_code == 200
        cluster.partition(leader, clients=clients)
        others = [each for each in cluster.members.values() if each is not leader]
        await leads_no_more(cluster, leader)
        heir = await cluster.leader()
        assert heir in others
        await put(cluster, heir, "a", "after")
        for other in others:
            await has(cluster, other, "a", "after")
        assert await get(cluster, leader, "a", stale=True) == "before"
        with pytest.raises(httpx.HTTPError):
            await get(cluster, leader, "a")
        if clients:
            with pytest.raises(httpx.TimeoutException):
                await client.get(f"http://{wire}/version")
        else:
            assert (await client.get(f"http://{wire}/version")).status_code == 200
    assert cluster.wires.held_back
    cluster.wires.mend()
    await has(cluster, leader, "a", "after")
    await leader.until_healthy()


async def test_leadership_can_be_moved(cluster: EtcdCluster) -> None:
    """Status then names the new leader."""
    leader = await cluster.leader()
    heir = await cluster.move_leader()
    assert await cluster.leader() is heir is not leader


async def test_member_with_an_old_data_directory_catches_up(cluster: EtcdCluster) -> None:
    """The member reports that it serves only after it has everything that was acknowledged since its copy was made."""
    member = await cluster.follower()
    await put(cluster, member, "a", "in the copy")
    await cluster.kill(member)
    kept = cluster.keep_data(member)
    await cluster.start(member)
    revision = 0
    for number in range(20):
        revision = await put(cluster, member, "a", f"since the copy {number}")
    await cluster.kill(member)
    ended = await cluster.put_back(member, kept)
    print(f"it ended {ended} times before it served")
    assert await get(cluster, member, "a") == "since the copy 19"
    assert await put(cluster, member, "b", "goes on") == revision + 1
    assert cluster.faults["old data directory"] == 1
