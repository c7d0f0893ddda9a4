"""Templates of proxies: facts SP-1 to SP-11, SP-13 to SP-17, and W-1, W-2, W-4, W-8, W-12, W-14, W-16."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.messages import (
    ComputedTrafficPermissions,
    DestinationRule,
    DestinationRuleHeader,
    Endpoint,
    ExcludePermissionRule,
    ExcludeSource,
    Permission,
    Protocol,
    Service,
    ServiceEndpoints,
    Source,
    WorkloadSelector,
)
from catalog.types import COMPUTED_TRAFFIC_PERMISSIONS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.resource import pb
from headway.testing import one_shot, simulation
from mesh.checks.computed import template as faults
from mesh.controllers.sidecar_proxy import KEY
from mesh.messages import (
    BackendTargetDetails,
    BackendTargetDetailsType,
    ComputedExplicitDestinations,
    ComputedFailoverConfig,
    ComputedFailoverDestination,
    ComputedHTTPBackendRef,
    ComputedHTTPRoute,
    ComputedHTTPRouteRule,
    ComputedPortRoutes,
    ComputedProxyConfiguration,
    ComputedRoutes,
    ComputedTCPBackendRef,
    ComputedTCPRoute,
    ComputedTCPRouteRule,
    ConnectionConfig,
    Destination,
    DestinationConfig,
    Destinations,
    DynamicConfig,
    GRPCMethodMatch,
    GRPCMethodMatchType,
    GRPCRouteMatch,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPURLRewriteFilter,
    InboundConnectionsConfig,
    IPPortAddress,
    ProxyStateTemplate,
)
from mesh.messages.proxy_state import AppendAction, PathMatch, Spiffe
from mesh.proxies import matching, permissions
from mesh.proxies.gaps import completeness
from mesh.proxies.inbound import protocols
from mesh.proxies.names import Mesh
from mesh.types import (
    COMPUTED_EXPLICIT_DESTINATIONS,
    COMPUTED_PROXY_CONFIGURATION,
    COMPUTED_ROUTES,
    DESTINATIONS,
    PROXY_STATE_TEMPLATE,
)
from tests.catalog.policies import FEWER, settled
from tests.helpers.catalogs import workload
from tests.mesh.refs import backend, ref
from tests.mesh.routed import GRPC, HTTP, MESH, TCP, UNKNOWN, alone, explored, key, service

APP = alone("sidecar-proxy")
MESHED = {"http": HTTP, "mesh": MESH}
WEB = PROXY_STATE_TEMPLATE.id("web-1")
DIRECT, INDIRECT = (
    BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_DIRECT,
    BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_INDIRECT,
)
SECOND = datetime.timedelta(seconds=1)


def web(ports: dict[str, Protocol] | None = None, **given: Any) -> headway.Resource[Any]:
    return workload("web-1", ports=MESHED if ports is None else ports, identity="web", **given)


def cluster(name: str, port: str = "http") -> str:
    return f"{port}.{name}.default.dc1.internal.cluster.local"


def target(
    name: str, *others: str, type: BackendTargetDetailsType = DIRECT, port: str = "http"
) -> BackendTargetDetails:
    failover = [ComputedFailoverDestination(backend_target=key(each, port)) for each in others]
    return BackendTargetDetails(
        type=type,
        backend_ref=backend(name, port),
        mesh_port="mesh",
        failover_config=ComputedFailoverConfig(destinations=failover) if failover else None,
        destination_config=DestinationConfig(connect_timeout=5 * SECOND),
    )


def routes(name: str, *weights: tuple[str, int], failover: str = "") -> headway.Resource[ComputedRoutes]:
    """Return the routes of a service with HTTP and TCP ports that go to these services."""
    split = weights or ((name, 1),)
    config: dict[str, ComputedPortRoutes] = {}
    for port in ("http", "tcp"):
        keys = [(key(each, port) if each else "NULL-ROUTE", weight) for each, weight in split]
        targets = {key(each, port): target(each, *filter(None, [failover]), port=port) for each, _ in split if each}
        if failover:
            targets[key(failover, port)] = target(failover, type=INDIRECT, port=port)
        config[port] = ComputedPortRoutes(targets=targets, protocol=HTTP if port == "http" else TCP)
        if port == "http":
            http = [ComputedHTTPBackendRef(backend_target=each, weight=weight) for each, weight in keys]
            rule = ComputedHTTPRouteRule(matches=[HTTPRouteMatch()], backend_refs=http)
            config[port].http = ComputedHTTPRoute(rules=[rule])
        else:
            tcp = [ComputedTCPBackendRef(backend_target=each, weight=weight) for each, weight in keys]
            config[port].tcp = ComputedTCPRoute(rules=[ComputedTCPRouteRule(backend_refs=tcp)])
    return COMPUTED_ROUTES.new(name, ComputedRoutes(ported_configs=config))


def to(*names: str, port: str = "http", of: str = "web-1") -> headway.Resource[ComputedExplicitDestinations]:
    listed = [
        Destination(
            destination_ref=ref(name), destination_port=port, ip_port=IPPortAddress(ip="127.0.0.1", port=1000 + number)
        )
        for number, name in enumerate(names)
    ]
    return COMPUTED_EXPLICIT_DESTINATIONS.new(of, ComputedExplicitDestinations(destinations=listed))


def endpoints(name: str, *identities: str) -> headway.Resource[ServiceEndpoints]:
    own = web().data
    found = [Endpoint(identity=each, addresses=own.addresses, ports=own.ports) for each in identities]
    return SERVICE_ENDPOINTS.new(name, ServiceEndpoints(endpoints=found))


def identities_of(data: ProxyStateTemplate, name: str) -> list[str]:
    """Return the identities that the members of a cluster may have."""
    assert data.proxy_state is not None
    made = data.proxy_state.clusters[name]
    groups = made.failover_group.endpoint_groups if made.failover_group is not None else [made.endpoint_group]
    found: list[str] = []
    for group in groups:
        assert group is not None
        assert group.dynamic is not None
        assert group.dynamic.outbound_tls is not None
        tls = group.dynamic.outbound_tls.outbound_mesh
        assert tls is not None
        assert tls.validation_context is not None
        found += [each.rpartition("/")[2] for each in tls.validation_context.spiffe_ids]
    return found


async def computed(*resources: headway.Resource[Any]) -> ProxyStateTemplate:
    """Return the template of web-1, which must be valid and stay as it is."""
    async with one_shot(APP, "sidecar-proxy") as shot:
        await shot.given(*resources)
        await settled(shot, WEB)
        made = await shot.client.read(PROXY_STATE_TEMPLATE, "web-1")
        assert list(faults(made)) == []
        return made.data


async def test_sp1_sp2_w1_changes_reconcile_only_the_proxies_that_they_concern() -> None:
    async with one_shot(APP, "sidecar-proxy") as shot:
        other = workload("other", ports=MESHED, identity="other")
        api = SERVICE.new("api", service())
        await shot.given(web(), other, api, routes("api", ("v1", 1)), to("api"), *BACKENDS, endpoints("v1", "a"))
        both: list[headway.Resource[Any]] = [api, routes("api")]
        for changed in both:
            assert await shot.mapped(changed.type, new=changed) == [WEB]
        selector = WorkloadSelector(prefixes=["oth"])
        selecting = SERVICE.new("other", Service(workloads=selector))
        assert [each.name for each in await shot.mapped(SERVICE, old=selecting)] == ["other"]
        permitted = COMPUTED_TRAFFIC_PERMISSIONS.new("web")
        assert await shot.mapped(COMPUTED_TRAFFIC_PERMISSIONS, new=permitted) == [WEB]
        old, same, new = endpoints("v1", "a"), endpoints("v1", "a", "a"), endpoints("v1", "b")
        assert await shot.mapped(SERVICE_ENDPOINTS, old=old, new=same) == []
        assert await shot.mapped(SERVICE_ENDPOINTS, old=old, new=new) == [WEB]
        assert await shot.mapped(SERVICE_ENDPOINTS, old=endpoints("x"), new=endpoints("x", "b")) == []


async def test_sp3_template_follows_the_workload() -> None:
    """Scenarios 12, 16 and 17."""
    async with one_shot(APP, "sidecar-proxy") as shot:
        stored, *_ = await shot.given(web())
        await settled(shot, WEB)
        made = await shot.client.read(PROXY_STATE_TEMPLATE, "web-1")
        assert made.owner == stored.id
        await shot.client.delete(made)
        assert [each.what for each in await settled(shot, WEB)] == ["write", "status"]
        await shot.given(web({"http": HTTP}))
        assert [each.what for each in await settled(shot, WEB)] == ["delete"]
        await shot.given(web(metadata={"gateway-kind": "mesh"}))
        assert await settled(shot, WEB) == ()


def test_sp4_w2_protocols_are_in_order_and_services_must_agree() -> None:
    """Scenario 18. A protocol of the workload's own counts first."""
    given = workload("w", ports={"c": UNKNOWN, "b": UNKNOWN, "a": GRPC, "mesh": MESH, "d": UNKNOWN}).data
    found = protocols(given, [service(a=HTTP, b=HTTP, c=HTTP), service(b=GRPC, c=HTTP)])
    assert list(found.items()) == [("a", GRPC), ("b", TCP), ("c", HTTP), ("d", TCP)]


