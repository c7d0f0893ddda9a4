"""The routing of a service without an engine: facts RT-5 to RT-17, and scenarios of Consul's."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from catalog.messages import ComputedFailoverPolicy, FailoverConfig, FailoverDestination, Protocol, Service
from catalog.types import COMPUTED_FAILOVER_POLICY, SERVICE
from headway import Resource
from mesh.messages import (
    BackendTargetDetailsType,
    ComputedPortRoutes,
    ComputedRoutes,
    DestinationConfig,
    DestinationPolicy,
    GRPCMethodMatch,
    GRPCMethodMatchType,
    GRPCRouteMatch,
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRouteMatch,
    HTTPRouteRule,
    HTTPRouteTimeouts,
    PathMatchType,
    TCPRoute,
)
from mesh.routing.accepting import of_policy, of_routes
from mesh.routing.compute import computed_routes
from mesh.types import COMPUTED_ROUTES, DESTINATION_POLICY, GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE
from tests.catalog.checks.hooked import stored
from tests.mesh.refs import backend, grpc, http, parent, tcp, to_grpc, to_http, to_tcp
from tests.mesh.routed import (
    GRPC,
    HTTP,
    HTTP2,
    MESH,
    TCP,
    UNKNOWN,
    Given,
    at,
    backends,
    key,
    rules_of,
    service,
)

API = SERVICE.id("api")
NULL = [("NULL-ROUTE", 0)]


def named(name: str, data: Service | None = None) -> Resource[Service]:
    return SERVICE.new(name, service() if data is None else data)


def computed(*given: Resource[Any], name: str = "api") -> ComputedRoutes:
    """Return the routing of a service. It is one that a store takes."""
    found = computed_routes(SERVICE.id(name), Given(*given))
    assert found is not None
    return stored(COMPUTED_ROUTES.new(name, found)).data


def port(*given: Resource[Any], name: str = "http") -> ComputedPortRoutes:
    return computed(*given).ported_configs[name]


def reasons(route: Resource[Any], *given: Resource[Any]) -> list[str]:
    return [each.reason for each in of_routes([route], Given(route, *given))[0]]


@pytest.mark.parametrize("ports", [{}, {"http": HTTP}, {"mesh": MESH}, {"odd": UNKNOWN, "mesh": MESH}])
def test_service_to_which_no_traffic_can_be_sent_has_no_routes(ports: dict[str, Protocol]) -> None:
    """RT-5, and RT-9 for a port of an unknown protocol."""
    data = service(**ports) if ports else Service()
    assert computed_routes(API, Given(named("api", data))) is None
    assert computed_routes(API, Given()) is None


def test_ports_have_a_route_to_the_service_itself_by_default() -> None:
    """RT-9, RT-12: scenarios 1 and 2."""
    found = computed(named("api", service(tcp=TCP, http=HTTP, http2=HTTP2, grpc=GRPC, mesh=MESH))).ported_configs
    kinds = {
        name: [kind for kind in ("http", "grpc", "tcp") if getattr(config, kind) is not None]
        for name, config in found.items()
    }
    assert kinds == {"grpc": ["grpc"], "http": ["http"], "http2": ["http"], "tcp": ["tcp"]}
    for name, config in found.items():
        assert config.using_default_config
        assert backends(rules_of(config)) == [[(key("api", name), 0)]]
        target = config.targets[key("api", name)]
        assert (target.type, target.mesh_port) == (BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_DIRECT, "mesh")
        assert config.parent_ref == parent("api", name)
    assert rules_of(found["http"])[0].matches == [any_path()]


def any_path(**given: Any) -> HTTPRouteMatch:
    return HTTPRouteMatch(path=HTTPPathMatch(type=PathMatchType.PATH_MATCH_TYPE_PREFIX, value="/"), **given)


def test_route_of_each_kind_has_the_ports_that_it_names() -> None:
    """RT-6, RT-7, RT-8, RT-13 and RT-14: scenario 3."""
    all_ports = service(http=HTTP, grpc=GRPC, tcp=TCP, mesh=MESH)
    routes: list[Resource[Any]] = [
        HTTP_ROUTE.new("h", http(to_http("foo"), parents=[parent("api", "http")])),
        GRPC_ROUTE.new("g", grpc(to_grpc("foo"))),
        TCP_ROUTE.new("t", tcp(to_tcp("foo"))),
    ]
    routes[1].data.parent_refs[0].port = "9090"
    routes[2].data.parent_refs[0].port = "tcp"
    found = computed(named("api", all_ports), named("foo", all_ports), *routes).ported_configs
    assert {name: backends(rules_of(config)) for name, config in found.items()} == {
        "http": [[(key("foo", "http"), 1)], NULL],
        "grpc": [[(key("foo", "grpc"), 1)], NULL],
        "tcp": [[(key("foo", "tcp"), 1)]],
    }
    assert [found[name].protocol for name in ("http", "grpc", "tcp")] == [HTTP, GRPC, TCP]
    assert not any(config.using_default_config for config in found.values())
    assert [reasons(each, named("api", all_ports), named("foo", all_ports)) for each in routes] == [["Ok"]] * 3


@pytest.mark.parametrize(
    ("route", "protocol", "expected"),
    [
        (HTTP_ROUTE.new("r", http()), TCP, HTTP),
        (HTTP_ROUTE.new("r", http()), HTTP2, HTTP2),
        (GRPC_ROUTE.new("r", grpc()), HTTP, GRPC),
        (TCP_ROUTE.new("r", tcp()), HTTP, TCP),
    ],
)
def test_kind_of_a_route_decides_on_the_protocol(route: Resource[Any], protocol: Protocol, expected: Protocol) -> None:
    """RT-14. A route without rules has the rule that fails alone (RT-13)."""
    config = port(named("api", service(http=protocol, mesh=MESH)), route)
    assert config.protocol == expected
    assert backends(rules_of(config)) == [NULL]


@pytest.mark.parametrize(
    ("foo", "text", "reason"),
    [
        (None, "", "MissingBackendRef"),
        (service(http=HTTP), "", "BackendRefOutsideMesh"),
        (service(grpc=GRPC, mesh=MESH), "", "UnknownBackendRefPort"),
        (service(), "9090", "UnknownBackendRefPort"),
        (service(), "mesh", "BackendRefUsingMeshPort"),
    ],
)
def test_share_of_a_backend_that_cannot_be_reached_fails(foo: Service | None, text: str, reason: str) -> None:
    """RT-7: scenario 4. The weights stay, and the other backend gets no more than its share."""
    rule = to_http("bar", "foo", weight=5)
    rule.backend_refs[1].backend_ref = backend("foo", text)
    route = HTTP_ROUTE.new("r", http(rule))
    given = [named("api"), named("bar"), *([] if foo is None else [named("foo", foo)])]
    assert backends(rules_of(port(*given, route))) == [[(key("bar"), 5), ("NULL-ROUTE", 5)], NULL]
    assert reasons(route, *given) == [reason]


@pytest.mark.parametrize(
    ("ports", "data", "found"),
    [
        ([""], None, ["MissingParentRef"]),
        ([""], service(http=HTTP), ["ParentRefOutsideMesh"]),
        (["grpc"], service(), ["UnknownParentRefPort"]),
        (["mesh"], service(), ["ParentRefUsingMeshPort"]),
        (["http", "8080"], service(), ["ConflictParentRefPort"]),
        (["grpc", "mesh"], service(), ["ParentRefUsingMeshPort", "UnknownParentRefPort"]),
        (["8080"], service(), ["Ok"]),
    ],
)
def test_every_fault_of_a_parent_is_reported(ports: list[str], data: Service | None, found: list[str]) -> None:
    """RT-6 and RT-18."""
    route = HTTP_ROUTE.new("r", http(parents=[parent("api", each) for each in ports]))
    assert reasons(route, *([] if data is None else [named("api", data)])) == found


def test_two_backends_of_one_rule_conflict_and_those_of_two_rules_do_not() -> None:
    both = to_http("foo", "foo")
    both.backend_refs[0].backend_ref, both.backend_refs[1].backend_ref = backend("foo", "http"), backend("foo", "8080")
    assert reasons(HTTP_ROUTE.new("r", http(both)), named("api"), named("foo")) == ["ConflictBackendRefPort"]
    assert reasons(HTTP_ROUTE.new("r", http(to_http("foo"), to_http("foo"))), named("api"), named("foo")) == ["Ok"]


def test_route_to_the_mesh_port_has_one_fault() -> None:
    """RT-6: it has no port, so its backends are not looked for under the name of one."""
    route = HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api", "mesh")]))
    assert reasons(route, named("api"), named("foo")) == ["ParentRefUsingMeshPort"]


def test_oldest_route_decides_on_the_kind_whatever_is_edited_later() -> None:
    """RT-10: scenarios 5 and 6, and W-11: a generation has no say."""
    data = service(http=HTTP, grpc=GRPC, mesh=MESH)
    old = at(1, TCP_ROUTE.new("z", TCPRoute(parent_refs=[parent("api", "http")], rules=[to_tcp("foo")])))
    new = at(2, HTTP_ROUTE.new("a", http(to_http("foo"))))
    given = [named("api", data), named("foo", data)]
    found = computed(*given, new, old).ported_configs
    assert {name: backends(rules_of(found[name])) for name in found} == {
        "http": [[(key("foo"), 1)]],
        "grpc": [[(key("foo", "grpc"), 1)], NULL],
    }
    assert found["http"].tcp is not None
    assert reasons(new, old, *given) == ["ConflictNotBoundToParentRef"]
    assert reasons(old, new, *given) == ["Ok"]


def test_routes_of_one_kind_share_a_port_but_tcp_routes_do_not() -> None:
    """RT-10 and W-12: a second rule for all connections could never be used, and stopped Consul's builder."""
    routes = [at(age, HTTP_ROUTE.new(name, http(to_http(name)))) for age, name in ((2, "a"), (1, "b"))]
    given = [named(name) for name in ("api", "a", "b")]
    assert backends(rules_of(port(*given, *routes))) == [[(key("b"), 1)], [(key("a"), 1)], NULL]
    single: list[Resource[Any]] = [
        at(age, TCP_ROUTE.new(name, tcp(to_tcp(name)))) for age, name in ((2, "a"), (1, "b"))
    ]
    assert backends(rules_of(port(*given, *single))) == [[(key("b"), 1)]]
    assert [reasons(each, *single, *given) for each in single] == [["ConflictNotBoundToParentRef"], ["Ok"]]


