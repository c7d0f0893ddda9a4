"""Routes: facts MT-5 to MT-9."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from headway import Resource
from headway.resource import pb
from mesh.messages import (
    BackendReference,
    GRPCMethodMatch,
    GRPCMethodMatchType,
    GRPCRouteFilter,
    GRPCRouteMatch,
    HeaderMatchType,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRoute,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPRouteTimeouts,
    HTTPURLRewriteFilter,
    ParentReference,
    PathMatchType,
    QueryParamMatchType,
    TCPRoute,
)
from mesh.types import GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE
from tests.catalog.checks.hooked import faults, refused, stored
from tests.mesh.refs import bare, grpc, http, parent, ref, tcp, to_grpc, to_http, to_tcp

EXACT, PREFIX, REGEX = (
    PathMatchType.PATH_MATCH_TYPE_EXACT,
    PathMatchType.PATH_MATCH_TYPE_PREFIX,
    PathMatchType.PATH_MATCH_TYPE_REGEX,
)
RULE = "data.rules[0]"


def test_tenancies_are_completed_and_methods_are_in_upper_case() -> None:
    """MT-5."""
    rule = to_http("x")
    rule.backend_refs[0].backend_ref = BackendReference(ref=bare("x"))
    rule.matches = [HTTPRouteMatch(method="get")]
    route = http(rule, parents=[ParentReference(ref=bare("api"))])
    kept = stored(HTTP_ROUTE.new("r", route, partition="far", namespace="lab")).data
    target = kept.rules[0].backend_refs[0].backend_ref
    assert kept.parent_refs[0].ref is not None
    assert target is not None
    assert target.ref is not None
    for each in (kept.parent_refs[0].ref, target.ref):
        assert each.tenancy == pb.Tenancy(partition="far", namespace="lab")
    assert kept.rules[0].matches[0].method == "GET"


PARENTS: list[tuple[list[ParentReference], list[str]]] = [
    ([parent("api")], []),
    ([parent("api", "http"), parent("api", "grpc"), parent("web")], []),
    ([parent("api", "8080")], []),
    ([], ["data.parent_refs"]),
    ([ParentReference()], ["data.parent_refs[0].ref"]),
    ([ParentReference(ref=ref("api", "lab"))], ["data.parent_refs[0].ref.tenancy"]),
    ([parent("api", "!")], ["data.parent_refs[0].port"]),
    ([parent("api", "http"), parent("api", "http")], ["data.parent_refs[1].port"]),
    ([parent("api"), parent("api")], ["data.parent_refs[1].port"]),
    ([parent("api"), parent("api", "http")], ["data.parent_refs[1].port"]),
    ([parent("api", "http"), parent("api")], ["data.parent_refs[1].port"]),
]


@pytest.mark.parametrize(("parents", "found"), PARENTS)
def test_parents_are_checked(parents: list[ParentReference], found: list[str]) -> None:
    """MT-6."""
    assert faults(HTTP_ROUTE.new("r", http(parents=parents))) == found
    assert faults(TCP_ROUTE.new("r", TCPRoute(parent_refs=parents))) == found


def routes(*names: str) -> list[Resource[Any]]:
    return [
        HTTP_ROUTE.new("r", http(to_http(*names))),
        GRPC_ROUTE.new("r", grpc(to_grpc(*names))),
        TCP_ROUTE.new("r", tcp(to_tcp(*names))),
    ]


def test_rules_have_backends() -> None:
    """MT-7: a route without rules is valid."""
    assert [faults(each) for each in routes("a", "b")] == [[], [], []]
    assert [faults(each) for each in routes()] == [[f"{RULE}.backend_refs"]] * 3
    for each in (HTTP_ROUTE.new("r", http()), GRPC_ROUTE.new("r", grpc()), TCP_ROUTE.new("r", tcp())):
        assert faults(each) == []
    for each in routes("a"):
        each.data.rules[0].backend_refs[0].backend_ref.datacenter = "dc2"
        assert faults(each) == [f"{RULE}.backend_refs[0].backend_ref.datacenter"]
    for each in routes("a"):
        each.data.rules[0].backend_refs[0].backend_ref.ref = HTTP_ROUTE.id("x").reference()
        assert faults(each) == [f"{RULE}.backend_refs[0].backend_ref.ref.type"]
    for each in routes("a"):
        each.data.rules[0].backend_refs[0].backend_ref = None
        assert faults(each) == [f"{RULE}.backend_refs[0].backend_ref"]


def test_features_that_no_proxy_of_this_mesh_has_are_refused() -> None:
    """MT-7."""
    for each in (HTTP_ROUTE.new("r", http()), GRPC_ROUTE.new("r", grpc())):
        each.data.hostnames = ["example.com"]
        assert faults(each) == ["data.hostnames"]
    for each, filter in zip(routes("a")[:2], (HTTPRouteFilter(), GRPCRouteFilter()), strict=True):
        each.data.rules[0].backend_refs[0].filters = [filter]
        assert faults(each) == [f"{RULE}.backend_refs[0].filters"]
    refused(TCP_ROUTE.new("r", tcp(to_tcp("a"), to_tcp("b"))), "data.rules has 2 rules")


@pytest.mark.parametrize(
    ("match", "fault"),
    [
        (HTTPRouteMatch(), ""),
        (HTTPRouteMatch(path=HTTPPathMatch(type=EXACT, value="/a")), ""),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value="/v[0-9]+")), ""),
        (HTTPRouteMatch(path=HTTPPathMatch(value="/a")), "path.type"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=PREFIX, value="a")), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=EXACT)), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX)), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value="(")), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value="(?=a)")), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value="a" * 1025)), "path.value"),
        # An Envoy compares bytes, so a pattern has no characters above 255, and each é is two.
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value="/é")), ""),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value=r"/\x{10FFFF}")), "path.value"),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value=".{1,300}")), ""),
        (HTTPRouteMatch(path=HTTPPathMatch(type=REGEX, value=".{1,500}")), "path.value"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(name="x")]), "headers[0].type"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(3))]), "headers[0].name"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(2), name="x", value="[")]), "headers[0].value"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(1), name=":authority")]), ""),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(1), name="x y")]), "headers[0].name"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(4), name="x")]), "headers[0].value"),
        (HTTPRouteMatch(headers=[HTTPHeaderMatch(type=HeaderMatchType(5), name="x")]), "headers[0].value"),
        (HTTPRouteMatch(query_params=[HTTPQueryParamMatch(type=QueryParamMatchType(3), name="x" * 1024)]), ""),
        (
            HTTPRouteMatch(query_params=[HTTPQueryParamMatch(type=QueryParamMatchType(3), name="x" * 1025)]),
            "query_params[0].name",
        ),
        (
            HTTPRouteMatch(query_params=[HTTPQueryParamMatch(type=QueryParamMatchType(2), name="x", value="[")]),
            "query_params[0].value",
        ),
        (HTTPRouteMatch(query_params=[HTTPQueryParamMatch(name="x")]), "query_params[0].type"),
        (HTTPRouteMatch(query_params=[HTTPQueryParamMatch(type=QueryParamMatchType(1))]), "query_params[0].name"),
        (HTTPRouteMatch(method="post"), ""),
        (HTTPRouteMatch(method="FETCH"), "method"),
    ],
)
def test_match_of_http_is_checked(match: HTTPRouteMatch, fault: str) -> None:
    """MT-8. What a proxy does not take is refused as well, such as a pattern that it cannot compile."""
    rule = to_http("a")
    rule.matches = [match]
    assert faults(HTTP_ROUTE.new("r", http(rule))) == ([f"{RULE}.matches[0].{fault}"] if fault else [])


@pytest.mark.parametrize(
    ("method", "found"),
    [
        (GRPCMethodMatch(type=GRPCMethodMatchType(1), service="s"), []),
        (GRPCMethodMatch(type=GRPCMethodMatchType(1), method="m"), []),
        (GRPCMethodMatch(service="s"), [".type"]),
        (GRPCMethodMatch(type=GRPCMethodMatchType(1)), [""]),
        (GRPCMethodMatch(type=GRPCMethodMatchType(2), service="(", method="["), [".service", ".method"]),
    ],
)
def test_match_of_grpc_is_checked(method: GRPCMethodMatch, found: list[str]) -> None:
    """MT-8."""
    rule = to_grpc("a")
    rule.matches = [GRPCRouteMatch(method=method)]
    assert faults(GRPC_ROUTE.new("r", grpc(rule))) == [f"{RULE}.matches[0].method{each}" for each in found]


@pytest.mark.parametrize(
    ("weights", "is_valid"), [([0], True), ([0, 1], True), ([0, 0], False), ([1 << 31, 1 << 31], False)]
)
def test_weights_of_several_backends_make_shares(weights: list[int], is_valid: bool) -> None:
    """MT-8: Consul takes weights that a proxy refuses. One backend has all traffic, whatever its weight."""
    for each in routes(*"ab"[: len(weights)]):
        for target, weight in zip(each.data.rules[0].backend_refs, weights, strict=True):
            target.weight = weight
        assert faults(each) == ([] if is_valid else [f"{RULE}.backend_refs"])


REQUEST = HTTPRouteFilter(request_header_modifier=HTTPHeaderFilter())
RESPONSE = HTTPRouteFilter(response_header_modifier=HTTPHeaderFilter())
REWRITE = HTTPRouteFilter(url_rewrite=HTTPURLRewriteFilter(path_prefix="/"))


@pytest.mark.parametrize(
    ("filters", "fault"),
    [
        ([REQUEST, RESPONSE], ""),
        ([RESPONSE, REWRITE], ""),
        ([REQUEST, REWRITE], ".filters"),
        ([HTTPRouteFilter()], ".filters[0]"),
        ([HTTPRouteFilter(url_rewrite=HTTPURLRewriteFilter())], ".filters[0].url_rewrite.path_prefix"),
        (
            [HTTPRouteFilter(url_rewrite=HTTPURLRewriteFilter(path_prefix="/\n"))],
            ".filters[0].url_rewrite.path_prefix",
        ),
    ],
)
def test_filters_are_checked(filters: list[HTTPRouteFilter], fault: str) -> None:
    """MT-9."""
    rule = to_http("a")
    rule.filters = filters
    assert faults(HTTP_ROUTE.new("r", http(rule))) == ([RULE + fault] if fault else [])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (HTTPHeaderFilter(set=[HTTPHeader(name="x", value="a b")], add=[HTTPHeader(name="x")], remove=["x"]), ""),
        (HTTPHeaderFilter(set=[HTTPHeader(value="a")]), ".set[0].name"),
        (HTTPHeaderFilter(add=[HTTPHeader(name=":path", value="/")]), ".add[0].name"),
        (HTTPHeaderFilter(add=[HTTPHeader(name="x"), HTTPHeader(name="Host")]), ".add[1].name"),
        (HTTPHeaderFilter(add=[HTTPHeader(name="x" * 16_385)]), ".add[0].name"),
        (HTTPHeaderFilter(remove=["x", ""]), ".remove[1]"),
        (HTTPHeaderFilter(set=[HTTPHeader(name="x", value="a\r\nb: c")]), ".set[0].value"),
        (HTTPHeaderFilter(set=[HTTPHeader(name="x", value="a" * 16_385)]), ".set[0].value"),
        (HTTPHeaderFilter(set=[HTTPHeader(name="x", value="%" * 8_193)]), ".set[0].value"),
    ],
)
def test_changes_of_headers_are_checked(changes: HTTPHeaderFilter, fault: str) -> None:
    """MT-9: a proxy refuses a route with any other, with all of its rules."""
    for member in ("request_header_modifier", "response_header_modifier"):
        rule, method = to_http("a"), to_grpc("a")
        rule.filters, method.filters = [HTTPRouteFilter()], [GRPCRouteFilter()]
        setattr(rule.filters[0], member, changes)
        setattr(method.filters[0], member, changes)
        found = [f"{RULE}.filters[0].{member}{fault}"] if fault else []
        assert faults(HTTP_ROUTE.new("r", http(rule))) == found
        assert faults(GRPC_ROUTE.new("r", grpc(method))) == found


def test_grpc_may_change_headers_and_rewrite() -> None:
    """MT-9: only HTTP has the rule that they exclude each other."""
    rule = to_grpc("a")
    rule.filters = [
        GRPCRouteFilter(request_header_modifier=HTTPHeaderFilter()),
        GRPCRouteFilter(url_rewrite=HTTPURLRewriteFilter(path_prefix="/")),
    ]
    assert faults(GRPC_ROUTE.new("r", grpc(rule))) == []
    rule.filters = [GRPCRouteFilter()]
    assert faults(GRPC_ROUTE.new("r", grpc(rule))) == [f"{RULE}.filters[0]"]


def test_timeouts_and_retries_are_checked() -> None:
    """MT-9. A status that HTTP does not have is refused as well."""
    negative = datetime.timedelta(seconds=-1)
    for each in routes("a")[:2]:
        each.data.rules[0].timeouts = HTTPRouteTimeouts(request=negative, idle=negative)
        each.data.rules[0].retries = HTTPRouteRetries(on_conditions=["5xx", "always"], on_status_codes=[503, 99])
        assert faults(each) == [
            f"{RULE}.timeouts.request",
            f"{RULE}.timeouts.idle",
            f"{RULE}.retries.on_conditions[1]",
            f"{RULE}.retries.on_status_codes[1]",
        ]


def test_one_error_names_several_faults() -> None:
    route = HTTPRoute(parent_refs=[parent("api")], hostnames=["x"], rules=[to_http()])
    assert len(faults(HTTP_ROUTE.new("r", route))) == 2


def test_duration_that_no_proxy_can_take_is_refused() -> None:
    """MT-9. An Envoy takes at most 292 years."""
    route = HTTP_ROUTE.new("r", http(to_http("a")))
    route.data.rules[0].timeouts = HTTPRouteTimeouts(request=datetime.timedelta(days=36_500))
    assert faults(route) == []
    route.data.rules[0].timeouts = HTTPRouteTimeouts(request=datetime.timedelta(days=36_501))
    refused(route, "timeouts.request 3153686400s must be at most 3153600000s, which is 100 years")
