"""Two stock Envoys are the sidecars of a service and its caller, with what hand-made proxy states are translated to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from catalog.messages import Health, Protocol, ServiceEndpoints
from mesh.messages import ProxyState
from mesh.messages import proxy_state as p
from mesh.xds import Resource, Snapshot, Snapshots
from mesh.xds.translation import assign, joined, leaf_secret, roots_secret, translate, trusted
from tests.mesh.xds.authority import Authority
from tests.mesh.xds.real_envoy import NO_ENVOY, backend, find_envoy, free_port, running, served, until
from tests.mesh.xds.state import (
    LOCAL,
    allowing,
    dynamic,
    group,
    outbound,
    server,
    service_endpoints,
    spiffe,
    to_cluster,
)

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)]
REF = {port: p.EndpointRef(mesh_port="mesh", route_port=port) for port in ("http", "tcp")}


class Mesh:
    """What the tests publish: states, endpoints and certificates."""

    def __init__(self) -> None:
        self.source = Snapshots()
        self.authority = Authority()
        self.roots = [self.authority.root]
        self.leaves: dict[str, tuple[str, str]] = {}

    def leaf(self, name: str) -> tuple[str, str]:
        if name not in self.leaves:
            self.leaves[name] = self.authority.leaf(spiffe(name))
        return self.leaves[name]

    def publish(
        self, name: str, state: ProxyState, endpoints: Mapping[str, tuple[str, ServiceEndpoints]] | None = None
    ) -> None:
        made = translate(state)
        accepted = trusted(state.clusters)
        for cluster, (port, found) in (endpoints or {}).items():
            known = frozenset(each.rpartition("/")[2] for each in accepted[cluster][cluster]) or {"api"}
            made.append(assign(cluster, REF[port], found, known.__contains__).message)
        made += [leaf_secret(name, *self.leaf(name)), roots_secret(LOCAL, self.roots)]
        self.source[name] = Snapshot(map(Resource.of, made))

    def fail_over(
        self, name: str, port: int, members: Mapping[str, ServiceEndpoints | None], trusts: Mapping[str, str]
    ) -> None:
        """Let a caller reach services, each after the one before it, at a port. It trusts an identity for each."""
        groups = [group(each, name, "http", [spiffe(trusts[each])] if each in trusts else []) for each in members]
        cluster = p.Cluster(
            name="out", protocol=Protocol.PROTOCOL_HTTP, failover_group=p.FailoverGroup(endpoint_groups=groups)
        )
        state = ProxyState(
            listeners=[outbound("out", port, route="out")], clusters={"out": cluster}, routes={"out": to_cluster("out")}
        )
        parts = [assign(each, REF["http"], found, lambda _: True) for each, found in members.items()]
        made = [*translate(state), joined("out", parts).message]
        made += [leaf_secret(name, *self.leaf(name)), roots_secret(LOCAL, self.roots)]
        self.source[name] = Snapshot(map(Resource.of, made))


@asynccontextmanager
async def sidecars(folder: Path, control: str, *names: str) -> AsyncIterator[None]:
    """Run an Envoy for each name."""
    (folder / names[0]).mkdir()
    async with running(folder / names[0], control, names[0]):
        if names[1:]:
            async with sidecars(folder, control, *names[1:]):
                yield
        else:
            yield


async def echo(port: int) -> bytes:
    """Send a line over TCP and return what comes back, which is nothing if the connection is closed."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        try:
            await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            return bytes(await stream.receive_some())
        except trio.BrokenResourceError:
            return b""