def path(type: PathMatchType, value: str) -> HTTPRouteMatch:
    return HTTPRouteMatch(path=HTTPPathMatch(type=type, value=value))


HEADER, PARAM = HTTPHeaderMatch(name="x"), HTTPQueryParamMatch(name="x")
IN_ORDER = [
    [path(PathMatchType.PATH_MATCH_TYPE_PREFIX, "/"), path(PathMatchType.PATH_MATCH_TYPE_EXACT, "/a")],
    [path(PathMatchType.PATH_MATCH_TYPE_PREFIX, "/abc")],
    [path(PathMatchType.PATH_MATCH_TYPE_PREFIX, "/ab")],
    [path(PathMatchType.PATH_MATCH_TYPE_REGEX, "/.*")],
    [HTTPRouteMatch(method="GET")],
    [HTTPRouteMatch(headers=[HEADER, HEADER])],
    [HTTPRouteMatch(headers=[HEADER], query_params=[PARAM])],
    [HTTPRouteMatch(headers=[HEADER])],
    [HTTPRouteMatch(query_params=[PARAM])],
    [],
]


def test_rules_of_http_are_sorted_by_what_they_ask_for() -> None:
    """RT-11 and RT-12: a match without a path gets one, and a rule without matches has all requests.

    A pattern comes before the rules for all paths. Consul puts it after them, where it is never tried.
    """
    rules = [HTTPRouteRule(matches=matches, backend_refs=to_http("api").backend_refs) for matches in IN_ORDER]
    route = HTTP_ROUTE.new("r", http(*reversed(rules)))
    found = rules_of(port(named("api"), route))
    filled = [[each if each.path else any_path(**plain(each)) for each in one] or [any_path()] for one in IN_ORDER]
    assert [rule.matches for rule in found] == [*filled, [any_path()]]