async def test_sp5_sp6_sp7_sp17_inbound_has_a_router_for_each_port() -> None:
    limits = InboundConnectionsConfig(max_inbound_connections=7)
    config = DynamicConfig(
        inbound_connections=limits,
        local_connection={"http": ConnectionConfig(connect_timeout=SECOND, request_timeout=2 * SECOND)},
    )
    configured = COMPUTED_PROXY_CONFIGURATION.new("web-1", ComputedProxyConfiguration(dynamic_config=config))
    data = await computed(web({"tcp": TCP, "http": HTTP, "mesh": MESH}), configured)
    state = data.proxy_state
    assert state is not None
    (listener,) = state.listeners
    assert listener.name == "public_listener"
    assert listener.host_port is not None
    assert (listener.host_port.host, listener.host_port.port) == ("10.1.0.1", 8002)
    http, tcp = listener.routers
    assert http.match is not None
    assert http.match.alpn_protocols == ["consul~http"]
    assert http.l7 is not None
    assert http.l7.route is not None
    assert http.l7.static_route
    assert http.l7.route.name == "public_listener:http"
    assert http.l7.max_inbound_connections == 7
    assert tcp.l4 is not None
    assert tcp.l4.cluster is not None
    assert tcp.l4.cluster.name == "local_app:tcp"
    assert all(each.inbound_tls is not None for each in listener.routers)
    rule = state.routes["public_listener:http"].virtual_hosts[0].route_rules[0]
    assert rule.destination is not None
    assert rule.destination.destination_configuration is not None
    timeout = rule.destination.destination_configuration.timeout_config
    assert timeout is not None
    assert timeout.timeout == 2 * SECOND
    local = state.clusters["local_app:http"].endpoint_group
    assert local is not None
    assert local.static is not None
    assert local.static.config is not None
    assert local.static.config.connect_timeout == SECOND
    assert local.static.config.circuit_breakers is not None
    address = state.endpoints["local_app:http"].endpoints[0].host_port
    assert address is not None
    assert (address.host, address.port) == ("127.0.0.1", 8001)
    assert [(k, each.name) for k, each in data.required_leaf_certificates.items()] == [("web", "web")]
    assert list(data.required_trust_bundles) == ["local"]


