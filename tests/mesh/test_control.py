"""Each connected proxy gets what its template needs, and its template says what became of it (XC-1 to XC-7)."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

import headway
from catalog.messages import Health, Protocol, Service, ServiceEndpoints, ServicePort
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD, WORKLOAD_IDENTITY
from headway.client import Upserted
from headway.engine import Extension, Host
from mesh.certificates import IdentityKey, Leaf
from mesh.control import Proxies, proxies
from mesh.control.conditions import ACCEPTED, ANSWERED, KEY
from mesh.control.extension import Control
from mesh.messages import ProxyState, ProxyStateTemplate
from mesh.messages import proxy_state as p
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import AdsService, Kind
from mesh.xds import messages as m
from tests.mesh.xds.sidecar import Sidecar
from tests.mesh.xds.state import LOCAL, dynamic, group, outbound, service_endpoints, spiffe, to_cluster

PORTS = [
    ServicePort(target_port="http", protocol=Protocol.PROTOCOL_HTTP),
    ServicePort(target_port="mesh", protocol=Protocol.PROTOCOL_MESH),
]
LATER = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Fake:
    """Certificates that are texts.

    Attributes:
        bundle: the roots.
        serial: the number of each identity's certificate.
        asked: how often a certificate was asked for.
        released: the identities that are needed no more.
        gate: certificates are signed once it is set.
    """

    def __init__(self) -> None:
        self.bundle: tuple[str, ...] = ("root-1\n",)
        self.serial: dict[IdentityKey, Leaf] = {}
        self.released: list[str] = []
        self.gate = trio.Event()
        self.gate.set()
        self.broken = False
        self._changed: list[Callable[[IdentityKey | None], None]] = []

    def roots(self) -> tuple[str, ...]:
        return self.bundle

    async def leaf(self, identity: IdentityKey) -> Leaf:
        await self.gate.wait()
        if self.broken:
            raise OSError("the key of the authority is -----BEGIN SECRET-----")
        if identity not in self.serial:
            self.renew(identity.name, 1)
        return self.serial[identity]

    def release(self, identity: IdentityKey) -> None:
        self.released.append(identity.name)
        self.serial.pop(identity, None)

    def subscribe(self, changed: Callable[[IdentityKey | None], None]) -> None:
        self._changed.append(changed)

    def renew(self, name: str, number: int) -> None:
        identity = IdentityKey("default", "default", name)
        self.serial[identity] = Leaf(spiffe(name), f"{name}-{number}", "KEY", LATER)
        for each in self._changed:
            each(identity)

    def replace_roots(self, *roots: str) -> None:
        self.bundle = roots
        for each in self._changed:
            each(None)


@dataclass
class Plane:
    """A control plane."""

    engine: headway.Engine
    client: headway.Client
    service: AdsService
    fake: Fake
    connected: Proxies
    commits: list[Any] = field(default_factory=list)

    async def template(self, name: str = "web") -> headway.Resource[ProxyStateTemplate]:
        return await self.client.read(PROXY_STATE_TEMPLATE, PROXY_STATE_TEMPLATE.id(name))

    async def conditions(self, name: str = "web") -> dict[str, tuple[str, str, str]]:
        await self.engine.wait_idle()
        status = (await self.template(name)).status.get(KEY)
        found = [] if status is None else status.conditions
        return {each.type: (each.state.name, each.reason, each.message) for each in found}

    async def put(self, name: str, endpoints: ServiceEndpoints) -> None:
        await self.client.apply(SERVICE.new(name, Service(ports=PORTS)))
        await self.client.apply(SERVICE_ENDPOINTS.new(name, endpoints))

    async def publish(self, name: str = "web", *services: str, identity: str = "web", accepted: str = "api") -> None:
        await self.client.apply(PROXY_STATE_TEMPLATE.new(name, made(identity, *services, accepted=accepted)))

    async def settled(self) -> None:
        await self.engine.wait_idle()
        await trio.testing.wait_all_tasks_blocked()
        await self.engine.wait_idle()


def made(identity: str, *services: str, accepted: str = "api") -> ProxyStateTemplate:
    """Return the template of a proxy that calls services."""
    state = ProxyState(identity=WORKLOAD_IDENTITY.id(identity).reference())
    template = ProxyStateTemplate(proxy_state=state)
    for number, each in enumerate(services):
        state.clusters[each] = dynamic(each, identity, "http", [spiffe(accepted)])
        state.listeners.append(outbound(each, 10_000 + number, route=each))
        state.routes[each] = to_cluster(each)
        id = SERVICE_ENDPOINTS.id(each).message()
        template.required_endpoints[each] = p.EndpointRef(id=id, mesh_port="mesh", route_port="http")
    template.required_leaf_certificates[identity] = p.LeafCertificateRef(
        name=identity, namespace="default", partition="default"
    )
    template.required_trust_bundles[LOCAL] = p.TrustBundleRef(peer=LOCAL, trust_domain="cluster.local")
    return template


@asynccontextmanager
async def plane(fake: Fake | None = None) -> AsyncIterator[Plane]:
    certificates, connected, hosts = fake or Fake(), Proxies(), list[Host]()

    async def note(host: Host) -> None:
        await trio.lowlevel.checkpoint()
        hosts.append(host)

    extension = proxies(certificates, connected=connected)
    types = headway.App("types")
    for each in (PROXY_STATE_TEMPLATE, SERVICE_ENDPOINTS, SERVICE, WORKLOAD):
        types.add_type(each)
    async with headway.open_engine("memory:", types, extensions=[extension, Extension(openings=[note])]) as engine:
        service = extension.services[0](hosts[0], None)
        assert isinstance(service, AdsService)
        yield Plane(engine, engine.client, service, certificates, connected)


def weights(one: Sidecar, cluster: str = "api") -> dict[int, str]:
    """Return the health of each port that a proxy has."""
    if cluster not in one.has[Kind.ENDPOINTS]:
        return {}
    groups = one.has[Kind.ENDPOINTS][cluster].endpoints
    return {
        each.endpoint.address.socket_address.port_value: m.HealthStatus(each.health_status).name
        for one in groups
        for each in one.lb_endpoints
    }


async def test_scenario_21_health_of_an_endpoint_reaches_the_proxy_and_changes_nothing_else() -> None:
    async with plane() as it:
        await it.put("api", service_endpoints(1, 2))
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: weights(web) == {1: "HEALTHY", 2: "HEALTHY"})
            await it.settled()
            before, template = web.responses, await it.template()
            await it.put("api", service_endpoints(1, 2, health=Health.HEALTH_CRITICAL))
            await web.until(lambda: weights(web) == {1: "UNHEALTHY", 2: "UNHEALTHY"})
            await it.settled()
            assert web.responses == before + 1
            assert await it.template() == template


async def test_w4_each_member_of_a_failover_group_has_its_own_endpoints_and_identities() -> None:
    """A member without endpoints holds no place back, and an identity of another member is not accepted."""
    template = made("web")
    assert template.proxy_state is not None
    groups: list[p.EndpointGroup] = []
    for name, service in (("first", "api"), ("second", "gone"), ("third", "backup")):
        groups.append(group(name, "web", "http", [spiffe(service)]))
        id = SERVICE_ENDPOINTS.id(service).message()
        template.required_endpoints[name] = p.EndpointRef(id=id, mesh_port="mesh", route_port="http")
    template.proxy_state.clusters["api"] = p.Cluster(
        name="api", protocol=Protocol.PROTOCOL_HTTP, failover_group=p.FailoverGroup(endpoint_groups=groups)
    )
    async with plane() as it:
        await it.put("api", service_endpoints(1, identity="api"))
        await it.put("backup", service_endpoints(2, identity="backup"))
        await it.client.apply(PROXY_STATE_TEMPLATE.new("web", template))
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: weights(web) == {1: "HEALTHY", 2: "HEALTHY"})
            held = web.has[Kind.ENDPOINTS]["api"].endpoints
            assert [(each.priority, len(each.lb_endpoints)) for each in held] == [(0, 1), (1, 0), (2, 1)]
            assert "service gone do not exist" in (await it.conditions())[ACCEPTED][2]
            await it.put("backup", service_endpoints(2, identity="api"))
            await web.until(lambda: weights(web) == {1: "HEALTHY"})


async def test_scenario_22_w8_missing_or_unusable_endpoints_hold_nothing_else_back() -> None:
    """The condition names them. Consul pushes nothing."""
    async with plane() as it:
        await it.put("api", service_endpoints(1))
        await it.put("named", service_endpoints(2, host="db.example"))
        await it.publish("web", "api", "gone", "named")
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: weights(web) == {1: "HEALTHY"} and len(web.has[Kind.LISTENER]) == 3)
            state, reason, message = (await it.conditions())[ACCEPTED]
            assert (state, reason) == ("FALSE", "ProxyStateEndpointReferenceReadError")
            assert "service gone do not exist" in message
            assert "cluster named: left out endpoints: 'db.example' is not an IP address" in message
            await it.put("gone", service_endpoints(3))
            await it.put("named", service_endpoints(4))
            await web.until(lambda: weights(web, "gone") == {3: "HEALTHY"} and weights(web, "named") == {4: "HEALTHY"})
            assert (await it.conditions())[ACCEPTED][:2] == ("TRUE", "ProxyStateReferencesComputed")


async def test_scenario_23_new_certificates_and_roots_are_sent_alone() -> None:
    async with plane() as it:
        await it.publish("web", "api")
        await it.put("api", service_endpoints(1))
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: len(web.has[Kind.LISTENER]) == 1 and bool(weights(web)))
            await it.settled()
            before = web.responses
            it.fake.renew("web", 2)
            secrets = web.has[Kind.SECRET]
            await web.until(lambda: secrets["leaf:web"].tls_certificate.certificate_chain.inline_string == "web-2")
            it.fake.replace_roots("root-1\n", "root-2\n")
            bundle = "root-1\nroot-2\n"
            await web.until(lambda: secrets["roots:local"].validation_context.trusted_ca.inline_string == bundle)
            await it.settled()
            assert web.responses == before + 2
            # Nobody else's certificate changes anything here.
            it.fake.renew("other", 2)
            await it.settled()
            assert web.responses == before + 2


async def test_roots_are_everywhere_once_each_proxy_has_accepted_them() -> None:
    """One that rejects them, or has not answered, has not."""
    async with plane() as it:
        both = ("root-1\n", "root-2\n")
        await it.publish("web-1", "api")
        await it.publish("web-2", "api")
        assert it.connected.all_have(both), "there is no proxy"
        async with Sidecar.connected(it.service, "web-1") as one, Sidecar.connected(it.service, "web-2") as two:
            for each in (one, two):
                await each.until(lambda each=each: "leaf:web" in each.has[Kind.SECRET])  # type: ignore[misc]
            await it.settled()
            assert it.connected.all_have(("root-1\n",))
            assert not it.connected.all_have(both)
            two.rejects = {(Kind.SECRET, "roots:local"): "no such roots"}
            it.fake.replace_roots(*both)
            await it.settled()
            assert not it.connected.all_have(both)
            assert not it.connected.all_have(("root-1\n",))
        async with Sidecar.connected(it.service, "web-1") as one:
            await one.until(lambda: "leaf:web" in one.has[Kind.SECRET])
            await it.settled()
            assert it.connected.all_have(both)


async def test_roots_are_awaited_from_a_proxy_that_has_not_asked_for_them_yet() -> None:
    """It has answered everything else, such as after a reconnect. One that needs none is not waited for."""
    roots = ("root-1\n",)
    async with plane() as it:
        await it.publish("plain")
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "plain", asks=[Kind.CLUSTER]):
            await it.settled()
            assert it.connected.all_have(roots)
            async with Sidecar.connected(it.service, "web", asks=[Kind.CLUSTER]) as web:
                await web.until(lambda: "api" in web.has[Kind.CLUSTER])
                await it.settled()
                assert not it.connected.all_have(roots)
                web.ask(Kind.SECRET)
                await web.until(lambda: "roots:local" in web.has[Kind.SECRET])
                await it.settled()
                assert it.connected.all_have(roots)


async def test_scenario_24_certificate_is_released_with_the_template_and_with_the_last_proxy() -> None:
    async with plane() as it:
        await it.publish("web")
        await it.publish("web-2")
        async with Sidecar.connected(it.service, "web"):
            async with Sidecar.connected(it.service, "web-2") as second:
                await second.until(lambda: "leaf:web" in second.has[Kind.SECRET])
            await it.settled()
            assert it.fake.released == []
            await it.client.delete(PROXY_STATE_TEMPLATE.id("web"))
            await it.settled()
            assert it.fake.released == ["web"]


async def test_scenario_25_proxy_that_connects_is_served_without_an_event_of_a_resource() -> None:
    async with plane() as it:
        await it.publish("web", "api")
        await it.engine.wait_idle()
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: list(web.has[Kind.CLUSTER]) == ["api"])


async def test_scenario_26_w6_proxy_that_is_gone_leaves_nothing_behind() -> None:
    async with plane() as it:
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])
        await it.settled()
        assert list(it.connected) == []
        assert it.fake.released == ["web"]
        await it.put("api", service_endpoints(1))
        await it.settled()
        assert it.fake.serial == {}, "nothing is signed for it"


async def test_w5_end_of_a_replaced_stream_leaves_its_successor_alone() -> None:
    async with plane() as it:
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as old:
            await old.until(lambda: "leaf:web" in old.has[Kind.SECRET])
            async with Sidecar.connected(it.service, "web") as new:
                await new.until(lambda: "leaf:web" in new.has[Kind.SECRET])
                old.close()
                await old.ended.wait()
                await it.settled()
                await it.put("api", service_endpoints(1))
                await new.until(lambda: weights(new) == {1: "HEALTHY"})
                assert it.fake.released == []


async def test_w9_rejection_is_in_the_status_until_it_is_repaired() -> None:
    """In the proxy's words. The rest is in effect."""
    async with plane() as it:
        await it.publish("web", "api")
        await it.put("api", service_endpoints(1))
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: bool(web.has[Kind.LISTENER]))
            await it.settled()
            assert (await it.conditions())[ANSWERED][:2] == ("TRUE", "ProxyAcceptedResources")
            web.rejects = {(Kind.CLUSTER, "other"): "no such cluster"}
            await it.put("other", service_endpoints(2))
            await it.publish("web", "api", "other")
            await web.until(lambda: "other" in web.has[Kind.ENDPOINTS] or bool(weights(web)))
            await it.settled()
            assert (await it.conditions())[ANSWERED] == (
                "FALSE",
                "ProxyRejectedResources",
                "cluster other: no such cluster",
            )
            assert (await it.conditions())[ACCEPTED][0] == "TRUE"
            web.rejects = {}
            await it.publish("web", "api", "third")
            await web.until(lambda: "third" in web.has[Kind.LISTENER])
            await it.settled()
            assert (await it.conditions())[ANSWERED][:2] == ("TRUE", "ProxyAcceptedResources")


