"""Random resources of users, with odd values. The mesh's validation refuses some of them, and no proxy the others."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

import headway
from catalog.messages import (
    Action,
    DestinationRule,
    DestinationRuleHeader,
    ExcludeSource,
    Permission,
    Source,
    TrafficPermissions,
    WorkloadSelector,
)
from catalog.messages import Destination as Receiver
from catalog.types import SERVICE, TRAFFIC_PERMISSIONS
from mesh.messages import (
    BackendReference,
    BalanceConnections,
    ConnectionConfig,
    DestinationConfig,
    DestinationPolicy,
    DynamicConfig,
    HeaderMatchType,
    HTTPBackendRef,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRoute,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPRouteRule,
    HTTPRouteTimeouts,
    HTTPURLRewriteFilter,
    InboundConnectionsConfig,
    LeastRequestConfig,
    LoadBalancer,
    LoadBalancerPolicy,
    ParentReference,
    PathMatchType,
    ProxyConfiguration,
    QueryParamMatchType,
    RingHashConfig,
    UInt32Value,
)
from mesh.types import DESTINATION_POLICY, HTTP_ROUTE, PROXY_CONFIGURATION

T = TypeVar("T")
_CHARACTERS = "\t !\"#$%&'()*+,-./0:;<=>?@A[\\]^_`a{|}~é\u2028\x7f\x01\n\r\0bcXYZ019"
_PATTERNS = (
    *(".*", "a+", "(a|b)*c", r"\d{1,3}", "^/x$", "(?i)abc", "(?P<n>a)", "a{1000}", "(a{100}){10}", "((a{30}){30})"),
    *(r"\pL+", r"\C", "[[:alpha:]]", "(?=a)", r"\1", "(", ")", "x*?", "a**", "é", r"\x{10FFFF}", "(?s).", "(a*)*"),
    *(".{1,500}", ".{1,99}", "[^/]+", ""),
)
_NAMES = ("x-a", "X-Upper", ":path", ":method", "host", "content-length", "x_y", "cookie", "te", "transfer-encoding")
_PATHS = ("/", "/a", "/a/b/", "//", "/%2f", "/a?b", "/a#b", "/é", "/..", "/" + "a" * 5000)
_CONDITIONS = ("5xx", "gateway-error", "reset", "connect-failure", "retriable-4xx", "cancelled", "unavailable")
_LARGEST = 2**32 - 1


class Odd:
    """Draws resources for a workload ``web-1``, which reaches ``api``."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def resource(self) -> headway.Resource[Any]:
        """Return a resource that is one of a few by its name."""
        makers: list[Callable[[], headway.Resource[Any]]] = [self._route, self._policy, self._configuration]
        return self._one([*makers, self._route, self._permissions])()

    def _one(self, of: Sequence[T]) -> T:
        return self._random.choice(of)

    def _any(self, of: type[T]) -> T:
        assert issubclass(of, Enum)
        return self._one(list(of))

    def _some(self, make: Callable[[], T], *numbers: int) -> list[T]:
        return [make() for _ in range(self._one(numbers))]

    def _chance(self) -> bool:
        return self._random.random() < 0.4

    def _text(self) -> str:
        return "".join(self._some(lambda: self._one(_CHARACTERS), 0, 1, 3, 8))

    def _name(self) -> str:
        return self._one((*_NAMES, self._text(), "x" * 20_000))

    def _path(self) -> str:
        return self._one((*_PATHS, f"/{self._text()}"))

    def _pattern(self) -> str:
        return self._one((*_PATTERNS, self._text()))

    def _time(self) -> datetime.timedelta | None:
        seconds = self._one((None, 0, 1e-6, 0.001, 1, 77, 86_400, 3e9, 1e10, 3e11))
        return None if seconds is None else datetime.timedelta(seconds=seconds)

    def _route(self) -> headway.Resource[HTTPRoute]:
        parent = ParentReference(ref=SERVICE.id("api").reference(), port=self._one(("", "http")))
        return HTTP_ROUTE.new("odd", HTTPRoute(parent_refs=[parent], rules=self._some(self._rule, 1, 1, 3)))

    def _rule(self) -> HTTPRouteRule:
        return HTTPRouteRule(
            matches=self._some(self._match, 0, 1, 2, 5),
            filters=self._some(self._filter, 0, 0, 1, 2),
            backend_refs=self._some(self._backend, 1, 1, 3),
            timeouts=HTTPRouteTimeouts(request=self._time(), idle=self._time()) if self._chance() else None,
            retries=HTTPRouteRetries(
                number=self._one((None, UInt32Value(value=self._one((0, 1, _LARGEST))))),
                on_connect_failure=self._chance(),
                on_conditions=self._some(lambda: self._one(_CONDITIONS), 0, 1, 4),
                on_status_codes=self._some(lambda: self._random.randint(99, 600), 0, 1, 4),
            )
            if self._chance()
            else None,
        )

    def _match(self) -> HTTPRouteMatch:
        kind = self._any(PathMatchType)
        value = self._pattern() if kind == PathMatchType.PATH_MATCH_TYPE_REGEX else self._path()
        return HTTPRouteMatch(
            path=HTTPPathMatch(type=kind, value=value) if self._chance() else None,
            headers=self._some(self._header_match, 0, 0, 1, 3),
            query_params=self._some(self._param_match, 0, 0, 1, 2),
            method=self._one(("", "", "GET", "get", "CONNECT", "TRACE", "FOO")),
        )

    def _header_match(self) -> HTTPHeaderMatch:
        kind, value = self._any(HeaderMatchType), self._one((self._text(), self._pattern()))
        return HTTPHeaderMatch(type=kind, name=self._name(), value=value, invert=self._chance())

    def _param_match(self) -> HTTPQueryParamMatch:
        kind, value = self._any(QueryParamMatchType), self._one((self._text(), self._pattern()))
        return HTTPQueryParamMatch(type=kind, name=self._one(("q", self._text())), value=value)

    def _filter(self) -> HTTPRouteFilter:
        changes = HTTPHeaderFilter(
            set=self._some(self._header, 0, 1, 2),
            add=self._some(self._header, 0, 1, 2),
            remove=self._some(self._name, 0, 1),
        )
        return self._one(
            (
                HTTPRouteFilter(request_header_modifier=changes),
                HTTPRouteFilter(response_header_modifier=changes),
                HTTPRouteFilter(url_rewrite=HTTPURLRewriteFilter(path_prefix=self._path())),
            )
        )

    def _header(self) -> HTTPHeader:
        return HTTPHeader(name=self._name(), value=self._one((self._text(), "%", "%%", "%REQ(x)%", "", "é")))

    def _backend(self) -> HTTPBackendRef:
        ref = BackendReference(ref=SERVICE.id(self._one(("api", "other", "nowhere"))).reference(), port="http")
        return HTTPBackendRef(backend_ref=ref, weight=self._one((0, 1, 10, _LARGEST)))

    def _policy(self) -> headway.Resource[DestinationPolicy]:
        sizes = RingHashConfig(
            minimum_ring_size=self._one((0, 1, 2**23, 2**23 + 1)), maximum_ring_size=self._one((0, 1, 2**23, 2**64 - 1))
        )
        balancer = LoadBalancer(policy=self._any(LoadBalancerPolicy))
        if self._chance():
            balancer.ring_hash_config = sizes
        elif self._chance():
            balancer.least_request_config = LeastRequestConfig(choice_count=self._one((0, 1, 2, _LARGEST)))
        config = DestinationConfig(
            connect_timeout=self._time(), request_timeout=self._time(), load_balancer=self._one((None, balancer))
        )
        return DESTINATION_POLICY.new("api", DestinationPolicy(port_configs={self._one(("http", "tcp")): config}))

    def _configuration(self) -> headway.Resource[ProxyConfiguration]:
        local = {
            port: ConnectionConfig(connect_timeout=self._time(), request_timeout=self._time())
            for port in self._some(lambda: self._one(("http", "tcp", "grpc")), 1, 2)
        }
        limits = InboundConnectionsConfig(
            max_inbound_connections=self._one((0, 1, _LARGEST)),
            balance_inbound_connections=self._any(BalanceConnections),
        )
        config = DynamicConfig(local_connection=local, inbound_connections=self._one((None, limits)))
        data = ProxyConfiguration(workloads=WorkloadSelector(names=["web-1"]), dynamic_config=config)
        return PROXY_CONFIGURATION.new("odd", data)

    def _permissions(self) -> headway.Resource[TrafficPermissions]:
        data = TrafficPermissions(
            destination=Receiver(identity_name="web"),
            action=self._one((Action.ACTION_ALLOW, Action.ACTION_DENY)),
            permissions=self._some(self._permission, 1, 2),
        )
        return TRAFFIC_PERMISSIONS.new(self._one(("one", "other")), data)

    def _permission(self) -> Permission:
        return Permission(
            sources=self._some(self._source, 1, 2), destination_rules=self._some(self._permitted, 0, 1, 2)
        )

    def _source(self) -> Source:
        return Source(
            identity_name=self._one(("", "api", f"x{self._text()}", "i" * 63)),
            namespace=self._one(("", "default", f"n{self._text()}", "n" * 63)),
            exclude=self._some(lambda: ExcludeSource(identity_name="api", namespace="default"), 0, 0, 1),
        )

    def _permitted(self) -> DestinationRule:
        made = DestinationRule(methods=self._some(lambda: self._one(("GET", "a", "", "é")), 0, 1, 3))
        if self._chance():
            made.path_exact = self._path()
        elif self._chance():
            made.path_prefix = self._path()
        elif self._chance():
            made.path_regex = self._pattern()
        header = DestinationRuleHeader(name=self._name(), invert=self._chance())
        setattr(header, *self._one((("present", True), ("exact", self._text()), ("regex", self._pattern()))))
        if self._chance():
            made.headers.append(header)
        if self._chance():
            made.port_names.append(self._one(("http", "tcp", "nothing")))
        return made