async def test_sp6_workload_without_other_ports_accepts_nothing() -> None:
    state = (await computed(web({"mesh": MESH}))).proxy_state
    assert state is not None
    (router,) = state.listeners[0].routers
    assert router.inbound_tls is None
    assert router.l4 is not None
    assert router.l4.cluster is not None
    assert router.l4.cluster.name == "black-hole-cluster"
    assert "black-hole-cluster" in state.clusters


ANYONE = Source(partition="default")


def rules(*given: DestinationRule, source: Source = ANYONE) -> list[Permission]:
    return [Permission(sources=[source], destination_rules=list(given))]


def test_sp8_default_needs_computed_permissions_and_a_server_that_allows() -> None:
    """Scenario 19."""
    open_mesh, default = Mesh(allows_by_default=True), ComputedTrafficPermissions(is_default=True)
    some = ComputedTrafficPermissions(allow_permissions=rules())
    for permitted, mesh, allows in (
        (None, open_mesh, False),
        (default, open_mesh, True),
        (default, Mesh(), False),
        (some, open_mesh, False),
    ):
        assert permissions.of_port(permitted, "http", mesh, has_requests=True).default_allow is allows


PATH = DestinationRule(path_prefix="/a")


@pytest.mark.parametrize(
    ("rule", "has_requests", "allowed", "denied"),
    [
        (None, True, [], []),
        (DestinationRule(port_names=["http"]), True, [], []),
        (DestinationRule(port_names=["tcp"]), True, None, None),
        (DestinationRule(exclude=[ExcludePermissionRule(port_names=["http"])]), True, None, None),
        (DestinationRule(exclude=[ExcludePermissionRule(port_names=["tcp"])]), True, [], []),
        (PATH, True, ["/a"], ["/a"]),
        (PATH, False, None, []),
        # What the proxy cannot compile would make it refuse all permissions.
        (DestinationRule(path_regex="(?=a)"), True, None, []),
        (DestinationRule(headers=[DestinationRuleHeader(name="x y", present=True)]), True, None, []),
        (DestinationRule(headers=[DestinationRuleHeader(name="x", regex="(")]), True, None, []),
        (DestinationRule(path_prefix="/a", exclude=[ExcludePermissionRule(path_exact="/a/b")]), True, None, ["/a"]),
        (DestinationRule(exclude=[ExcludePermissionRule(methods=["GET"])]), True, None, []),
    ],
)
def test_sp8_w14_never_more_is_allowed_than_written(
    rule: DestinationRule | None, has_requests: bool, allowed: list[str] | None, denied: list[str] | None
) -> None:
    """None is no permission, and an empty list one for all requests."""
    given = rules(*([] if rule is None else [rule]))
    both = ComputedTrafficPermissions(allow_permissions=given, deny_permissions=given)
    made = permissions.of_port(both, "http", Mesh(), has_requests=has_requests)
    for found, wanted in ((made.allow_permissions, allowed), (made.deny_permissions, denied)):
        paths = [[each.path_prefix for each in one.destination_rules] for one in found]
        assert paths == ([] if wanted is None else [wanted])


