"""The rules of a port: those of its routes, with targets for backends, in the order in which a proxy tries them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from headway.protobuf import copy_message
from mesh.messages import (
    ComputedGRPCBackendRef,
    ComputedGRPCRoute,
    ComputedGRPCRouteRule,
    ComputedHTTPBackendRef,
    ComputedHTTPRoute,
    ComputedHTTPRouteRule,
    ComputedTCPBackendRef,
    ComputedTCPRoute,
    ComputedTCPRouteRule,
    GRPCMethodMatchType,
    GRPCRoute,
    GRPCRouteMatch,
    HTTPPathMatch,
    HTTPRoute,
    HTTPRouteMatch,
    HTTPRouteTimeouts,
    PathMatchType,
    TCPRoute,
)
from mesh.routing.targets import NULL_ROUTE, Targets


def http(routes: Iterable[HTTPRoute], targets: Targets) -> ComputedHTTPRoute:
    """Return the rules of HTTP routes. Requests that meet none of them fail."""
    rules = []
    for route in routes:
        for rule in route.rules:
            backends = [
                ComputedHTTPBackendRef(backend_target=targets.add(each.backend_ref), weight=each.weight)
                for each in rule.backend_refs
            ]
            keys = [each.backend_target for each in backends]
            rules.append(
                ComputedHTTPRouteRule(
                    matches=[_with_path(each) for each in rule.matches or [HTTPRouteMatch()]],
                    filters=list(rule.filters),
                    backend_refs=backends,
                    timeouts=_timeouts(rule.timeouts, keys, targets),
                    retries=rule.retries,
                )
            )
    rules.sort(key=_http_order)
    return ComputedHTTPRoute(rules=[*rules, http_rule(NULL_ROUTE, targets)])


def http_rule(key: str, targets: Targets) -> ComputedHTTPRouteRule:
    """Return the rule that sends all requests to one target."""
    return ComputedHTTPRouteRule(
        matches=[_with_path(HTTPRouteMatch())],
        backend_refs=[ComputedHTTPBackendRef(backend_target=key)],
        timeouts=_timeouts(None, [key], targets),
    )


def grpc(routes: Iterable[GRPCRoute], targets: Targets) -> ComputedGRPCRoute:
    """Return the rules of gRPC routes. Calls that meet none of them fail."""
    rules = []
    for route in routes:
        for rule in route.rules:
            backends = [
                ComputedGRPCBackendRef(backend_target=targets.add(each.backend_ref), weight=each.weight)
                for each in rule.backend_refs
            ]
            keys = [each.backend_target for each in backends]
            rules.append(
                ComputedGRPCRouteRule(
                    matches=list(rule.matches) or [GRPCRouteMatch()],
                    filters=list(rule.filters),
                    backend_refs=backends,
                    timeouts=_timeouts(rule.timeouts, keys, targets),
                    retries=rule.retries,
                )
            )
    rules.sort(key=_grpc_order)
    return ComputedGRPCRoute(rules=[*rules, grpc_rule(NULL_ROUTE, targets)])


def grpc_rule(key: str, targets: Targets) -> ComputedGRPCRouteRule:
    """Return the rule that sends all calls to one target."""
    return ComputedGRPCRouteRule(
        matches=[GRPCRouteMatch()],
        backend_refs=[ComputedGRPCBackendRef(backend_target=key)],
        timeouts=_timeouts(None, [key], targets),
    )


def tcp(routes: Iterable[TCPRoute], targets: Targets) -> ComputedTCPRoute:
    """Return the one rule of a TCP route. Without a rule, connections fail."""
    for route in routes:
        for rule in route.rules:
            backends = [
                ComputedTCPBackendRef(backend_target=targets.add(each.backend_ref), weight=each.weight)
                for each in rule.backend_refs
            ]
            return ComputedTCPRoute(rules=[ComputedTCPRouteRule(backend_refs=backends)])
    return ComputedTCPRoute(rules=[tcp_rule(NULL_ROUTE)])


def tcp_rule(key: str) -> ComputedTCPRouteRule:
    """Return the rule that sends all connections to one target."""
    return ComputedTCPRouteRule(backend_refs=[ComputedTCPBackendRef(backend_target=key)])


def _with_path(match: HTTPRouteMatch) -> HTTPRouteMatch:
    if match.path is not None:
        return match
    found = copy_message(match)
    found.path = HTTPPathMatch(type=PathMatchType.PATH_MATCH_TYPE_PREFIX, value="/")
    return found


def _timeouts(given: HTTPRouteTimeouts | None, keys: Sequence[str], targets: Targets) -> HTTPRouteTimeouts | None:
    """Return the timeouts of a rule. Without a request timeout, the first one of its targets counts."""
    if given is not None and given.request is not None:
        return given
    found: list[datetime.timedelta] = []
    for key in keys:
        timeout = targets.request_timeout(key)
        if timeout is not None:
            found.append(timeout)
    return HTTPRouteTimeouts(request=found[0], idle=None if given is None else given.idle) if found else given


def _http_order(rule: ComputedHTTPRouteRule) -> tuple[int, ...]:
    """Return the key by which rules are sorted: the more a match asks for, the earlier. The best match counts."""
    exact = prefix = method = headers = params = 0
    for match in rule.matches:
        path = match.path or HTTPPathMatch()
        exact = max(exact, path.type == PathMatchType.PATH_MATCH_TYPE_EXACT)
        if path.type == PathMatchType.PATH_MATCH_TYPE_PREFIX:
            prefix = max(prefix, 2 * len(path.value))
        elif path.type == PathMatchType.PATH_MATCH_TYPE_REGEX:
            # Between the prefix / and all others: after /, which every path has, no pattern would ever be tried.
            prefix = max(prefix, 3)
        method = max(method, bool(match.method))
        headers = max(headers, len(match.headers))
        params = max(params, len(match.query_params))
    return (-exact, -prefix, -method, -headers, -params)


def _grpc_order(rule: ComputedGRPCRouteRule) -> tuple[int, ...]:
    """Return the key of a rule as `_http_order` does: exact names, then how long they are, then headers."""
    exact = service = method = headers = 0
    for match in rule.matches:
        if match.method is not None:
            exact = max(exact, match.method.type == GRPCMethodMatchType.GRPC_METHOD_MATCH_TYPE_EXACT)
            service = max(service, len(match.method.service))
            method = max(method, len(match.method.method))
        headers = max(headers, len(match.headers))
    return (-exact, -service, -method, -headers)
