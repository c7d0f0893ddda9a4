"""The messages of routes: the backends that the traffic to a service's ports goes to."""

from __future__ import annotations

import datetime
from enum import IntEnum

import headway
from headway import field, message
from mesh.messages.wrappers import UInt32Value

_PACKAGE = "hashicorp.consul.mesh.v2beta1"


class PathMatchType(IntEnum):
    """The way in which the path of a request is compared."""

    PATH_MATCH_TYPE_UNSPECIFIED = 0
    PATH_MATCH_TYPE_EXACT = 1
    PATH_MATCH_TYPE_PREFIX = 2
    PATH_MATCH_TYPE_REGEX = 3


class HeaderMatchType(IntEnum):
    """The way in which a header of a request is compared."""

    HEADER_MATCH_TYPE_UNSPECIFIED = 0
    HEADER_MATCH_TYPE_EXACT = 1
    HEADER_MATCH_TYPE_REGEX = 2
    HEADER_MATCH_TYPE_PRESENT = 3
    HEADER_MATCH_TYPE_PREFIX = 4
    HEADER_MATCH_TYPE_SUFFIX = 5


class QueryParamMatchType(IntEnum):
    """The way in which a query parameter of a request is compared."""

    QUERY_PARAM_MATCH_TYPE_UNSPECIFIED = 0
    QUERY_PARAM_MATCH_TYPE_EXACT = 1
    QUERY_PARAM_MATCH_TYPE_REGEX = 2
    QUERY_PARAM_MATCH_TYPE_PRESENT = 3


class GRPCMethodMatchType(IntEnum):
    """The way in which the method of a gRPC call is compared."""

    GRPC_METHOD_MATCH_TYPE_UNSPECIFIED = 0
    GRPC_METHOD_MATCH_TYPE_EXACT = 1
    GRPC_METHOD_MATCH_TYPE_REGEX = 2


@message(name=f"{_PACKAGE}.ParentReference")
class ParentReference:
    """A service whose traffic is routed, and its port. Without a port, all ports are meant."""

    ref: headway.Reference | None = field(1)
    port: str = field(2)


@message(name=f"{_PACKAGE}.BackendReference")
class BackendReference:
    """A service that receives traffic, and its port. Without a port, the port of the parent is meant."""

    ref: headway.Reference | None = field(1)
    port: str = field(2)
    datacenter: str = field(3)


@message(name=f"{_PACKAGE}.HTTPPathMatch")
class HTTPPathMatch:
    """A condition on the path of a request."""

    type: PathMatchType = field(1)
    value: str = field(2)


@message(name=f"{_PACKAGE}.HTTPHeaderMatch")
class HTTPHeaderMatch:
    """A condition on a header of a request."""

    type: HeaderMatchType = field(1)
    name: str = field(2)
    value: str = field(3)
    invert: bool = field(4)


@message(name=f"{_PACKAGE}.HTTPQueryParamMatch")
class HTTPQueryParamMatch:
    """A condition on a query parameter of a request."""

    type: QueryParamMatchType = field(1)
    name: str = field(2)
    value: str = field(3)


@message(name=f"{_PACKAGE}.HTTPRouteMatch")
class HTTPRouteMatch:
    """Conditions on a request. It must meet all of them."""

    path: HTTPPathMatch | None = field(1)
    headers: list[HTTPHeaderMatch] = field(2)
    query_params: list[HTTPQueryParamMatch] = field(3)
    method: str = field(4)


@message(name=f"{_PACKAGE}.HTTPHeader")
class HTTPHeader:
    """A header and its value."""

    name: str = field(1)
    value: str = field(2)


@message(name=f"{_PACKAGE}.HTTPHeaderFilter")
class HTTPHeaderFilter:
    """Changes of headers."""

    set: list[HTTPHeader] = field(1)
    add: list[HTTPHeader] = field(2)
    remove: list[str] = field(3)


@message(name=f"{_PACKAGE}.HTTPURLRewriteFilter")
class HTTPURLRewriteFilter:
    """A prefix that replaces the matched one of a path."""

    path_prefix: str = field(1)


@message(name=f"{_PACKAGE}.HTTPRouteFilter")
class HTTPRouteFilter:
    """A change of a request or a response. Exactly one field is set."""

    request_header_modifier: HTTPHeaderFilter | None = field(1)
    response_header_modifier: HTTPHeaderFilter | None = field(2)
    url_rewrite: HTTPURLRewriteFilter | None = field(5)