def test_sp9_sources_become_patterns() -> None:
    """A source of another cluster is none here."""
    source = Source(partition="default", namespace="a", exclude=[ExcludeSource(namespace="a", identity_name="b")])
    given = ComputedTrafficPermissions(allow_permissions=[*rules(source=source), *rules(source=Source(peer="far"))])
    (made,) = permissions.of_port(given, "http", Mesh(), has_requests=True).allow_permissions
    (principal,) = made.principals
    begins = r"^spiffe://cluster\.local/ap/default/ns/a/identity/"
    assert Mesh().identities("", "é", "a.b") == r"^spiffe://cluster\.local/ap/default/ns/é/identity/a\.b$"
    assert principal.spiffe is not None
    assert principal.spiffe.regex == begins + "[^/]+$"
    assert [each.regex for each in principal.exclude_spiffes] == [begins + "b$"]


def test_w14_members_of_sameness_groups_are_never_allowed_and_always_denied() -> None:
    """Nor does an exclusion of them deny less."""
    grouped, sparing = Source(sameness_group="g"), Source(exclude=[ExcludeSource(sameness_group="g")])
    everyone = Mesh().everyone
    for source, denied in ((grouped, everyone), (sparing, Mesh().identities("", "", ""))):
        given = rules(source=source)
        both = ComputedTrafficPermissions(allow_permissions=given, deny_permissions=given)
        made = permissions.of_port(both, "http", Mesh(), has_requests=True)
        assert made.allow_permissions == []
        (principal,) = made.deny_permissions[0].principals
        assert (principal.spiffe, principal.exclude_spiffes) == (Spiffe(regex=denied), [])


