"""Types read by their metadata alone, deletions with propagation, watched Events, and a store of Headway beside."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
import headway.testing
from headway import field, kubernetes
from headway.client import Client, SnapshotEnd
from headway.errors import Conflict, DeclarationError, InvalidArgument
from headway.kubernetes._open import open_channel
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.connected import Program, Website, connected, install_crd, kubeconfig, running, wait_served
from tests.kubernetes.gates import GatedServer
from tests.kubernetes.test_kube_contract import until

SOON = 20.0


class Slim:
    """An app that reads only the metadata of its ConfigMaps."""

    def __init__(self) -> None:
        self.app = headway.App("slim")
        self.config_map = kubernetes.builtin(self.app, "v1", "ConfigMap", metadata_only=True)


async def test_a_type_is_read_by_its_metadata_alone(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """C1, C5: streams, reads and replies have no data, and an apply leaves the data as they are."""
    program, slim = Program(), Slim()
    seen: list[tuple[str, dict[str, str]]] = []

    @slim.app.controller(manages=slim.config_map.within(namespace=namespace))
    async def labeler(rt: headway.Runtime, request: headway.Request[kubernetes.Manifest]) -> None:
        found = rt.cache.get(slim.config_map, request.id)
        if found is None:
            seen.append((request.id.name, {}))
            return
        assert not found.message().data.value  # type: ignore[union-attr]  # it has a payload of no bytes
        seen.append((found.name, dict(found.metadata)))
        if "seen" not in found.metadata:
            labeled = slim.config_map.new(found.name, namespace=namespace, metadata={"seen": "yes"})
            applied = await rt.client.apply(labeled)
            assert not applied.message().data.value  # type: ignore[union-attr]  # as above

    async with connected(kube, program, namespace, tmp_path) as (client, _, _):
        made = await client.write(program.config_map.new("web", {"data": {"a": "1" * 1000}}, namespace=namespace))
        file = kubeconfig(kube, namespace, tmp_path)
        async with kubernetes.open_cluster(slim.app, kubeconfig=file) as engine:
            with trio.fail_after(SOON):
                await until(lambda: ("web", {"seen": "yes"}) in seen)
                found = await client.read(program.config_map, made.id)
                assert found.data["data"] == {"a": "1" * 1000}
                assert found.metadata == {"seen": "yes"}
                listed = await engine.client.list(slim.config_map, namespace=namespace)
                assert [each.data.body for each in listed if each.name == "web"] == [{}]
                with pytest.raises(InvalidArgument, match="metadata_only"):
                    await engine.client.write(listed[0])
                with pytest.raises(InvalidArgument, match="metadata_only"):
                    await engine.client.apply(slim.config_map.new("other", namespace=namespace))
                with pytest.raises(InvalidArgument, match="metadata_only"):
                    await kubernetes.update_status(engine.client, listed[0])
                await engine.client.delete(found.id)
                await until(lambda: ("web", {}) in seen)


async def test_no_data_of_such_a_type_is_sent(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program, slim = Program(), Slim()
    sent: list[object] = []

    class Recorded(GatedServer):
        async def call(self, method: str, path: str, **options: Any) -> Any:
            answer = await super().call(method, path, **options)
            sent.append(copy.deepcopy(answer))
            return answer

        @asynccontextmanager
        async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            async def recorded(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
                async for line in lines:
                    sent.append(line)
                    yield line

            async with super().watch(path, params, **options) as lines:
                yield recorded(lines)

    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        made = await client.write(program.config_map.new("web", {"data": {"a": "secret"}}, namespace=namespace))
        recorded: Any = Recorded(server)
        async with open_channel(recorded, slim.app.registry, namespace) as channel:
            slim_client = Client(channel, slim.app.registry)
            assert [len(page) async for page in slim_client.pages(slim.config_map, namespace=namespace)]
            await slim_client.read(slim.config_map, made.id)
            async with slim_client.watch(slim.config_map, namespace=namespace) as events:
                with trio.fail_after(SOON):
                    async for event in events:
                        if isinstance(event, SnapshotEnd):
                            break
    assert str(sent).count(made.uid) == 3
    assert "secret" not in str(sent)


def test_a_class_with_metadata_only_is_refused() -> None:
    @headway.message
    class Data:
        data: dict[str, str] = field(1)

    with pytest.raises(DeclarationError, match="leave the message class out"):
        kubernetes.builtin(headway.App("slim"), "v1", "ConfigMap", Data, metadata_only=True)  # type: ignore[call-overload]  # refused


async def test_a_deletion_says_what_becomes_of_owned_objects(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    program = Program()
    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        for propagation, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
            made = await client.write(program.config_map.new(propagation.lower(), namespace=namespace))
            left = await kubernetes.delete(client, made, propagation=propagation)
            assert left is not None
            assert left.is_deleting
            stored = await server.call("GET", f"{path}/{made.name}")
            assert stored["metadata"]["finalizers"] == [finalizer]
        made = await client.write(program.config_map.new("background", namespace=namespace))
        assert await kubernetes.delete(client, made, propagation="Background") is None
        assert await client.get(program.config_map, made.id) is None
        again = await client.write(program.config_map.new("background", namespace=namespace))
        assert await kubernetes.delete(client, made, propagation="Background") is None
        assert (await client.read(program.config_map, again.id)).uid == again.uid
        with pytest.raises(InvalidArgument, match="Background, Foreground, Orphan, not 'foreground'"):
            await kubernetes.delete(client, again, propagation="foreground")


async def test_a_controller_deletes_with_propagation_and_knows_it(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """C5: what is gone is gone from the cache of the next reconcile."""
    program = Program()
    gone = trio.Event()

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def cleaner(rt: headway.Runtime, request: headway.Request[kubernetes.Manifest]) -> None:
        found = rt.cache.get(program.config_map, request.id)
        if found is not None and "data" in found.data:
            await kubernetes.delete(rt, found, propagation="Background")
            assert rt.cache.get(program.config_map, request.id) is None
            gone.set()

    async with running(kube, program, namespace, tmp_path) as engine:
        await engine.client.write(program.config_map.new("web", {"data": {"a": "1"}}, namespace=namespace))
        with trio.fail_after(SOON):
            await gone.wait()


async def test_a_store_of_headway_ignores_the_propagation() -> None:
    program = Program()
    async with headway.testing.open_engine("memory:", program.app) as engine:
        made = await engine.client.write(program.config_map.new("web"))
        assert await kubernetes.delete(engine.client, made, propagation="Orphan") is None
        assert await engine.client.list(program.config_map) == []


async def test_events_can_be_watched(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """A server has them in the same etcd unless it is told otherwise."""
    install_crd(kube)
    program = Program()
    event = kubernetes.builtin(program.app, "events.k8s.io/v1", "Event")
    notes: list[str] = []
    noted = trio.Event()

    @program.app.controller(manages=event.within(namespace=namespace))
    async def listener(rt: headway.Runtime, request: headway.Request[kubernetes.Manifest]) -> None:
        found = rt.cache.get(event, request.id)
        if found is not None:
            notes.append(found.data["note"])
            noted.set()

    @program.app.controller(manages=program.website)
    async def speaker(rt: headway.Runtime, request: headway.Request[Website]) -> None:
        if (site := rt.resource(request)) is not None:
            rt.event(site, "Seen", "it was seen")

    async with connected(kube, program, namespace, tmp_path) as (client, server, _):
        await wait_served(server)
        async with running(kube, program, namespace, tmp_path):
            await client.write(program.website.new("blog", namespace=namespace))
            with trio.fail_after(SOON):
                await noted.wait()
    assert set(notes) == {"it was seen"}


@headway.message
class Tenant:
    limit: int = field(1)


async def test_a_program_has_controllers_on_a_cluster_and_on_its_own_store(
    kube: KubeServer, namespace: str, tmp_path: Path
) -> None:
    """C5, C6: each engine keeps the contract for its own objects, and writes to the other by its client."""
    program, tenants = Program(), headway.App("tenants")
    tenant = tenants.type("shop", "v1", "Tenant", Tenant)
    clients: dict[str, headway.Client] = {}

    @tenants.controller(manages=tenant)
    async def limits(rt: headway.Runtime, request: headway.Request[Tenant]) -> None:
        found = rt.resource(request)
        if found is None:
            await clients["cluster"].delete(program.config_map.id(request.id.name, namespace=namespace))
            return
        wanted = program.config_map.new(found.name, {"data": {"limit": str(found.data.limit)}}, namespace=namespace)
        await clients["cluster"].apply(wanted, manager="limits")

    @program.app.controller(manages=program.config_map.within(namespace=namespace))
    async def spending(rt: headway.Runtime, request: headway.Request[kubernetes.Manifest]) -> None:
        found = rt.cache.get(program.config_map, request.id)
        if found is not None and "spend" in found.metadata:
            known = await clients["own"].read(tenant, found.name)
            if known.data.limit != int(found.metadata["spend"]):
                known.data.limit = int(found.metadata["spend"])
                await clients["own"].write(known)

    async with connected(kube, program, namespace, tmp_path) as (person, _, _):
        id = program.config_map.id("shop", namespace=namespace)

        async def limit() -> str | None:
            found = await person.get(program.config_map, id)
            return None if found is None else found.data["data"]["limit"]

        async def until_it_is(expected: str | None) -> None:
            while True:
                if await limit() == expected:
                    return
                await trio.sleep(0.02)

        async with running(kube, program, namespace, tmp_path) as cluster:
            clients["cluster"] = cluster.client
            async with headway.open_engine(f"sqlite:{tmp_path}/own.db", tenants) as own:
                clients["own"] = own.client
                made = await own.client.write(tenant.new("shop", Tenant(limit=3)))
                with trio.fail_after(SOON):
                    await until_it_is("3")
                    while "spend" not in (found := await person.read(program.config_map, id)).metadata:
                        found.metadata["spend"] = "2"
                        # An apply creates an object by two writes.
                        with suppress(Conflict):
                            await person.write(found)
                    await until_it_is("2")
                    await own.client.delete(made)
                    await until_it_is(None)