@message(name=f"{_PACKAGE}.HTTPBackendRef")
class HTTPBackendRef:
    """A backend and its share of the traffic."""

    backend_ref: BackendReference | None = field(1)
    weight: int = field(2, kind="uint32")
    filters: list[HTTPRouteFilter] = field(3)


@message(name=f"{_PACKAGE}.HTTPRouteTimeouts")
class HTTPRouteTimeouts:
    """The time that a request may take."""

    request: datetime.timedelta | None = field(1)
    idle: datetime.timedelta | None = field(2)


@message(name=f"{_PACKAGE}.HTTPRouteRetries")
class HTTPRouteRetries:
    """The failures after which a request is sent again."""

    number: UInt32Value | None = field(1)
    on_connect_failure: bool = field(2)
    on_conditions: list[str] = field(3)
    on_status_codes: list[int] = field(4, kind="uint32")


@message(name=f"{_PACKAGE}.HTTPRouteRule")
class HTTPRouteRule:
    """The backends of the requests that meet one of the matches."""

    matches: list[HTTPRouteMatch] = field(1)
    filters: list[HTTPRouteFilter] = field(2)
    backend_refs: list[HTTPBackendRef] = field(3)
    timeouts: HTTPRouteTimeouts | None = field(4)
    retries: HTTPRouteRetries | None = field(5)


@message(name=f"{_PACKAGE}.HTTPRoute")
class HTTPRoute:
    """The routing of HTTP requests to its parents."""

    parent_refs: list[ParentReference] = field(1)
    hostnames: list[str] = field(2)
    rules: list[HTTPRouteRule] = field(3)


@message(name=f"{_PACKAGE}.GRPCMethodMatch")
class GRPCMethodMatch:
    """A condition on the service and the method of a gRPC call."""

    type: GRPCMethodMatchType = field(1)
    service: str = field(2)
    method: str = field(3)


@message(name=f"{_PACKAGE}.GRPCHeaderMatch")
class GRPCHeaderMatch:
    """A condition on a header of a gRPC call."""

    type: HeaderMatchType = field(1)
    name: str = field(2)
    value: str = field(3)


@message(name=f"{_PACKAGE}.GRPCRouteMatch")
class GRPCRouteMatch:
    """Conditions on a gRPC call. It must meet all of them."""

    method: GRPCMethodMatch | None = field(1)
    headers: list[GRPCHeaderMatch] = field(2)


@message(name=f"{_PACKAGE}.GRPCRouteFilter")
class GRPCRouteFilter:
    """A change of a gRPC call or its response. Exactly one field is set."""

    request_header_modifier: HTTPHeaderFilter | None = field(1)
    response_header_modifier: HTTPHeaderFilter | None = field(2)
    url_rewrite: HTTPURLRewriteFilter | None = field(5)


@message(name=f"{_PACKAGE}.GRPCBackendRef")
class GRPCBackendRef:
    """A backend and its share of the calls."""

    backend_ref: BackendReference | None = field(1)
    weight: int = field(2, kind="uint32")
    filters: list[GRPCRouteFilter] = field(3)


@message(name=f"{_PACKAGE}.GRPCRouteRule")
class GRPCRouteRule:
    """The backends of the calls that meet one of the matches."""

    matches: list[GRPCRouteMatch] = field(1)
    filters: list[GRPCRouteFilter] = field(2)
    backend_refs: list[GRPCBackendRef] = field(3)
    timeouts: HTTPRouteTimeouts | None = field(4)
    retries: HTTPRouteRetries | None = field(5)


@message(name=f"{_PACKAGE}.GRPCRoute")
class GRPCRoute:
    """The routing of gRPC calls to its parents."""

    parent_refs: list[ParentReference] = field(1)
    hostnames: list[str] = field(2)
    rules: list[GRPCRouteRule] = field(3)


@message(name=f"{_PACKAGE}.TCPBackendRef")
class TCPBackendRef:
    """A backend and its share of the connections."""

    backend_ref: BackendReference | None = field(1)
    weight: int = field(2, kind="uint32")


@message(name=f"{_PACKAGE}.TCPRouteRule")
class TCPRouteRule:
    """The backends of all connections."""

    backend_refs: list[TCPBackendRef] = field(1)


@message(name=f"{_PACKAGE}.TCPRoute")
class TCPRoute:
    """The routing of TCP connections to its parents."""

    parent_refs: list[ParentReference] = field(1)
    rules: list[TCPRouteRule] = field(2)