async def test_mutual_tls_and_permissions_of_requests_and_connections(tmp_path: Path) -> None:
    """Callers are told apart by their certificates. Each change is in effect within a second."""
    mesh, inbound, http, tcp = Mesh(), free_port(), free_port(), free_port()
    async with backend() as app, served(mesh.source) as control:

        def serve(permitted: p.TrafficPermissions) -> None:
            mesh.publish("api", server("api", inbound, http=app, tcp=app, permitted=permitted))

        def call(expected: list[str]) -> None:
            clusters = {
                "http": dynamic("http", "web", "http", expected),
                "tcp": dynamic("tcp", "web", "tcp", expected, Protocol.PROTOCOL_TCP),
            }
            state = ProxyState(
                listeners=[outbound("http", http, route="http"), outbound("tcp", tcp, cluster="tcp")],
                clusters=clusters,
                routes={"http": to_cluster("http")},
            )
            found = service_endpoints(inbound)
            mesh.publish("web", state, {"http": ("http", found), "tcp": ("tcp", found)})

        url = f"http://127.0.0.1:{http}/"
        serve(allowing("web"))
        call([spiffe("api")])
        async with sidecars(tmp_path, control, "api", "web"):
            await until(url, lambda got: got.text == str(app))
            assert (await echo(tcp)).startswith(b"HTTP/1.1 200")
            # Plain text does not pass.
            assert await echo(inbound) == b""
            serve(allowing("other"))
            await until(url, lambda got: got.status_code == 403, 1)
            await closed(tcp)
            serve(allowing("web"))
            await until(url, lambda got: got.text == str(app), 1)
            await opened(tcp)
            serve(allowing())
            await until(url, lambda got: got.status_code == 403, 1)
            await closed(tcp)
            denied = allowing("web")
            denied.deny_permissions = allowing("web").allow_permissions
            serve(denied)
            await until(url, lambda got: got.status_code == 403, 1)
            serve(allowing("web"))
            await until(url, lambda got: got.text == str(app), 1)
            # The server has an identity that the caller does not expect.
            call([spiffe("other")])
            await until(url, lambda got: got.status_code == 503, 1)
            call([])
            await until(url, lambda got: got.status_code == 503, 1)
            await closed(tcp)
            call([spiffe("other"), spiffe("api")])
            await until(url, lambda got: got.text == str(app), 1)
            assert mesh.source.rejections == {}


async def test_failover_right_after_the_cluster_of_a_new_proxy_was_replaced(tmp_path: Path) -> None:
    """Each of several proxies in turn sends to the second service once no endpoint of the first is healthy.

    It trusts each service with that one's identity only.
    """
    mesh, inbound = Mesh(), {"api": free_port(), "backup": free_port()}
    trusts = {each: each for each in inbound}
    async with backend() as api, backend() as backup, served(mesh.source) as control:
        for name, app in (("api", api), ("backup", backup)):
            mesh.publish(name, server(name, inbound[name], http=app, permitted=allowing("web")))
        healthy = {each: service_endpoints(port) for each, port in inbound.items()}
        failing = {**healthy, "api": service_endpoints(inbound["api"], health=Health.HEALTH_CRITICAL)}
        async with sidecars(tmp_path, control, *inbound):
            for number in range(6):
                port, folder = free_port(), tmp_path / str(number)
                url = f"http://127.0.0.1:{port}/"
                folder.mkdir()
                # The first service has no endpoints and no identities yet.
                mesh.fail_over("web", port, {**healthy, "api": None}, {"backup": "backup"})
                async with running(folder, control) as admin:
                    await until(f"{admin}/ready", lambda _: True)
                    mesh.fail_over("web", port, healthy, trusts)
                    await until(url, lambda got: got.text == str(api))
                    mesh.fail_over("web", port, failing, trusts)
                    await until(url, lambda got: got.text == str(backup), 2)
                    mesh.fail_over("web", port, failing, {**trusts, "backup": "api"})
                    await until(url, lambda got: got.status_code == 503, 2)
                    mesh.fail_over("web", port, failing, {"api": "backup", "backup": "backup"})
                    await until(url, lambda got: got.text == str(backup), 2)
                    mesh.fail_over("web", port, healthy, trusts)
                    await until(url, lambda got: got.text == str(api), 2)
            assert mesh.source.rejections == {}


async def closed(port: int) -> None:
    await answers(port, closes=True)


async def opened(port: int) -> None:
    await answers(port, closes=False)


async def answers(port: int, *, closes: bool) -> None:
    """Connect until the connection is closed, or is not, within a second. Envoy offers nothing else to wait for."""
    with trio.fail_after(1):
        while True:
            if (await echo(port) == b"") is closes:
                return
            await trio.sleep(0.01)