async def test_w16_endpoints_of_an_identity_wait_for_the_template_that_accepts_it() -> None:
    async with plane() as it:
        await it.publish("web", "api")
        await it.put("api", service_endpoints(1))
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: weights(web) == {1: "HEALTHY"})
            new = service_endpoints(2, identity="api-v2")
            await it.put("api", ServiceEndpoints(endpoints=[*service_endpoints(1).endpoints, *new.endpoints]))
            await it.settled()
            assert weights(web) == {1: "HEALTHY"}
            await it.publish("web", "api", accepted="api-v2")
            await web.until(lambda: weights(web) == {2: "HEALTHY"})


async def test_w17_proxies_wait_for_their_certificates_and_are_not_refused() -> None:
    async with plane() as it:
        it.fake.gate = trio.Event()
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            await trio.testing.wait_all_tasks_blocked()
            assert web.responses == 0
            it.fake.gate.set()
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])


async def test_nothing_is_sent_while_roots_are_unknown_and_the_proxy_keeps_what_it_has() -> None:
    async with plane() as it:
        it.fake.bundle = ()
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            await it.settled()
            assert web.responses == 0
            assert (await it.conditions())[ACCEPTED][:2] == ("FALSE", "ProxyStateTrustBundleFetchFailed")
            it.fake.replace_roots("root-1\n")
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])


