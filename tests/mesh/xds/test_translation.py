"""Each part of a proxy state becomes the resource of Envoy that the tables of the mesh name."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.messages import DNSPolicy, Health, Protocol, ServiceEndpoints, Weights, WorkloadAddress
from headway.protobuf import decode
from mesh.messages import BalanceConnections as Balance
from mesh.messages import BoolValue, ProxyState, UInt32Value, UInt64Value
from mesh.messages import proxy_state as p
from mesh.xds import Kind, Resource, Snapshot
from mesh.xds import messages as m
from mesh.xds.translation import Unfit, assign, joined, leaf_secret, roots_secret, translate, trusted
from mesh.xds.translation.faults import regex
from tests.mesh.xds.state import (
    LOCAL,
    allowing,
    dynamic,
    group,
    outbound,
    outbound_tls,
    server,
    service_endpoints,
    spiffe,
    to_cluster,
)

SECOND = datetime.timedelta(seconds=1)
REF = p.EndpointRef(mesh_port="mesh", route_port="http")


def unpacked(kind: Any, held: Any) -> Any:
    """Return what an Any holds."""
    return decode(kind, held.value)


def one(kind: type[Any], state: ProxyState, name: str) -> Any:
    (found,) = [each for each in translate(state) if isinstance(each, kind) and each.name == name]
    return found


def filters(chain: m.FilterChain) -> dict[str, Any]:
    """Return the filters of a chain, decoded, by the last part of their names."""
    kinds = {
        "connection_limit": m.ConnectionLimit,
        "http_connection_manager": m.HttpConnectionManager,
        "rbac": m.NetworkRbac,
        "tcp_proxy": m.TcpProxy,
    }
    names = [each.name.rpartition(".")[2] for each in chain.filters]
    return {
        f"{name}{index if name == 'rbac' else ''}": unpacked(kinds[name], each.typed_config)
        for index, (name, each) in enumerate(zip(names, chain.filters, strict=True))
        if each.typed_config is not None
    }


def calling(cluster: p.Cluster, route: p.Route | None = None) -> ProxyState:
    return ProxyState(
        clusters={cluster.name: cluster},
        listeners=[outbound("out", 9000, route="r")],
        routes={"r": route or to_cluster(cluster.name)},
    )


def rule(
    match: p.RouteMatch | None = None,
    config: p.DestinationConfiguration | None = None,
    changes: list[p.HeaderMutation] | None = None,
) -> p.Route:
    destination = p.RouteDestination(cluster=p.DestinationCluster(name="api"), destination_configuration=config)
    made = p.RouteRule(match=match, destination=destination, header_mutations=changes or [])
    return p.Route(virtual_hosts=[p.VirtualHost(name="all", domains=["*"], route_rules=[made])])


def routed(route: p.Route) -> m.Route:
    """Return the only rule of a route, translated."""
    found: m.Route = (
        one(m.RouteConfiguration, calling(dynamic("api", "web", "http", []), route), "r").virtual_hosts[0].routes[0]
    )
    return found


def test_inbound_listener_has_a_chain_for_each_port_by_alpn() -> None:
    made = one(m.Listener, server("api", 20_000, http=1, tcp=2), "public_listener")
    assert made.traffic_direction == m.TrafficDirection.INBOUND
    assert made.address.socket_address.port_value == 20_000
    assert [each.name for each in made.listener_filters] == ["envoy.filters.listener.tls_inspector"]
    chosen = [each.filter_chain_match.application_protocols for each in made.filter_chains]
    assert chosen == [["consul~http"], ["consul~tcp"]]
    for chain in made.filter_chains:
        tls = unpacked(m.DownstreamTlsContext, chain.transport_socket.typed_config)
        assert tls.require_client_certificate is True
        common = tls.common_tls_context
        assert [each.name for each in common.tls_certificate_sds_secret_configs] == ["leaf:api"]
        assert common.combined_validation_context.validation_context_sds_secret_config.name == "roots:local"
    assert {(each.kind, *need) for each in [Resource.of(made)] for need in each.needs} == {
        (Kind.LISTENER, Kind.SECRET, "leaf:api"),
        (Kind.LISTENER, Kind.SECRET, "roots:local"),
        (Kind.LISTENER, Kind.ROUTE, "public_listener:http"),
    }


def test_filters_of_connections_are_in_order_and_a_filter_without_policies_denies_everyone() -> None:
    permitted = allowing("web")
    permitted.deny_permissions = allowing("bad").allow_permissions
    state = server("api", 20_000, tcp=2, permitted=permitted, most=7)
    found = filters(one(m.Listener, state, "public_listener").filter_chains[0])
    assert list(found) == ["rbac0", "rbac1", "connection_limit", "tcp_proxy"]
    assert [found[each].rules.action.name for each in ("rbac0", "rbac1")] == ["DENY", "ALLOW"]
    assert found["connection_limit"].max_connections == 7
    assert found["tcp_proxy"].cluster == "local_app:tcp"
    closed = filters(one(m.Listener, server("api", 1, tcp=2, permitted=allowing()), "public_listener").filter_chains[0])
    assert closed["rbac0"].rules == m.RbacRules(action=m.RbacAction.ALLOW)
    open_to_all = server("api", 1, tcp=2, permitted=p.TrafficPermissions(default_allow=True))
    assert list(filters(one(m.Listener, open_to_all, "public_listener").filter_chains[0])) == ["tcp_proxy"]


def per_filter(permitted: p.TrafficPermissions) -> dict[str, m.RbacRules | None]:
    host = one(
        m.RouteConfiguration, server("api", 1, http=2, permitted=permitted), "public_listener:http"
    ).virtual_hosts[0]
    found = {}
    for name, config in host.typed_per_filter_config.items():
        rbac = unpacked(m.HttpRbacPerRoute, config).rbac
        found[name] = None if rbac is None else rbac.rules
    return found


def test_filters_of_requests_deny_everyone_and_the_route_says_who_may() -> None:
    """So a permission changes without the listener."""
    closed, opened = (server("api", 1, http=2, permitted=each, most=3) for each in (allowing(), allowing("web")))
    listener = one(m.Listener, opened, "public_listener")
    assert listener == one(m.Listener, closed, "public_listener")
    found = filters(listener.filter_chains[0])
    assert list(found) == ["connection_limit", "http_connection_manager"]
    manager = found["http_connection_manager"]
    assert manager.rds.route_config_name == "public_listener:http"
    assert [each.upgrade_type for each in manager.upgrade_configs] == ["websocket"]
    assert [each.name for each in manager.http_filters] == ["deny", "allow", "envoy.filters.http.router"]
    default = [unpacked(m.HttpRbac, each.typed_config).rules for each in manager.http_filters[:2]]
    assert default == [None, m.RbacRules(action=m.RbacAction.ALLOW)]
    assert per_filter(allowing()) == {"allow": m.RbacRules(action=m.RbacAction.ALLOW)}
    assert per_filter(p.TrafficPermissions(default_allow=True)) == {"allow": None}
    denying = p.TrafficPermissions(default_allow=True, deny_permissions=allowing("bad").allow_permissions)
    assert list(per_filter(denying)) == ["allow", "deny"]


def test_w14_all_conditions_of_a_rule_must_hold() -> None:
    header = p.DestinationRuleHeader(name="x-team", exact="a", invert=True)
    rules = [p.DestinationRule(path_prefix="/v1", methods=["PUT", "GET"], destination_rule_header=[header])]
    policies = per_filter(allowing("web", rules=rules))["allow"]
    assert policies is not None
    (permission,) = policies.policies["0000"].permissions
    assert permission.and_rules is not None
    path, team, methods = permission.and_rules.rules
    assert path.url_path == m.PathMatcher(path=m.StringMatcher(prefix="/v1"))
    assert team.header == m.HeaderMatcher(name="x-team", string_match=m.StringMatcher(exact="a"), invert_match=True)
    assert methods.or_rules is not None
    assert methods.or_rules.rules == [
        m.Permission(header=m.HeaderMatcher(name=":method", string_match=m.StringMatcher(exact=each)))
        for each in ("GET", "PUT")
    ]


def test_w14_rule_about_requests_on_a_tcp_port_allows_less_and_never_more() -> None:
    rules = [p.DestinationRule(path_prefix="/v1")]
    allowed = filters(
        one(
            m.Listener, server("api", 1, tcp=2, permitted=allowing("web", rules=rules)), "public_listener"
        ).filter_chains[0]
    )
    assert allowed["rbac0"].rules.policies == {}
    denied = p.TrafficPermissions(default_allow=True, deny_permissions=allowing("web", rules=rules).allow_permissions)
    found = filters(one(m.Listener, server("api", 1, tcp=2, permitted=denied), "public_listener").filter_chains[0])
    assert found["rbac0"].rules.policies["0000"].permissions == [m.Permission(any=True)]


def test_excluded_senders_are_not_meant() -> None:
    principal = p.Principal(spiffe=p.Spiffe(regex="all"), exclude_spiffes=[p.Spiffe(regex="bad")])
    permitted = p.TrafficPermissions(allow_permissions=[p.Permission(principals=[principal])])
    policies = per_filter(permitted)["allow"]
    assert policies is not None
    (made,) = policies.policies["0000"].principals
    assert made.and_ids is not None
    sender, excluded = made.and_ids.ids
    assert sender.authenticated == m.PrincipalAuthenticated(principal_name=regex("all"))
    assert excluded.not_id == m.Principal(authenticated=m.PrincipalAuthenticated(principal_name=regex("bad")))


def test_sender_that_is_not_said_is_everyone_to_deny_and_nobody_to_allow() -> None:
    permission = [p.Permission(principals=[p.Principal()])]
    allow = per_filter(p.TrafficPermissions(allow_permissions=permission))["allow"]
    assert allow == m.RbacRules(action=m.RbacAction.ALLOW)
    deny = per_filter(p.TrafficPermissions(deny_permissions=permission))["deny"]
    assert deny is not None
    assert deny.policies["0000"].principals == [m.Principal(any=True)]


def upstream(cluster: m.Cluster) -> Any:
    assert cluster.transport_socket is not None
    assert cluster.transport_socket.typed_config is not None
    return unpacked(m.UpstreamTlsContext, cluster.transport_socket.typed_config)


def test_dynamic_cluster_gets_endpoints_apart_and_trusts_exact_identities() -> None:
    made = one(m.Cluster, calling(dynamic("api", "web", "http", [spiffe("b"), spiffe("a")])), "api")
    assert made.type == m.ClusterDiscoveryType.EDS
    assert made.common_lb_config.healthy_panic_threshold == m.Percent(value=0.0)
    assert made.connect_timeout == 5 * SECOND
    tls = upstream(made)
    assert (tls.sni, tls.common_tls_context.alpn_protocols) == (
        "api.default.dc1.internal.cluster.local",
        ["consul~http"],
    )
    names = tls.common_tls_context.combined_validation_context.default_validation_context.match_typed_subject_alt_names
    assert [(each.san_type.name, each.matcher.exact) for each in names] == [("URI", spiffe("a")), ("URI", spiffe("b"))]


def test_cluster_without_identities_trusts_nobody() -> None:
    tls = upstream(one(m.Cluster, calling(dynamic("api", "web", "http", [])), "api"))
    (name,) = (
        tls.common_tls_context.combined_validation_context.default_validation_context.match_typed_subject_alt_names
    )
    # An exact name. A pattern that matches nothing is refused by the proxy, which would go on with its last cluster.
    assert name.matcher == m.StringMatcher(exact="nobody")


@pytest.mark.parametrize(
    ("set_policy", "policy", "extra"),
    [
        (lambda it: setattr(it, "random", p.LBPolicyRandom()), "RANDOM", None),
        (lambda it: setattr(it, "round_robin", p.LBPolicyRoundRobin()), "ROUND_ROBIN", None),
        (lambda it: setattr(it, "maglev", p.LBPolicyMaglev()), "MAGLEV", None),
        (
            lambda it: setattr(it, "least_request", p.LBPolicyLeastRequest(choice_count=UInt32Value(value=1))),
            "LEAST_REQUEST",
            m.ClusterLeastRequestLbConfig(choice_count=2),
        ),
        (
            lambda it: setattr(it, "ring_hash", p.LBPolicyRingHash(minimum_ring_size=UInt64Value(value=9))),
            "RING_HASH",
            m.ClusterRingHashLbConfig(minimum_ring_size=9),
        ),
    ],
)
def test_load_balancing(set_policy: Callable[[Any], None], policy: str, extra: object) -> None:
    cluster = dynamic("api", "web", "http", [])
    assert cluster.endpoint_group is not None
    assert cluster.endpoint_group.dynamic is not None
    set_policy(cluster.endpoint_group.dynamic.config)
    made = one(m.Cluster, calling(cluster), "api")
    assert m.ClusterLbPolicy(made.lb_policy).name == policy
    assert (made.least_request_lb_config or made.ring_hash_lb_config) == extra


def test_limits_timeouts_and_http2_of_a_cluster() -> None:
    cluster = dynamic("api", "web", "http", [], Protocol.PROTOCOL_GRPC)
    assert cluster.endpoint_group is not None
    assert cluster.endpoint_group.dynamic is not None
    config = cluster.endpoint_group.dynamic.config
    assert config is not None
    config.connect_timeout = 3 * SECOND
    limits = p.UpstreamLimits(
        max_connections=UInt32Value(value=1),
        max_pending_requests=UInt32Value(value=2),
        max_concurrent_requests=UInt32Value(value=0),
    )
    config.circuit_breakers = p.CircuitBreakers(upstream_limits=limits)
    made = one(m.Cluster, calling(cluster), "api")
    assert made.connect_timeout == 3 * SECOND
    expected = m.CircuitBreakersThresholds(max_connections=1, max_pending_requests=2, max_requests=0)
    assert made.circuit_breakers.thresholds == [expected]
    assert list(made.typed_extension_protocol_options) == ["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    plain = one(m.Cluster, calling(dynamic("api", "web", "http", [])), "api")
    assert plain.typed_extension_protocol_options == {}


def test_static_cluster_has_its_endpoints_in_itself() -> None:
    made = one(m.Cluster, server("api", 1, http=8080), "local_app:http")
    assert made.type == m.ClusterDiscoveryType.STATIC
    ((endpoint,),) = [group.lb_endpoints for group in made.load_assignment.endpoints]
    assert endpoint.endpoint.address.socket_address == m.SocketAddress(address="127.0.0.1", port_value=8080)
    assert made.transport_socket is None


def failover(*names: str) -> p.Cluster:
    groups = [group(f"failover-target~{index}~api", "web", "http", [spiffe(name)]) for index, name in enumerate(names)]
    made = p.FailoverGroup(endpoint_groups=groups, config=p.FailoverGroupConfig(connect_timeout=2 * SECOND))
    return p.Cluster(name="api", protocol=Protocol.PROTOCOL_HTTP2, failover_group=made)


def test_failover_group_is_one_cluster_in_which_each_member_has_its_own_identities() -> None:
    state = calling(failover("a", "b"))
    made = one(m.Cluster, state, "api")
    members = ["failover-target~0~api", "failover-target~1~api"]
    assert [each.name for each in made.transport_socket_matches] == members
    assert [each.match.fields for each in made.transport_socket_matches] == [
        {"member": m.Value(string_value=name)} for name in members
    ]
    sockets = [each.transport_socket for each in made.transport_socket_matches]
    for name, socket in zip("ab", sockets, strict=True):
        context = unpacked(m.UpstreamTlsContext, socket.typed_config).common_tls_context
        (identity,) = context.combined_validation_context.default_validation_context.match_typed_subject_alt_names
        assert identity.matcher == m.StringMatcher(exact=spiffe(name))
    # That of an endpoint without a member, which there is not.
    assert made.transport_socket == sockets[0]
    made.transport_socket = None
    assert Resource.of(made).needs == {(Kind.ENDPOINTS, "api"), (Kind.SECRET, "leaf:web"), (Kind.SECRET, "roots:local")}
    assert (made.type, made.connect_timeout) == (m.ClusterDiscoveryType.EDS, 2 * SECOND)
    assert [each.name for each in translate(state)[:2]] == ["api", "out"]
    assert trusted(state.clusters) == {"api": {members[0]: {spiffe("a")}, members[1]: {spiffe("b")}}}


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([], "failover_group.endpoint_groups is empty"),
        ([group("a", "web", "http", [])] * 2, "failover_group: the name 'a' is used twice"),
        ([group("", "web", "http", [])], "failover_group: the name '' is empty"),
        ([p.EndpointGroup(name="a", static=p.StaticEndpointGroup())], r"endpoint_groups\[0\]\.dynamic is missing"),
    ],
)
def test_failover_group_that_no_proxy_could_use_is_refused(groups: list[p.EndpointGroup], problem: str) -> None:
    cluster = p.Cluster(
        name="api", protocol=Protocol.PROTOCOL_HTTP, failover_group=p.FailoverGroup(endpoint_groups=groups)
    )
    with pytest.raises(Unfit, match=problem):
        translate(calling(cluster))


def test_endpoints_of_a_failover_group_have_the_priorities_and_the_names_of_its_members() -> None:
    """A member without endpoints keeps its place."""
    parts = [
        assign(name, REF, found, lambda _: True)
        for name, found in (("a", service_endpoints(1)), ("b", None), ("c", service_endpoints(2)))
    ]
    made = joined("api", parts).message
    assert made.cluster_name == "api"
    assert [(each.priority, len(each.lb_endpoints)) for each in made.endpoints] == [(0, 1), (1, 0), (2, 1)]
    for name, each in (("a", made.endpoints[0]), ("c", made.endpoints[2])):
        (endpoint,) = each.lb_endpoints
        assert endpoint.metadata == m.Metadata(
            filter_metadata={"envoy.transport_socket_match": m.Struct(fields={"member": m.Value(string_value=name)})}
        )
    assert made.policy == parts[0].message.policy


def test_route_matches() -> None:
    match = p.RouteMatch(
        path_match=p.PathMatch(exact="/a"),
        header_matches=[p.HeaderMatch(name="h", suffix="z", invert_match=True), p.HeaderMatch(name="i", present=True)],
        method_matches=["PUT", "GET"],
        query_parameter_matches=[p.QueryParameterMatch(name="q", regex="v.*"), p.QueryParameterMatch(name="r")],
    )
    made = routed(rule(match)).match
    assert made == m.RouteMatch(
        path="/a",
        headers=[
            m.HeaderMatcher(name="h", string_match=m.StringMatcher(suffix="z"), invert_match=True),
            m.HeaderMatcher(name="i", present_match=True),
            m.HeaderMatcher(name=":method", string_match=regex("GET|PUT")),
        ],
        query_parameters=[
            m.QueryParameterMatcher(name="q", string_match=regex("v.*")),
            m.QueryParameterMatcher(name="r", present_match=True),
        ],
    )
    assert routed(rule()).match == m.RouteMatch(prefix="/")
    by_regex = p.RouteMatch(path_match=p.PathMatch(regex="/v[0-9]+"), method_matches=["GET"])
    assert routed(rule(by_regex)).match == m.RouteMatch(
        safe_regex=m.RegexMatcher(regex="/v[0-9]+"),
        headers=[m.HeaderMatcher(name=":method", string_match=m.StringMatcher(exact="GET"))],
    )


def test_timeouts_retries_and_rewrites_of_a_route() -> None:
    config = p.DestinationConfiguration(
        auto_host_rewrite=BoolValue(value=True),
        timeout_config=p.TimeoutConfig(timeout=2 * SECOND, idle_timeout=datetime.timedelta()),
        prefix_rewrite="/new",
        retry_policy=p.RetryPolicy(retry_on="5xx", num_retries=UInt32Value(value=0), retriable_status_codes=[503]),
    )
    assert routed(rule(config=config)).route == m.RouteAction(
        cluster="api",
        auto_host_rewrite=True,
        timeout=2 * SECOND,
        idle_timeout=datetime.timedelta(),
        prefix_rewrite="/new",
        retry_policy=m.RetryPolicy(retry_on="5xx", num_retries=0, retriable_status_codes=[503]),
    )


def test_changes_of_headers() -> None:
    """A percent sign is no command."""
    header, action = p.Header(key="x", value="100%"), p.AppendAction.APPEND_ACTION_OVERWRITE_IF_EXISTS_OR_ADD
    to_request = p.RequestHeaderAdd(header=header, append_action=action)
    to_response = p.ResponseHeaderAdd(header=header, append_action=action)
    changes = [
        p.HeaderMutation(request_header_add=to_request),
        p.HeaderMutation(request_header_remove=p.RequestHeaderRemove(header_keys=["a", "b"])),
        p.HeaderMutation(response_header_add=to_response),
        p.HeaderMutation(response_header_remove=p.ResponseHeaderRemove(header_keys=["c"])),
    ]
    made = routed(rule(changes=changes))
    overwrite = m.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    expected = [m.HeaderValueOption(header=m.HeaderValue(key="x", value="100%%"), append_action=overwrite)]
    assert made.request_headers_to_add == made.response_headers_to_add == expected
    assert (made.request_headers_to_remove, made.response_headers_to_remove) == (["a", "b"], ["c"])


def test_weights_of_requests_and_connections() -> None:
    """A share of 0 of connections is left out, which a proxy would not take."""
    state = calling(dynamic("api", "web", "http", []), to_cluster("api", "v2", weights=[9, 0]))
    state.clusters["v2"] = dynamic("v2", "web", "http", [])
    shares = one(m.RouteConfiguration, state, "r").virtual_hosts[0].routes[0].route.weighted_clusters.clusters
    assert [(each.name, each.weight) for each in shares] == [("api", 9), ("v2", 0)]
    weighted = [
        p.L4WeightedDestinationCluster(name=name, weight=UInt32Value(value=weight))
        for name, weight in (("api", 9), ("v2", 0))
    ]
    listener = outbound("tcp", 1, cluster="api")
    assert listener.routers[0].l4 is not None
    listener.routers[0].l4 = p.L4Destination(weighted_clusters=p.L4WeightedClusterGroup(clusters=weighted))
    state.listeners.append(listener)
    proxy = filters(one(m.Listener, state, "tcp").filter_chains[0])["tcp_proxy"]
    assert [(each.name, each.weight) for each in proxy.weighted_clusters.clusters] == [("api", 9)]


def test_listener_on_a_socket_and_balance() -> None:
    state = calling(dynamic("api", "web", "http", []))
    state.listeners[0].host_port = None
    state.listeners[0].unix_socket = p.UnixSocketAddress(path="/run/api.sock", mode="0660")
    state.listeners[0].balance_connections = Balance.BALANCE_CONNECTIONS_EXACT
    made = one(m.Listener, state, "out")
    assert made.address.pipe == m.Pipe(path="/run/api.sock", mode=0o660)
    assert made.connection_balance_config.exact_balance is not None
    assert made.traffic_direction == m.TrafficDirection.OUTBOUND


def break_weights(state: ProxyState) -> None:
    state.routes["r"] = to_cluster("api", "api", weights=[0, 0])


def break_tls(state: ProxyState) -> None:
    group = state.clusters["api"].endpoint_group
    assert group is not None
    assert group.dynamic is not None
    group.dynamic.outbound_tls = None


def share_a_route(state: ProxyState) -> None:
    other = outbound("other", 9001, route="r")
    assert other.routers[0].l7 is not None
    other.routers[0].l7.traffic_permissions = allowing("web")
    state.listeners.append(other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda it: it.clusters.clear(), "data.proxy_state.routes['r']: no cluster has the name 'api'"),
        (lambda it: it.routes.clear(), "listeners[0].routers[0].l7.route.name: no route has the name 'r'"),
        (lambda it: it.listeners.append(it.listeners[0]), "listeners: the name 'out' is used twice"),
        (lambda it: it.listeners[0].routers.clear(), "listeners[0].routers is empty"),
        (lambda it: it.listeners[0].routers.append(it.listeners[0].routers[0]), "routers[1].match is that of"),
        (lambda it: setattr(it.listeners[0], "host_port", None), "listeners[0] has no address"),
        (lambda it: it.routes["r"].virtual_hosts.append(it.routes["r"].virtual_hosts[0]), "'*' is in two places"),
        (break_weights, "the sum of the weights is 0"),
        (break_tls, "endpoint_group.dynamic.outbound_tls is missing"),
        (share_a_route, "another router with the route 'r' has other permissions"),
    ],
)
def test_state_that_no_proxy_takes_is_refused_by_name(change: Callable[[ProxyState], None], words: str) -> None:
    state = calling(dynamic("api", "web", "http", []))
    change(state)
    with pytest.raises(Unfit) as raised:
        translate(state)
    assert words in str(raised.value)


def assigned(given: ServiceEndpoints) -> list[tuple[Any, ...]]:
    made = assign("api", REF, given, lambda name: name == "api")
    return [
        (
            each.endpoint.address.socket_address.address,
            each.endpoint.address.socket_address.port_value,
            m.HealthStatus(each.health_status).name,
            each.load_balancing_weight,
        )
        for group in made.message.endpoints
        for each in group.lb_endpoints
        if each.endpoint and each.endpoint.address and each.endpoint.address.socket_address
    ]


@pytest.mark.parametrize(
    ("health", "expected", "weight"),
    [
        (Health.HEALTH_PASSING, "HEALTHY", 5),
        (Health.HEALTH_WARNING, "HEALTHY", 1),
        (Health.HEALTH_CRITICAL, "UNHEALTHY", 5),
        (Health.HEALTH_MAINTENANCE, "DRAINING", 5),
    ],
)
def test_xc4_w15_health_and_weights_of_endpoints(health: Health, expected: str, weight: int) -> None:
    given = service_endpoints(7, health=health)
    given.endpoints[0].dns = DNSPolicy(weights=Weights(passing=5, warning=0))
    assert assigned(given) == [("127.0.0.1", 7, expected, weight)]


def test_xc4_only_internal_addresses_with_both_ports_count() -> None:
    given = service_endpoints(7)
    given.endpoints[0].addresses = [
        WorkloadAddress(host="10.0.0.3", ports=["mesh", "http"]),
        WorkloadAddress(host="10.0.0.2", ports=["mesh"]),
        WorkloadAddress(host="10.0.0.1"),
        WorkloadAddress(host="10.0.0.4", external=True),
    ]
    assert [each[0] for each in assigned(given)] == ["10.0.0.1", "10.0.0.3"]
    del given.endpoints[0].ports["http"]
    assert assigned(given) == []


def test_xc4_w8_unusable_endpoint_leaves_the_others() -> None:
    given = ServiceEndpoints(
        endpoints=[*service_endpoints(1, host="db.example").endpoints, *service_endpoints(2).endpoints]
    )
    assert assigned(given) == [("127.0.0.1", 2, "HEALTHY", 1)]
    assert assign("api", REF, given, lambda _: True).problems == ("'db.example' is not an IP address",)


def test_xc3_reference_without_endpoints_gives_an_empty_list() -> None:
    """The proxy is answered, and does not wait."""
    made = assign("api", REF, None, lambda _: True)
    assert (made.message.cluster_name, made.message.endpoints, made.problems) == ("api", [], ())


def test_one_address_twice_is_one_endpoint_and_healthy_if_any_is() -> None:
    given = ServiceEndpoints(
        endpoints=[*service_endpoints(2, health=Health.HEALTH_CRITICAL).endpoints, *service_endpoints(2).endpoints]
    )
    assert assigned(given) == [("127.0.0.1", 2, "HEALTHY", 1)]


NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def states(draw: st.DrawFn) -> ProxyState:
    """Draw a valid state: of the inbound part, and of listeners with routes and connections to clusters."""
    permitted = draw(st.sampled_from([allowing(), allowing("web"), p.TrafficPermissions(default_allow=True)]))
    state = server(
        "api",
        1,
        http=draw(st.integers(0, 1)),
        tcp=draw(st.integers(0, 1)),
        permitted=permitted,
        most=draw(st.integers(0, 2)),
    )
    if not state.listeners[0].routers:
        state.listeners.clear()
    names = draw(st.lists(NAMES, min_size=1, unique=True))
    for name in names:
        protocol = draw(st.sampled_from([Protocol.PROTOCOL_TCP, Protocol.PROTOCOL_HTTP, Protocol.PROTOCOL_GRPC]))
        ids = draw(st.lists(st.sampled_from([spiffe("x"), spiffe("y")])))
        cluster = dynamic(name, "api", "http", ids, protocol)
        if draw(st.booleans()):
            groups = [
                group(f"failover-target~{index}~{name}", "api", "http", ids) for index in range(draw(st.integers(1, 3)))
            ]
            cluster = p.Cluster(name=name, protocol=protocol, failover_group=p.FailoverGroup(endpoint_groups=groups))
        state.clusters[name] = cluster
    for index in range(draw(st.integers(0, 3))):
        targets = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        if draw(st.booleans()):
            weights = draw(st.lists(st.integers(0, 100), min_size=len(targets), max_size=len(targets)))
            weights[0] = max(1, weights[0])
            state.routes[f"r{index}"] = to_cluster(*targets, weights=weights)
            state.listeners.append(outbound(f"out{index}", 9000 + index, route=f"r{index}"))
        else:
            state.listeners.append(outbound(f"out{index}", 9000 + index, cluster=targets[0]))
    return state


def used_clusters(made: list[Any]) -> set[str]:
    found: set[str] = set()
    each: Any
    for each in made:
        if isinstance(each, m.RouteConfiguration):
            for action in (cast("Any", rule.route) for host in each.virtual_hosts for rule in host.routes):
                found |= (
                    {one.name for one in action.weighted_clusters.clusters}
                    if action.weighted_clusters
                    else {action.cluster}
                )
        elif isinstance(each, m.Listener):
            for chain in each.filter_chains:
                proxy = filters(chain).get("tcp_proxy")
                if proxy is not None:
                    found.add(proxy.cluster)
    return found


@given(states())
def test_whatever_is_valid_becomes_resources_whose_names_are_unique_and_known(state: ProxyState) -> None:
    """Equal states give equal bytes."""
    made = translate(state)
    accepted = trusted(state.clusters)
    for name, groups in accepted.items():
        parts = [assign(each, REF, service_endpoints(1), lambda _: True) for each in groups]
        made.append(joined(name, parts).message)
    made += [leaf_secret("api", "chain", "key"), roots_secret(LOCAL, ["root"])]
    snapshot = Snapshot(map(Resource.of, made))
    assert sum(1 for _ in snapshot) == len(made)
    assert used_clusters(made) <= set(snapshot[Kind.CLUSTER])
    for each in snapshot:
        for kind, name in each.needs:
            assert name in snapshot[kind], f"{each} needs {kind.name} {name}"
    assert set(snapshot[Kind.ENDPOINTS]) == {
        name for name, each in snapshot[Kind.CLUSTER].items() if any(kind is Kind.ENDPOINTS for kind, _ in each.needs)
    }
    assert list(map(Resource.of, translate(state))) == [Resource.of(each) for each in made[: len(translate(state))]]


def test_outbound_tls_without_identities_is_refused_only_if_it_names_no_context() -> None:
    socket = outbound_tls("web", "http", [])
    assert socket.outbound_mesh is not None
    socket.outbound_mesh.validation_context = None
    cluster = dynamic("api", "web", "http", [])
    assert cluster.endpoint_group is not None
    assert cluster.endpoint_group.dynamic is not None
    cluster.endpoint_group.dynamic.outbound_tls = socket
    with pytest.raises(Unfit, match="validation_context is missing"):
        translate(calling(cluster))
