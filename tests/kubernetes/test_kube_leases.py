"""Leases and fences as Leases of a real API server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from headway.client import Client, Deleted, SnapshotEnd, hold_lease
from headway.errors import Fenced, LeaseLost, NotFound, StoreChanged
from headway.kubernetes._leases import object_name
from headway.kubernetes._open import open_channel
from headway.kubernetes._watch import TypeWatch
from headway.resource import Position
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, connected, deployment
from tests.kubernetes.gates import GatedServer
from tests.kubernetes.test_kube_contract import until

NAME = "sites/web"


async def test_c7_a_lease_has_one_holder(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with (
        connected(kube, program, namespace, tmp_path) as (one, _, _),
        connected(kube, program, namespace, tmp_path) as (two, _, _),
    ):
        first = await one.leases.acquire(NAME, "one", 15)
        assert (first.acquired, first.holder) == (True, "one")
        second = await two.leases.acquire(NAME, "two", 15)
        assert (second.acquired, second.holder) == (False, "one")
        assert 14 < second.retry_after <= 15.1
        await one.leases.keep_alive(NAME, "one", first.term)
        (held,) = await two.leases.list()
        assert (held.name, held.holder, held.term, held.ttl) == (NAME, "one", first.term, 15)
        await one.leases.release(NAME, "one", first.term)
        assert await two.leases.list() == []
        third = await two.leases.acquire(NAME, "two", 15)
        assert third.acquired
        assert third.term > first.term
        with pytest.raises(LeaseLost, match="two holds it"):
            await one.leases.keep_alive(NAME, "one", first.term)
        # It has ended already, and is not the other's.
        await one.leases.release(NAME, "one", first.term)
        await two.leases.keep_alive(NAME, "two", third.term)


async def test_c7_a_lease_that_is_not_renewed_expires(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A waiting holder measures by its own clock how long the Lease has not changed, whatever the times in it say."""
    program = Program()
    async with (
        connected(kube, program, namespace, tmp_path) as (one, _, _),
        connected(kube, program, namespace, tmp_path) as (two, server, _),
    ):
        first = await one.leases.acquire(NAME, "one", 2)
        began = trio.current_time()
        with trio.fail_after(20):
            answer = await two.leases.acquire(NAME, "two", 2, wait=10)
        assert answer.acquired
        assert answer.term > first.term
        assert trio.current_time() - began >= 2
        with pytest.raises(LeaseLost):
            await one.leases.keep_alive(NAME, "one", first.term)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{object_name('lease', NAME)}"
        found = await server.call("GET", path)
        assert found["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_was_deleted_has_a_higher_term(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (one, server, _):
        first = await one.leases.acquire(NAME, "one", 15)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{object_name('lease', NAME)}"
        await server.call("DELETE", path)
        with pytest.raises(LeaseLost, match="it is free"):
            await one.leases.keep_alive(NAME, "one", first.term)
        again = await one.leases.acquire(NAME, "one", 15)
        assert again.term > first.term


async def test_a_holder_that_asks_again_begins_a_new_term(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (one, _, _):
        first = await one.leases.acquire(NAME, "one", 15, attempt="a")
        again = await one.leases.acquire(NAME, "one", 15, attempt="a")
        assert again.term > first.term
        with pytest.raises(LeaseLost):
            await one.leases.keep_alive(NAME, "one", first.term)
        await one.leases.keep_alive(NAME, "one", again.term)


async def test_a_lease_is_held_and_handed_on(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    order: list[str] = []
    async with (
        connected(kube, program, namespace, tmp_path) as (one, _, _),
        connected(kube, program, namespace, tmp_path) as (two, _, _),
    ):

        async def second() -> None:
            async with hold_lease(two.leases, NAME, holder="two", ttl=3):
                order.append("two")

        with trio.fail_after(30):
            async with (
                trio.open_nursery() as nursery,
                hold_lease(one.leases, NAME, holder="one", ttl=3) as lease,
            ):
                nursery.start_soon(second)
                # Longer than its ttl: it was renewed.
                await trio.sleep(4)
                assert lease.held
                order.append("one")
        assert order == ["one", "two"]


async def test_c3_a_fence_only_rises(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with (
        connected(kube, program, namespace, tmp_path) as (one, _, _),
        connected(kube, program, namespace, tmp_path) as (two, server, _),
    ):
        first = await one.leases.raise_fence(NAME, "", term=7, number=1)
        assert first.checkpoint == first.position.revision
        higher = await one.leases.raise_fence(NAME, "", term=7, number=2)
        assert higher.position.revision > first.position.revision
        with pytest.raises(Fenced):
            await one.leases.raise_fence(NAME, "", term=7, number=2)
        revision = higher.position.revision
        await one.leases.record_checkpoint(higher.fence, revision)
        await one.leases.record_checkpoint(higher.fence, revision - 1)
        later = await two.leases.raise_fence(NAME, "", term=8, number=1)
        assert later.checkpoint == revision
        with pytest.raises(Fenced):
            await one.leases.raise_fence(NAME, "", term=7, number=3)
        with pytest.raises(Fenced):
            await one.leases.record_checkpoint(higher.fence, revision + 1)
        with pytest.raises(StoreChanged):
            await two.leases.record_checkpoint(later.fence, revision + 1, Position("another", "", 1))
        member = await one.leases.raise_fence(NAME, "web-1", number=1)
        assert member.fence.term == 9
        objects = await server.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
        names = {each["metadata"]["annotations"]["headway.dev/name"] for each in objects["items"]}
        assert names == {NAME, f"{NAME}#web-1"}, json.dumps(objects)


async def test_c7_a_lease_that_is_deleted_is_not_free_for_whoever_has_seen_it(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """Its holder learns of the deletion only with its next renewal."""
    program = Program()
    async with (
        connected(kube, program, namespace, tmp_path) as (one, server, _),
        connected(kube, program, namespace, tmp_path) as (two, _, _),
    ):
        await one.leases.acquire(NAME, "one", 3)
        assert not (await two.leases.acquire(NAME, "two", 3)).acquired
        await server.call(
            "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{object_name('lease', NAME)}"
        )
        answer = await two.leases.acquire(NAME, "two", 3)
        assert not answer.acquired
        with trio.fail_after(20):
            assert (await two.leases.acquire(NAME, "two", 3, wait=10)).acquired


async def test_c7_of_two_processes_with_one_name_the_last_holds_the_lease(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    program = Program()
    async with (
        connected(kube, program, namespace, tmp_path) as (one, _, _),
        connected(kube, program, namespace, tmp_path) as (two, _, _),
    ):
        first = await one.leases.acquire(NAME, "pod-0", 15)
        await one.leases.keep_alive(NAME, "pod-0", first.term)
        second = await two.leases.acquire(NAME, "pod-0", 15)
        with pytest.raises(LeaseLost):
            await one.leases.keep_alive(NAME, "pod-0", first.term)
        await two.leases.keep_alive(NAME, "pod-0", second.term)


async def test_a_namespace_that_does_not_exist_is_said(kube: KubeServer, tmp_path: Path) -> None:
    async with connected(kube, Program(), "absent", tmp_path) as (client, _, _):
        with pytest.raises(NotFound, match="absent"):
            await client.leases.acquire(NAME, "one", 15)


async def test_c6_a_run_that_records_nothing_hides_no_deletion(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """The next run looks for deletions from the first fence on, and from the checkpoint of another placement."""
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        leases = client.leases
        first = await leases.raise_fence(NAME, "", number=1)
        assert first.checkpoint == first.position.revision
        for number in (2, 3):
            again = await leases.raise_fence(NAME, "", term=first.fence.term, number=number)
            assert 0 < again.checkpoint <= first.position.revision
        await leases.record_checkpoint(again.fence, again.position.revision)
        part = await leases.raise_fence(NAME, "0/2", number=1)
        assert part.checkpoint == again.position.revision
        assert part.fence.term > again.fence.term


async def test_a_fence_of_another_cluster_counts_for_nothing(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Its Leases were restored from a backup of that one."""
    async with connected(kube, Program(), namespace, tmp_path) as (client, server, _):
        await client.leases.raise_fence(NAME, "", term=10**12, number=1)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{object_name('fence', NAME)}"
        patch = {"metadata": {"annotations": {"headway.dev/cluster": "another"}}}
        await server.call("PATCH", path, body=patch, content_type="application/merge-patch+json")
        raised = await client.leases.raise_fence(NAME, "", term=5, number=1)
        assert raised.fence.term == 5


def test_names_of_lease_objects() -> None:
    assert object_name("lease", NAME).startswith("headway-lease-sites-web-")
    names = {
        object_name(kind, name)
        for kind in ("lease", "fence")
        for name in ("a/b", "a.b", "A/b", "a/b#1", "x" * 400, "a/-b", "a-/b", "ü")
    }
    assert len(names) == 16
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,251}[a-z0-9])?", name) for name in names)


async def test_c6_a_checkpoint_is_below_what_may_come_late(
    kube: KubeServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list ends a barrier, and the stream has not brought yet what was created and deleted. Then comes a kill."""
    program = Program()
    scope = program.config_map.within(namespace=namespace)
    watches: list[TypeWatch] = []
    begin = TypeWatch.__init__

    def noted(self: TypeWatch, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        watches.append(self)

    monkeypatch.setattr(TypeWatch, "__init__", noted)
    async with connected(kube, program, namespace, tmp_path) as (person, server, _):
        gated = GatedServer(server)
        gated.gate = trio.Event()
        async with open_channel(gated, program.app.registry, namespace) as channel:  # type: ignore[arg-type]  # the same methods
            client = Client(channel, program.app.registry)
            fence = (await client.leases.raise_fence(NAME, "", number=1)).fence
            first = await person.write(program.config_map.new("first", namespace=namespace))

            async def recorded(revision: int) -> int:
                nonlocal fence
                await client.leases.record_checkpoint(fence, revision)
                raised = await client.leases.raise_fence(NAME, "", term=fence.term, number=fence.number + 1)
                fence = raised.fence
                return raised.checkpoint

            async with client.watch(scope) as events:
                with trio.fail_after(20):
                    while not isinstance(await anext(events), SnapshotEnd):
                        pass
                short = await person.write(program.config_map.new("short", namespace=namespace))
                await person.delete(short)
                later = await person.write(program.deployment.new("web", deployment(), namespace=namespace))
                reached = int(later.version)
                (watch,) = watches
                watch.ask(reached)
                await until(lambda: watch.frontier >= reached)
                with trio.move_on_after(1):
                    # A run that ends does not wait.
                    await client.leases.record_checkpoint(fence, reached)
                assert int(first.version) <= await recorded(0) < int(short.version)
                # A second watch brings it, at a later revision.
                assert await recorded(reached) < int(short.version)
                with trio.fail_after(20):
                    while not isinstance(event := await anext(events), Deleted):
                        pass
                assert (event.resource.name, event.revision > reached) == ("short", True)
                assert await recorded(reached) < int(short.version)
                assert await recorded(event.revision) == event.revision