def plain(match: HTTPRouteMatch) -> dict[str, Any]:
    return {"headers": match.headers, "query_params": match.query_params, "method": match.method}


def test_rules_of_grpc_are_sorted_too() -> None:
    """W-11: Consul leaves them in the order of their routes."""
    exact = GRPCMethodMatchType.GRPC_METHOD_MATCH_TYPE_EXACT
    in_order = [
        [GRPCRouteMatch(method=GRPCMethodMatch(type=exact, service="s", method="m"))],
        [GRPCRouteMatch(method=GRPCMethodMatch(type=exact, service="s"))],
        [GRPCRouteMatch(method=GRPCMethodMatch(type=GRPCMethodMatchType(2), service="s.*"))],
        [GRPCRouteMatch()],
    ]
    rules = [to_grpc("api") for _ in in_order]
    for rule, matches in zip(rules, in_order, strict=True):
        rule.matches = matches
    found = rules_of(port(named("api"), GRPC_ROUTE.new("r", grpc(*reversed(rules)))))
    assert [rule.matches for rule in found] == [*in_order, [GRPCRouteMatch()]]


def failover(of: str, *names: str) -> Resource[ComputedFailoverPolicy]:
    named = [FailoverDestination(ref=SERVICE.id(name).reference(), port="http") for name in names]
    return COMPUTED_FAILOVER_POLICY.new(
        of, ComputedFailoverPolicy(port_configs={"http": FailoverConfig(destinations=named)})
    )


def test_connect_timeout_of_0_is_that_by_default() -> None:
    """RT-16: a proxy refuses a cluster with 0 s."""
    config = DestinationConfig(connect_timeout=datetime.timedelta())
    given = DESTINATION_POLICY.new("api", DestinationPolicy(port_configs={"http": config}))
    target = port(named("api"), given).targets[key("api")]
    assert target.destination_config is not None
    assert target.destination_config.connect_timeout == datetime.timedelta(seconds=5)


