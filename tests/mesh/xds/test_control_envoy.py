"""Stock Envoys are sidecars of templates that the control plane sends them. No request that should succeed fails."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from catalog.messages import Health, Protocol, Service, ServiceEndpoints, ServicePort
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD, WORKLOAD_IDENTITY
from mesh.certificates import Leaves
from mesh.certificates.leaves import utc_now
from mesh.certificates.signing import Signer
from mesh.control import Proxies, proxies
from mesh.control.conditions import ANSWERED, KEY
from mesh.messages import ProxyState, ProxyStateTemplate
from mesh.messages import proxy_state as p
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import DeltaStream, Kind, Response
from tests.mesh.xds.real_envoy import NO_ENVOY, Load, backend, find_envoy, free_port, running, until, until_true
from tests.mesh.xds.state import LOCAL, allowing, group, outbound, server, service_endpoints, spiffe, to_cluster

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)]
LIFETIME = datetime.timedelta(seconds=20)
PORTS = [
    ServicePort(target_port="http", protocol=Protocol.PROTOCOL_HTTP),
    ServicePort(target_port="mesh", protocol=Protocol.PROTOCOL_MESH),
]
MEMBERS = {"failover-target~0~api": "api", "failover-target~1~api": "backup"}


def signer() -> Signer:
    return Signer.new("cluster.local", now=utc_now(), lifetime=datetime.timedelta(days=1))


class Mesh:
    """A control plane, with what outlives its end: the store, the authority and the port."""

    def __init__(self, folder: Path) -> None:
        self._store = f"sqlite:{folder / 'mesh.db'}"
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self.leaves = Leaves()
        self.signer = signer()
        self.trust(self.signer)
        self.connected = Proxies()

    def trust(self, *roots: Signer, signs: Signer | None = None) -> None:
        self.leaves.trust(tuple(each.certificate for each in roots), signs or self.signer, LIFETIME)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[headway.Client]:
        types = headway.App("types")
        for each in (PROXY_STATE_TEMPLATE, SERVICE_ENDPOINTS, SERVICE, WORKLOAD):
            types.add_type(each)
        self.connected = Proxies()
        network = headway.Network([self.address], insecure=True)
        extension = proxies(self.leaves, connected=self.connected)
        async with headway.open_engine(self._store, types, network=network, extensions=[extension]) as engine:
            yield engine.client


async def publish(client: headway.Client, name: str, state: ProxyState) -> None:
    """Store the template of the workload of an identity."""
    state.identity = WORKLOAD_IDENTITY.id(name).reference()
    data = ProxyStateTemplate(proxy_state=state)
    for cluster, service in MEMBERS.items():
        if "api" in state.clusters:
            id = SERVICE_ENDPOINTS.id(service).message()
            data.required_endpoints[cluster] = p.EndpointRef(id=id, mesh_port="mesh", route_port="http")
    data.required_leaf_certificates[name] = p.LeafCertificateRef(name=name, namespace="default", partition="default")
    data.required_trust_bundles[LOCAL] = p.TrustBundleRef(peer=LOCAL, trust_domain="cluster.local")
    await client.apply(PROXY_STATE_TEMPLATE.new(name, data))


async def put(client: headway.Client, name: str, endpoints: ServiceEndpoints) -> None:
    await client.apply(SERVICE.new(name, Service(ports=PORTS)))
    await client.apply(SERVICE_ENDPOINTS.new(name, endpoints))


def caller(port: int, path: p.PathMatch | None = None, seconds: int = 5) -> ProxyState:
    """Return the state of web, which calls api, and backup if that fails.

    With another number of seconds to connect, its clusters are others, and it opens new connections.
    """
    groups = [group(name, "web", "http", [spiffe(service)]) for name, service in MEMBERS.items()]
    for each in groups:
        assert each.dynamic is not None
        assert each.dynamic.config is not None
        each.dynamic.config.connect_timeout = datetime.timedelta(seconds=seconds)
    cluster = p.Cluster(
        name="api", protocol=Protocol.PROTOCOL_HTTP, failover_group=p.FailoverGroup(endpoint_groups=groups)
    )
    route = to_cluster("api")
    if path is not None:
        destination = p.RouteDestination(cluster=p.DestinationCluster(name="api"))
        rule = p.RouteRule(match=p.RouteMatch(path_match=path), destination=destination)
        route.virtual_hosts[0].route_rules.insert(0, rule)
    return ProxyState(clusters={"api": cluster}, listeners=[outbound("api", port, route="api")], routes={"api": route})


@asynccontextmanager
async def fleet(
    folder: Path, mesh: Mesh, client: headway.Client
) -> AsyncIterator[tuple[str, int, int, dict[str, int]]]:
    """Run three sidecars. Yield the URL at which web calls api, the two backends, and the port of web's listener."""
    async with AsyncExitStack() as stack:
        apps = {each: await stack.enter_async_context(backend()) for each in ("api", "backup")}
        inbound = {each: free_port() for each in apps}
        for name, app in apps.items():
            await publish(client, name, server(name, inbound[name], http=app, permitted=allowing("web")))
            await put(client, name, service_endpoints(inbound[name], identity=name))
        port = free_port()
        await publish(client, "web", caller(port))
        for name in ("api", "backup", "web"):
            (folder / name).mkdir()
            await stack.enter_async_context(running(folder / name, mesh.address, name))
        url = f"http://127.0.0.1:{port}/"
        await until(url, lambda got: got.text == str(apps["api"]))
        yield url, apps["api"], apps["backup"], {**inbound, "web": port}


