"""The rules of routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.checks.references import complete, service_id, service_reference
from headway import Reference, Resource, ResourceId
from headway.resource import quoted
from mesh.checks import limits
from mesh.messages import (
    BackendReference,
    GRPCBackendRef,
    GRPCHeaderMatch,
    GRPCMethodMatch,
    GRPCRoute,
    GRPCRouteFilter,
    GRPCRouteMatch,
    GRPCRouteRule,
    HeaderMatchType,
    HTTPBackendRef,
    HTTPHeaderFilter,
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPRoute,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPRouteRule,
    HTTPRouteTimeouts,
    ParentReference,
    PathMatchType,
    QueryParamMatchType,
    TCPBackendRef,
    TCPRoute,
    TCPRouteRule,
)
from mesh.messages import GRPCMethodMatchType as MethodMatchType

Route: TypeAlias = HTTPRoute | GRPCRoute | TCPRoute
_METHODS: Final = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
_CONDITIONS: Final = (
    "5xx",
    "cancelled",
    "connect-failure",
    "deadline-exceeded",
    "envoy-ratelimited",
    "gateway-error",
    "internal",
    "refused-stream",
    "reset",
    "resource-exhausted",
    "retriable-4xx",
    "unavailable",
)
_LONGEST_PARAM: Final = 1024
_PARTS: Final = (HeaderMatchType.HEADER_MATCH_TYPE_PREFIX, HeaderMatchType.HEADER_MATCH_TYPE_SUFFIX)
_MEMBERS: Final = ("request_header_modifier", "response_header_modifier", "url_rewrite")


def backends(route: Route) -> Iterator[tuple[str, BackendReference | None]]:
    """Yield the backends of a route with their paths."""
    rules: Sequence[HTTPRouteRule | GRPCRouteRule | TCPRouteRule] = route.rules
    for number, rule in enumerate(rules):
        named: Sequence[HTTPBackendRef | GRPCBackendRef | TCPBackendRef] = rule.backend_refs
        for index, each in enumerate(named):
            yield f"data.rules[{number}].backend_refs[{index}].backend_ref", each.backend_ref


def fill_in(resource: Resource[Any]) -> None:
    """Complete the tenancies of parents and backends, and write methods in upper case."""
    route: Route = resource.data
    for parent in route.parent_refs:
        complete(parent.ref, resource.id)
    for _, backend in backends(route):
        if backend is not None:
            complete(backend.ref, resource.id)
    if isinstance(route, HTTPRoute):
        for rule in route.rules:
            for match in rule.matches:
                match.method = match.method.upper()


def http(resource: Resource[HTTPRoute]) -> Faults:
    """Yield the faults of an HTTP route."""
    yield from _route(resource.id, resource.data)
    yield from limits.absent("data.hostnames", resource.data.hostnames)
    for number, rule in enumerate(resource.data.rules):
        path = f"data.rules[{number}]"
        for index, match in enumerate(rule.matches):
            yield from _http_match(f"{path}.matches[{index}]", match)
        yield from _rule(path, rule)
        given = {name for each in rule.filters for name in _MEMBERS if getattr(each, name) is not None}
        if {"request_header_modifier", "url_rewrite"} <= given:
            yield f"{path}.filters has both request_header_modifier and url_rewrite: use one of them"


def grpc(resource: Resource[GRPCRoute]) -> Faults:
    """Yield the faults of a gRPC route."""
    yield from _route(resource.id, resource.data)
    yield from limits.absent("data.hostnames", resource.data.hostnames)
    for number, rule in enumerate(resource.data.rules):
        path = f"data.rules[{number}]"
        for index, match in enumerate(rule.matches):
            yield from _grpc_match(f"{path}.matches[{index}]", match)
        yield from _rule(path, rule)


def tcp(resource: Resource[TCPRoute]) -> Faults:
    """Yield the faults of a TCP route."""
    yield from _route(resource.id, resource.data)
    rules = resource.data.rules
    if len(rules) > 1:
        yield f"data.rules has {len(rules)} rules: a TCP route has at most one, because nothing tells connections apart"


def _route(id: ResourceId, route: Route) -> Faults:
    yield from _parents(id, route.parent_refs)
    for path, backend in backends(route):
        if backend is None:
            yield f"{path} is required: the service that receives the traffic"
            continue
        yield from service_reference(f"{path}.ref", backend.ref, "receives the traffic")
        if backend.port:
            yield from values.port_id(f"{path}.port", backend.port)
        yield from limits.absent(f"{path}.datacenter", backend.datacenter)
    rules: Sequence[HTTPRouteRule | GRPCRouteRule | TCPRouteRule] = route.rules
    for number, rule in enumerate(rules):
        path = f"data.rules[{number}].backend_refs"
        if not rule.backend_refs:
            yield f"{path} is empty: give at least one backend"
        yield from limits.shares(path, [each.weight for each in rule.backend_refs])


def _parents(id: ResourceId, parents: Sequence[ParentReference]) -> Faults:
    if not parents:
        yield "data.parent_refs is empty: give at least one service whose traffic is routed"
    taken: dict[str, dict[str, int]] = {}
    for index, parent in enumerate(parents):
        path = f"data.parent_refs[{index}]"
        found = list(service_reference(f"{path}.ref", parent.ref, "is routed"))
        if parent.port:
            found += values.port_id(f"{path}.port", parent.port)
        yield from found
        if not found and parent.ref is not None:
            yield from _parent(path, id, parent.ref, parent.port, taken, index)


def _parent(
    path: str, id: ResourceId, ref: Reference, port: str, taken: dict[str, dict[str, int]], index: int
) -> Faults:
    service = service_id(ref, id)
    if (service.partition, service.namespace) != (id.partition, id.namespace):
        yield (
            f"{path}.ref.tenancy {service.partition}/{service.namespace} must be that of the route, "
            f"{id.partition}/{id.namespace}"
        )
    ports = taken.setdefault(service.name, {})
    if port in ports:
        yield f"{path}.port {quoted(port)} is that of data.parent_refs[{ports[port]}]: name each port of a service once"
    elif ports and (not port or "" in ports):
        first = ports[""] if port else min(ports.values())
        yield f"{path}.port {quoted(port)}: data.parent_refs[{first}] means it, too: name all ports or single ones"
    ports.setdefault(port, index)


def _rule(path: str, rule: HTTPRouteRule | GRPCRouteRule) -> Faults:
    yield from _filters(f"{path}.filters", rule.filters)
    backend_refs: Sequence[HTTPBackendRef | GRPCBackendRef] = rule.backend_refs
    for index, each in enumerate(backend_refs):
        yield from limits.absent(f"{path}.backend_refs[{index}].filters", each.filters)
    if rule.timeouts is not None:
        yield from _timeouts(f"{path}.timeouts", rule.timeouts)
    if rule.retries is not None:
        yield from _retries(f"{path}.retries", rule.retries)


def _timeouts(path: str, given: HTTPRouteTimeouts) -> Faults:
    yield from limits.duration(f"{path}.request", given.request)
    yield from limits.duration(f"{path}.idle", given.idle)


def _retries(path: str, given: HTTPRouteRetries) -> Faults:
    for index, each in enumerate(given.on_conditions):
        if each not in _CONDITIONS:
            yield f"{path}.on_conditions[{index}] {quoted(each)} is not supported: use one of {', '.join(_CONDITIONS)}"
    for index, code in enumerate(given.on_status_codes):
        yield from values.number(f"{path}.on_status_codes[{index}]", code, 100, 599)


def _filters(path: str, filters: Iterable[HTTPRouteFilter | GRPCRouteFilter]) -> Faults:
    for index, each in enumerate(filters):
        if sum(getattr(each, name) is not None for name in _MEMBERS) != 1:
            yield f"{path}[{index}]: set exactly one of {', '.join(_MEMBERS)}"
        if each.url_rewrite is not None:
            prefix = each.url_rewrite.path_prefix
            if not prefix:
                yield f"{path}[{index}].url_rewrite.path_prefix is empty: give a prefix, such as '/'"
            yield from limits.header_value(f"{path}[{index}].url_rewrite.path_prefix", prefix)
        for name in ("request_header_modifier", "response_header_modifier"):
            changes = getattr(each, name)
            if changes is not None:
                yield from _changes(f"{path}[{index}].{name}", changes)


def _changes(path: str, changes: HTTPHeaderFilter) -> Faults:
    for name in ("set", "add"):
        for index, each in enumerate(getattr(changes, name)):
            yield from limits.header_name(f"{path}.{name}[{index}].name", each.name, is_changed=True)
            yield from limits.header_value(f"{path}.{name}[{index}].value", each.value)
    for index, each in enumerate(changes.remove):
        yield from limits.header_name(f"{path}.remove[{index}]", each, is_changed=True)


def _http_match(path: str, match: HTTPRouteMatch) -> Faults:
    if match.path is not None:
        yield from _path(f"{path}.path", match.path)
    yield from _headers(f"{path}.headers", match.headers)
    for index, param in enumerate(match.query_params):
        yield from values.member(f"{path}.query_params[{index}].type", param.type, 1)
        if not 1 <= len(param.name.encode()) <= _LONGEST_PARAM:
            yield (
                f"{path}.query_params[{index}].name {quoted(param.name)} is not the name of a parameter: use 1 to "
                f"{_LONGEST_PARAM} bytes, such as 'version'"
            )
        if param.type == QueryParamMatchType.QUERY_PARAM_MATCH_TYPE_REGEX:
            yield from limits.pattern(f"{path}.query_params[{index}].value", param.value)
    if match.method and match.method not in _METHODS:
        yield f"{path}.method {quoted(match.method)} is not a method: use one of {', '.join(_METHODS)}"


def _path(path: str, given: HTTPPathMatch) -> Faults:
    yield from values.member(f"{path}.type", given.type, 1)
    if given.type == PathMatchType.PATH_MATCH_TYPE_REGEX:
        yield from limits.pattern(f"{path}.value", given.value)
    elif given.type and not given.value.startswith("/"):
        yield f"{path}.value {quoted(given.value)} must begin with '/', such as '/api'"


def _headers(path: str, headers: Iterable[HTTPHeaderMatch | GRPCHeaderMatch]) -> Faults:
    for index, each in enumerate(headers):
        yield from values.member(f"{path}[{index}].type", each.type, 1)
        yield from limits.header_name(f"{path}[{index}].name", each.name)
        if each.type == HeaderMatchType.HEADER_MATCH_TYPE_REGEX:
            yield from limits.pattern(f"{path}[{index}].value", each.value)
        elif each.type in _PARTS and not each.value:
            yield f"{path}[{index}].value is empty: give a part of the value, or use HEADER_MATCH_TYPE_PRESENT"


def _grpc_match(path: str, match: GRPCRouteMatch) -> Faults:
    if match.method is not None:
        yield from _method(f"{path}.method", match.method)
    yield from _headers(f"{path}.headers", match.headers)


def _method(path: str, given: GRPCMethodMatch) -> Faults:
    yield from values.member(f"{path}.type", given.type, 1)
    if not given.service and not given.method:
        yield f"{path} is empty: give a service or a method, such as service: 'store.Orders'"
    if given.type == MethodMatchType.GRPC_METHOD_MATCH_TYPE_REGEX:
        for name in ("service", "method"):
            if getattr(given, name):
                yield from limits.pattern(f"{path}.{name}", getattr(given, name))