API: list[headway.Resource[Any]] = [SERVICE.new("api", service(http=HTTP, tcp=TCP, mesh=MESH)), routes("api")]
NOWHERE = ComputedHTTPBackendRef(backend_target="NULL-ROUTE", weight=1)
BACKENDS: list[headway.Resource[Any]] = [SERVICE.new(name, service()) for name in ("v1", "v2", "v3")]


async def test_sp10_sp13_w16_destination_has_listener_route_and_cluster() -> None:
    """The identities are those of the endpoints, without any health."""
    data = await computed(web(), *API, to("api"), endpoints("api", "b", "a", "b"))
    state = data.proxy_state
    assert state is not None
    listener = state.listeners[1]
    assert listener.name == "default/default/api:http:127.0.0.1:1000"
    (router,) = listener.routers
    assert router.match is None
    assert router.inbound_tls is None
    assert router.l7 is not None
    assert router.l7.route is not None
    assert router.l7.route.name == listener.name
    (rule,) = state.routes[listener.name].virtual_hosts[0].route_rules
    assert rule.destination is not None
    assert rule.destination.cluster is not None
    name = cluster("api")
    assert rule.destination.cluster.name == name
    assert identities_of(data, name) == ["a", "b"]
    wanted = data.required_endpoints[name]
    assert isinstance(wanted.id, pb.Id)
    assert wanted.id.name == "api"
    assert (wanted.mesh_port, wanted.route_port) == ("mesh", "http")


async def test_sp11_w8_missing_service_leaves_out_its_own_listener_only() -> None:
    """Scenario 15: it also returns. Endpoints that are missing do not block the proxy."""
    async with one_shot(APP, "sidecar-proxy") as shot:

        async def listeners() -> list[str]:
            await settled(shot, WEB)
            state = (await shot.client.read(PROXY_STATE_TEMPLATE, "web-1")).data.proxy_state
            assert state is not None
            assert (cluster("api") in state.clusters) == (len(state.listeners) == 3)
            return [each.name.partition(":")[0] for each in state.listeners]

        both = ["public_listener", "default/default/api", "default/default/db"]
        await shot.given(web(), *API, SERVICE.new("db", service()), routes("db"), to("api", "db"))
        assert await listeners() == both
        await shot.given(SERVICE.new("api", service(http=HTTP)))
        assert await listeners() == [both[0], both[2]]
        await shot.given(API[0])
        assert await listeners() == both
        await shot.client.delete(COMPUTED_ROUTES.id("api"))
        await shot.requests()
        assert await listeners() == [both[0], both[2]]


async def test_sp14_w4_each_member_of_a_failover_group_gets_its_endpoints() -> None:
    resources = (web(), API[0], routes("api", failover="v1"), to("api"), *BACKENDS)
    data = await computed(*resources, endpoints("api", "a"), endpoints("v1", "b"))
    assert data.proxy_state is not None
    made = data.proxy_state.clusters[cluster("api")]
    assert made.failover_group is not None
    members = [f"failover-target~{number}~{cluster('api')}" for number in (0, 1)]
    assert [each.name for each in made.failover_group.endpoint_groups] == members
    found = {name: each.id.name for name, each in data.required_endpoints.items() if each.id is not None}
    assert found == dict(zip(members, ["api", "v1"], strict=True))
    assert identities_of(data, cluster("api")) == ["a", "b"]