async def test_failed_certificate_is_in_the_status_without_its_words() -> None:
    """They may hold a key. The next attempt serves the proxy."""
    async with plane() as it:
        it.fake.broken = True
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            with trio.fail_after(5):
                async with it.client.watch(PROXY_STATE_TEMPLATE) as events:
                    async for event in events:
                        if isinstance(event, Upserted) and (status := event.resource.status.get(KEY)):
                            break
            assert status is not None
            (accepted, _) = status.conditions
            assert (accepted.reason, accepted.message) == (
                "ProxyStateLeafFetchError",
                "no certificate of web: OSError",
            )
            it.fake.broken = False
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (lambda it: setattr(it, "proxy_state", None), "ProxyStateNil", "identity is missing"),
        (
            lambda it: it.required_leaf_certificates.update(admin=p.LeafCertificateRef(name="admin")),
            "ProxyStateLeafWatchSetupError",
            "'admin', 'web': a proxy needs the one of its identity web",
        ),
        (
            lambda it: it.required_trust_bundles.update(peer=p.TrustBundleRef(peer="peer")),
            "ProxyStateTrustBundleFetchFailed",
            "'local', 'peer': only 'local' is known",
        ),
        (lambda it: it.proxy_state.clusters.clear(), "ProxyStatePushChangeFailed", "no cluster has the name 'api'"),
        (
            lambda it: it.required_trust_bundles.clear(),
            "ProxyStatePushChangeFailed",
            "needs the secret 'roots:local': the template requires leaf:web",
        ),
    ],
)
async def test_template_that_cannot_be_completed_says_why(
    change: Callable[[ProxyStateTemplate], None], reason: str, words: str
) -> None:
    """No other identity's certificate is ever sent. The proxy keeps what it has, and its stream (XS-11)."""
    async with plane() as it:
        data = made("web", "api")
        change(data)
        await it.client.apply(PROXY_STATE_TEMPLATE.new("web", data))
        async with Sidecar.connected(it.service, "web") as web:
            await it.settled()
            state, found, message = (await it.conditions())[ACCEPTED]
            assert (state, found) == ("FALSE", reason)
            assert words in message
            assert web.responses == 0