async def answer_of(client: headway.Client, reason: str) -> str:
    """Wait until the status of web has the answer of its proxy. Return the words."""
    with trio.fail_after(10):
        while True:
            template = await client.read(PROXY_STATE_TEMPLATE, "web")
            status = template.status.get(KEY)
            for each in status.conditions if status is not None else ():
                if each.type == ANSWERED and each.reason == reason:
                    assert status is not None
                    if status.observed_generation == template.generation:
                        return each.message
            await trio.sleep(0.01)


async def test_failover_and_a_rotation_of_the_root_under_load(tmp_path: Path) -> None:
    """One request after another: none fails."""
    mesh = Mesh(tmp_path)
    async with mesh.served() as client, trio.open_nursery() as nursery:
        nursery.start_soon(mesh.leaves.renew)
        async with fleet(tmp_path, mesh, client) as (url, api, backup, ports), Load.on(url) as load:
            await load.more(50, str(api))
            # Two of three are gone, and the third has all requests.
            partly = service_endpoints(ports["api"], identity="api")
            partly.endpoints += service_endpoints(1, 2, identity="api", health=Health.HEALTH_CRITICAL).endpoints
            await put(client, "api", partly)
            await load.more(100)
            assert load.answers[str(backup)] == 0
            await put(client, "api", service_endpoints(ports["api"], identity="api", health=Health.HEALTH_MAINTENANCE))
            with trio.fail_after(2):
                await load.more(20, str(backup))
            await put(client, "api", service_endpoints(ports["api"], identity="api"))
            with trio.fail_after(2):
                await load.more(20, str(api))
            old, new = mesh.signer, signer()
            mesh.trust(old, new, signs=old)
            await everywhere(mesh, old, new)
            before = {each: mesh.leaves._held[each].leaf for each in list(mesh.leaves._held)}
            assert len(before) == 3
            mesh.trust(old, new, signs=new)
            await until_true(lambda: all(mesh.leaves._held[each].leaf is not leaf for each, leaf in before.items()))
            await everywhere(mesh, old, new)
            await publish(client, "web", caller(ports["web"], seconds=6))
            await everywhere(mesh, old, new)
            await load.more(50)
            mesh.trust(new, signs=new)
            await everywhere(mesh, new)
            await publish(client, "web", caller(ports["web"], seconds=7))
            await everywhere(mesh, new)
            await load.more(50)
            assert load.failures == []
        nursery.cancel_scope.cancel()


async def everywhere(mesh: Mesh, *roots: Signer) -> None:
    await until_true(lambda: mesh.connected.all_have(tuple(each.certificate for each in roots)))


async def test_w9_words_of_envoy_are_in_the_status_until_the_template_is_repaired(tmp_path: Path) -> None:
    """What it has goes on meanwhile."""
    mesh = Mesh(tmp_path)
    async with mesh.served() as client, fleet(tmp_path, mesh, client) as (url, api, _, ports):
        await answer_of(client, "ProxyAcceptedResources")
        async with Load.on(url) as load:
            await publish(client, "web", caller(ports["web"], p.PathMatch(regex="(")))
            words = await answer_of(client, "ProxyRejectedResources")
            assert words.startswith("route api: ")
            assert "missing ): (" in words
            await load.more(20, str(api))
            await publish(client, "web", caller(ports["web"], p.PathMatch(regex="/.*")))
            await answer_of(client, "ProxyAcceptedResources")
            await load.more(20, str(api))
            assert load.failures == []


async def test_control_plane_ends_and_comes_back_and_sends_only_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = Mesh(tmp_path)
    sent: list[Response] = []
    take = DeltaStream.take

    def recorded(self: DeltaStream) -> Response | None:
        if (response := take(self)) is not None:
            sent.append(response)
        return response

    async with trio.open_nursery() as nursery:
        first, clients, ended = trio.CancelScope(), list[headway.Client](), trio.Event()

        async def serve_first() -> None:
            with first:
                async with mesh.served() as client:
                    clients.append(client)
                    await trio.sleep_forever()
            ended.set()

        nursery.start_soon(serve_first)
        await until_true(lambda: bool(clients))
        async with fleet(tmp_path, mesh, clients[0]) as (url, api, backup, ports), Load.on(url) as load:
            await load.more(20)
            first.cancel()
            await ended.wait()
            await load.more(50, str(api))
            monkeypatch.setattr(DeltaStream, "take", recorded)
            async with mesh.served() as again:
                await until_true(lambda: len(list(mesh.connected)) == 3, 60)
                await everywhere(mesh, mesh.signer)
                assert sent == []
                await put(again, "api", service_endpoints(ports["api"], identity="api", health=Health.HEALTH_CRITICAL))
                await load.more(20, str(backup))
                assert [(each.kind, [one.name for one in each.resources]) for each in sent] == [
                    (Kind.ENDPOINTS, ["api"])
                ]
            assert load.failures == []