async def test_sp13_first_of_two_destinations_with_one_target_decides_on_its_failover() -> None:
    db: list[headway.Resource[Any]] = [SERVICE.new("db", service()), routes("db", ("v1", 1), failover="v2")]
    made = await computed(web(), *API[:1], routes("api", ("v1", 1)), *db, *BACKENDS, to("api", "db"))
    assert made.proxy_state is not None
    assert made.proxy_state.clusters[cluster("v1")].failover_group is None
    assert list(made.required_endpoints) == [cluster("v1")]


@pytest.mark.parametrize("port", ["http", "tcp"])
async def test_sp15_split_has_weights_and_a_null_cluster(port: str) -> None:
    """Scenarios 20 and 33."""
    split = routes("api", ("v1", 10), ("v2", 80), ("", 10))
    found = (endpoints("v1", "one"), endpoints("v2", "two"))
    data = await computed(web(), API[0], split, to("api", port=port), *BACKENDS, *found)
    state = data.proxy_state
    assert state is not None
    (router,) = state.listeners[1].routers
    weighted: Any
    if router.l4 is not None:
        weighted = router.l4.weighted_clusters
    else:
        destination = state.routes[state.listeners[1].name].virtual_hosts[0].route_rules[0].destination
        weighted = destination.weighted_clusters if destination is not None else None
    shares = [(each.name, each.weight.value) for each in weighted.clusters]
    assert shares == [(cluster("v1", port), 10), (cluster("v2", port), 80), ("null_route_cluster", 10)]
    assert state.endpoints["null_route_cluster"].endpoints == []
    assert [identities_of(data, cluster(each, port)) for each in ("v1", "v2")] == [["one"], ["two"]]


async def test_w12_port_without_rules_or_with_two_has_a_cluster() -> None:
    for rules in ([], [ComputedTCPRouteRule(backend_refs=[ComputedTCPBackendRef(backend_target="?")])] * 2):
        config = ComputedPortRoutes(tcp=ComputedTCPRoute(rules=rules), protocol=TCP)
        given = COMPUTED_ROUTES.new("api", ComputedRoutes(ported_configs={"tcp": config}))
        state = (await computed(web(), API[0], given, to("api", port="tcp"))).proxy_state
        assert state is not None
        (router,) = state.listeners[1].routers
        assert router.l4 is not None
        assert router.l4.cluster is not None
        assert router.l4.cluster.name == "null_route_cluster"


REGEX = GRPCMethodMatchType.GRPC_METHOD_MATCH_TYPE_REGEX


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (None, PathMatch(prefix="/")),
        (GRPCMethodMatch(service="S"), PathMatch(prefix="/S/")),
        (GRPCMethodMatch(method="M"), PathMatch(regex="/[^/]+/M")),
        (GRPCMethodMatch(service="S", method="M"), PathMatch(exact="/S/M")),
        (GRPCMethodMatch(service="S", type=REGEX), PathMatch(regex="/S/.+")),
        (GRPCMethodMatch(method="M", type=REGEX), PathMatch(regex="/[^/]+/M")),
        (GRPCMethodMatch(service="S", method="M", type=REGEX), PathMatch(regex="/S/M")),
    ],
)
def test_sp16_method_becomes_a_path(method: GRPCMethodMatch | None, path: PathMatch) -> None:
    assert matching.grpc(GRPCRouteMatch(method=method)).path_match == path


def test_sp16_w12_filters_and_retries_need_no_timeouts() -> None:
    changes = HTTPHeaderFilter(set=[HTTPHeader(name="a")], add=[HTTPHeader(name="b")], remove=["c"])
    made = list(matching.mutations([HTTPRouteFilter(request_header_modifier=changes)]))
    actions = [each.request_header_add.append_action for each in made if each.request_header_add is not None]
    overwrite = AppendAction.APPEND_ACTION_OVERWRITE_IF_EXISTS_OR_ADD
    assert actions == [overwrite, AppendAction.APPEND_ACTION_APPEND_IF_EXISTS_OR_ADD]
    assert made[2].request_header_remove is not None
    assert made[2].request_header_remove.header_keys == ["c"]
    rewritten = matching.treatment([HTTPRouteFilter(url_rewrite=HTTPURLRewriteFilter(path_prefix="/x"))], None, None)
    assert rewritten is not None
    assert rewritten.prefix_rewrite == "/x"
    retried = matching.treatment([], None, HTTPRouteRetries(on_connect_failure=True, on_status_codes=[503]))
    assert retried is not None
    assert retried.retry_policy is not None
    assert retried.retry_policy.retry_on == "connect-failure,retriable-status-codes"