async def test_xc3_cluster_without_a_reference_has_no_endpoints_and_holds_nothing_back() -> None:
    """A reference that no service can have counts as a missing one, and one without a cluster is not sent."""
    async with plane() as it:
        data = made("web", "api", "other")
        del data.required_endpoints["api"]
        id = SERVICE_ENDPOINTS.id("other").message()
        id.name = "Not_a_name"
        data.required_endpoints["other"] = p.EndpointRef(id=id, mesh_port="mesh", route_port="http")
        data.required_endpoints["unused"] = p.EndpointRef()
        await it.client.apply(PROXY_STATE_TEMPLATE.new("web", data))
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: len(web.has[Kind.LISTENER]) == 2)
            assert {name: each.endpoints for name, each in web.has[Kind.ENDPOINTS].items()} == {"api": [], "other": []}
            assert "cluster other: the endpoints of service Not_a_name" in (await it.conditions())[ACCEPTED][2]


async def test_status_of_another_server_is_left_alone() -> None:
    """Its proxy may be connected there, too. The next change here is answered as usual."""
    async with plane() as it:
        await it.publish("web")
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: "leaf:web" in web.has[Kind.SECRET])
            await it.settled()
            theirs = [headway.Condition(type=ANSWERED, state=headway.ConditionState.FALSE, message="another proxy's")]
            await it.client.write_status(await it.template(), KEY, theirs)
            await it.settled()
            assert (await it.conditions()) == {ANSWERED: ("FALSE", "", "another proxy's")}
            await it.publish("web", "api")
            await web.until(lambda: "api" in web.has[Kind.LISTENER])
            await it.settled()
            assert (await it.conditions())[ANSWERED][0] == "TRUE"