def policy(name: str, **ports: int) -> Resource[DestinationPolicy]:
    configs = {
        port.lstrip("_"): DestinationConfig(request_timeout=datetime.timedelta(seconds=seconds))
        for port, seconds in ports.items()
    }
    return DESTINATION_POLICY.new(name, DestinationPolicy(port_configs=configs))


@pytest.mark.parametrize("names", [("api", "a"), ("a", "api")])
def test_failover_adds_targets_that_stand_in(names: tuple[str, str]) -> None:
    """RT-15 and RT-16: scenario 10. A destination that cannot be reached is left out, and a direct one stays direct."""
    rule = to_http(*names)
    config = port(
        named("api"),
        named("a"),
        named("b"),
        named("c", service(http=HTTP)),
        failover("api", "missing", "c", "b", "a", "b"),
        policy("b", http=7),
        HTTP_ROUTE.new("r", http(rule)),
    )
    direct, indirect = BackendTargetDetailsType(1), BackendTargetDetailsType(2)
    assert {name: each.type for name, each in config.targets.items()} == {
        key("api"): direct,
        key("a"): direct,
        key("b"): indirect,
    }
    found = config.targets[key("api")].failover_config
    assert found is not None
    assert [each.backend_target for each in found.destinations] == [key("b"), key("a")]
    of_b = config.targets[key("b")].destination_config
    assert of_b is not None
    assert (of_b.connect_timeout, of_b.request_timeout) == (
        datetime.timedelta(seconds=5),
        datetime.timedelta(seconds=7),
    )


def test_rule_without_a_request_timeout_takes_the_first_of_its_targets() -> None:
    """RT-16. The key of a target port wins over that of its virtual port."""
    given: list[Resource[Any]] = [
        named("api"),
        named("a"),
        named("b"),
        policy("a", http=3, _8080=4),
        policy("b", _8080=5),
    ]
    own = to_http("a")
    own.timeouts = HTTPRouteTimeouts(request=datetime.timedelta(seconds=1))
    idle = to_http("b", "a")
    idle.timeouts = HTTPRouteTimeouts(idle=datetime.timedelta(seconds=9))
    rules = rules_of(port(*given, HTTP_ROUTE.new("r", http(own, idle, to_http("a"), to_http("api")))))
    seconds = [None if each.timeouts is None else each.timeouts.request for each in rules]
    assert seconds == [*(datetime.timedelta(seconds=each) for each in (1, 5, 3)), None, None]
    assert rules[1].timeouts.idle == datetime.timedelta(seconds=9)


def test_virtual_and_target_ports_give_equal_routes() -> None:
    """Scenario 9."""
    found = []
    for text in ("http", "8080"):
        rule = to_http("foo")
        rule.backend_refs[0].backend_ref = backend("foo", text)
        route = HTTP_ROUTE.new("r", http(rule, parents=[parent("api", text)]))
        found.append(computed(named("api"), named("foo"), route, policy("foo", **{f"_{text}": 3})))
    assert found[0] == found[1]


def test_what_was_used_is_bound() -> None:
    """RT-17: sorted, and each once."""
    given: list[Resource[Any]] = [
        named("api"),
        named("a"),
        failover("a", "b"),
        named("b"),
        policy("b", http=1),
        named("other"),
    ]
    found = computed(*given, HTTP_ROUTE.new("r", http(to_http("a"), to_http("a", "missing"))))
    assert [(each.type.kind if each.type else "", each.name) for each in found.bound_references] == [
        ("ComputedFailoverPolicy", "a"),
        ("Service", "a"),
        ("Service", "api"),
        ("Service", "b"),
        ("DestinationPolicy", "b"),
        ("HTTPRoute", "r"),
    ]


@pytest.mark.parametrize(
    ("ports", "data", "found"),
    [
        ({"http": 1}, service(), ["Ok"]),
        ({"http": 1}, None, ["DestinationServiceNotFound"]),
        ({"grpc": 1}, service(), ["UnknownDestinationPort"]),
        ({"http": 1, "_8080": 1}, service(), ["ConflictDestinationPort"]),
    ],
)
def test_faults_of_a_destination_policy_are_reported(
    ports: dict[str, int], data: Service | None, found: list[str]
) -> None:
    """RT-18."""
    given = policy("api", **ports)
    view = Given(given, *([] if data is None else [named("api", data)]))
    assert [each.reason for each in of_policy(given, API, view)] == found


def test_status_has_at_most_fifty_faults() -> None:
    route = HTTP_ROUTE.new("r", http(to_http(*(f"s{number}" for number in range(60)))))
    assert len(reasons(route, named("api"))) == 50