async def test_status_says_which_destinations_are_left_out_and_why() -> None:
    """A change of what is wrong with destinations reconciles the proxies of the workloads that they select."""
    apps = alone("sidecar-proxy", "destinations-status", "explicit-destinations")
    data = Destinations(workloads=WorkloadSelector(prefixes=["web-"]), destinations=to("api").data.destinations)
    async with headway.open_engine("memory:", apps) as engine:

        async def told() -> tuple[str, str]:
            await engine.wait_idle()
            (condition,) = (await engine.client.read(PROXY_STATE_TEMPLATE, "web-1")).status[KEY].conditions
            assert condition.type == "Complete"
            return condition.reason, condition.message

        await engine.client.apply(web())
        assert await told() == ("NoDestinations", "no Destinations select the workload, so it reaches no service")
        await engine.client.apply(DESTINATIONS.new("mine", data))
        missing = "http on catalog.v2beta1.Service/default.default/api: the service does not exist"
        assert await told() == ("PartsLeftOut", f"Destinations mine are left out: ServiceNotFound: {missing}")
        for each in API:
            await engine.client.apply(each)
        assert await told() == ("AllIncluded", "the proxy reaches everything that is in Destinations mine")
        await engine.client.apply(DESTINATIONS.new("other", data))
        assert "mine are left out: ConflictingListenAddress" in (await told())[1]


@pytest.mark.parametrize(("port", "split"), [("http", [("v1", 1), ("", 1)]), ("tcp", [("v1", 1), ("", 1)])])
async def test_status_names_the_listener_of_which_a_share_has_no_backend(
    port: str, split: list[tuple[str, int]]
) -> None:
    """The last rule of HTTP routes, for what no other rule matches, may have none."""
    whole, parted = routes("api", ("v1", 1)), routes("api", *split)
    http = whole.data.ported_configs["http"].http
    assert http is not None
    http.rules.append(ComputedHTTPRouteRule(matches=[HTTPRouteMatch()], backend_refs=[NOWHERE]))
    for routed, is_complete in ((whole, True), (parted, False)):
        state = (await computed(web(), API[0], *BACKENDS, to("api", port=port), routed)).proxy_state
        assert state is not None
        condition = completeness([DESTINATIONS.new("mine")], state)
        assert (condition.state == headway.ConditionState.TRUE) is is_complete
        assert (f"default/default/api:{port}:127.0.0.1:1000 has a route" in condition.message) is not is_complete


async def destination_comes_and_goes(world: simulation.World) -> None:
    """A proxy gets a destination, whose endpoints get an identity; then its service leaves the mesh."""
    client = world.client
    await client.apply(web())
    await client.apply(to("api"))
    await world.wait_idle()
    for each in API:
        await client.apply(each)
    await client.apply(endpoints("api", "a"))
    await world.wait_idle()
    await client.apply(SERVICE.new("api", service(http=HTTP)))
    await world.wait_idle()


test_destination_comes_and_goes = explored(APP, destination_comes_and_goes)

NAMES = ("api", "db")
CHANGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        web, st.sampled_from([MESHED, MESHED, {"http": HTTP}, {"mesh": MESH}, {"b": TCP, "a": TCP, "mesh": MESH}])
    ),
    st.builds(SERVICE.new, st.sampled_from(NAMES), st.sampled_from([service(), service(), service(http=HTTP)])),
    st.builds(
        lambda name, split, failover: routes(name, *((each, 1) for each in split), failover=failover),
        st.sampled_from(NAMES),
        st.lists(st.sampled_from(["v1", "v2", ""]), min_size=1, max_size=2, unique=True),
        st.sampled_from(["", "", "v3"]),
    ),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(lambda names: to(*names)),
    st.builds(endpoints, st.sampled_from(["v1", "v2", "v3"]), st.sampled_from(["a", "b"])),
    st.sampled_from(
        [type.id(name) for type in (SERVICE, COMPUTED_ROUTES) for name in NAMES]
        + [SERVICE_ENDPOINTS.id("v1"), COMPUTED_EXPLICIT_DESTINATIONS.id("web-1"), WORKLOAD.id("web-1"), WEB]
    ),
)