async def test_equal_parts_of_proxies_are_one_object() -> None:
    async with plane() as it:
        await it.put("api", service_endpoints(1))
        await it.publish("web-1", "api")
        await it.publish("web-2", "api")
        async with Sidecar.connected(it.service, "web-1") as one, Sidecar.connected(it.service, "web-2") as two:
            await one.until(lambda: bool(one.has[Kind.LISTENER]))
            await two.until(lambda: bool(two.has[Kind.LISTENER]))
            await it.settled()
            snapshots = [each._latest for id in it.connected for each in it.connected.streams(id)]
            assert len(snapshots) == 2
            assert all(a is b for a, b in zip(*(list(each or ()) for each in snapshots), strict=True))


async def test_change_of_endpoints_decodes_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template takes a millisecond, and each change of an endpoint concerns many."""
    decoded: list[str] = []
    read = headway.Resource.data

    def counted(resource: headway.Resource[Any]) -> Any:
        decoded.append(resource.type.name.kind)
        return read.fget(resource)  # type: ignore[attr-defined]  # of a property

    async with plane() as it:
        await it.put("api", service_endpoints(1))
        for name in ("web-1", "web-2"):
            await it.publish(name, "api")
        async with Sidecar.connected(it.service, "web-1") as one, Sidecar.connected(it.service, "web-2") as two:
            await one.until(lambda: bool(one.has[Kind.LISTENER]))
            await two.until(lambda: bool(two.has[Kind.LISTENER]))
            await it.settled()
            endpoints = SERVICE_ENDPOINTS.new("api", service_endpoints(1, 2))
            monkeypatch.setattr(headway.Resource, "data", property(counted, read.fset))  # type: ignore[attr-defined]
            await it.client.apply(endpoints)
            await one.until(lambda: len(weights(one)) == 2)
            await two.until(lambda: len(weights(two)) == 2)
            await it.settled()
            assert "ServiceEndpoints" in decoded
            assert "ProxyStateTemplate" not in decoded


async def test_answer_to_new_endpoints_reconciles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes no status."""
    reconciles: list[str] = []
    reconcile = Control.reconcile

    async def counted(self: Control, rt: headway.Runtime, request: Any) -> headway.RequeueAfter | None:
        reconciles.append(request.id.name)
        return await reconcile(self, rt, request)

    async with plane() as it:
        await it.put("api", service_endpoints(1))
        await it.publish("web", "api")
        async with Sidecar.connected(it.service, "web") as web:
            await web.until(lambda: bool(web.has[Kind.LISTENER]))
            await it.settled()
            assert (await it.conditions())[ANSWERED][0] == "TRUE"
            monkeypatch.setattr(Control, "reconcile", counted)
            await it.put("api", service_endpoints(1, 2))
            await web.until(lambda: len(weights(web)) == 2)
            await it.settled()
            assert reconciles == ["web"]