@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=5, max_size=15))
@FEWER
def test_end_state_follows_from_the_inputs(changes: Sequence[tuple[Any, bool]]) -> None:
    """Whatever has changed before, and whether the controller was idle between the changes."""
    trio.run(end_state, [*((each, False) for each in (web(), *API, *BACKENDS, to("api"))), *changes])


async def end_state(changes: Sequence[tuple[Any, bool]]) -> None:
    """Make the changes, and compare the template with what is expected."""
    with trio.fail_after(30):
        async with headway.open_engine("memory:", APP) as engine:
            for change, waits in changes:
                if isinstance(change, headway.ResourceId):
                    await engine.client.delete(change)
                else:
                    await engine.client.apply(change)
                if waits:
                    await engine.wait_idle()
            await engine.wait_idle()
            await compare(engine.client)


async def compare(client: headway.Client) -> None:
    """Compare listeners, clusters, endpoints and identities with a plain computation of them."""
    own = await client.get(WORKLOAD, "web-1")
    made = await client.get(PROXY_STATE_TEMPLATE, "web-1")
    if own is None or "mesh" not in own.data.ports:
        assert made is None
        return
    assert made is not None
    assert made.data.proxy_state is not None
    state = made.data.proxy_state
    ports = sorted(set(own.data.ports) - {"mesh"})
    listeners, clusters = ["public_listener"], {f"local_app:{port}" for port in ports} or {"black-hole-cluster"}
    wanted: dict[str, str] = {}
    identities: dict[str, list[str]] = {}
    bound = {each.name: [one.identity for one in each.data.endpoints] for each in await client.list(SERVICE_ENDPOINTS)}
    listed = await client.get(COMPUTED_EXPLICIT_DESTINATIONS, "web-1")
    for number, each in enumerate(listed.data.destinations if listed is not None else []):
        assert each.destination_ref is not None
        name = each.destination_ref.name
        found, routed = await client.get(SERVICE, name), await client.get(COMPUTED_ROUTES, name)
        if found is None or routed is None or all(port.protocol != MESH for port in found.data.ports):
            continue
        listeners.append(f"default/default/{name}:http:127.0.0.1:{1000 + number}")
        config = routed.data.ported_configs["http"]
        assert config.http is not None
        for one in config.http.rules[0].backend_refs:
            if one.backend_target == "NULL-ROUTE":
                clusters.add("null_route_cluster")
        for details in config.targets.values():
            assert details.backend_ref is not None
            assert details.backend_ref.ref is not None
            to_name = details.backend_ref.ref.name
            at = cluster(to_name)
            # Of two routes to one target, the first decides whether others stand in for it.
            if details.type == INDIRECT or at in clusters:
                continue
            clusters.add(at)
            identities[at] = list(bound.get(to_name, []))
            if details.failover_config is None:
                wanted[at] = to_name
            else:
                wanted[f"failover-target~0~{at}"] = to_name
                wanted[f"failover-target~1~{at}"] = "v3"
                identities[at] += bound.get("v3", [])
    assert [each.name for each in state.listeners] == listeners
    assert set(state.clusters) == clusters
    assert {name: each.id.name for name, each in made.data.required_endpoints.items() if each.id} == wanted
    assert {name: identities_of(made.data, name) for name in identities} == identities
    alpns = [each.match.alpn_protocols for each in state.listeners[0].routers if each.match is not None]
    assert alpns == [[f"consul~{port}"] for port in ports]
