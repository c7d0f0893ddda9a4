"""The messages of a proxy's state: its listeners, routes and clusters.

Consul's state also has leaf certificates and trust bundles. They are not declared here, so that no key can be stored:
a template refers to them.
"""

from __future__ import annotations

import datetime
from enum import IntEnum

import headway
from catalog.messages import Protocol
from headway import field, message
from headway.resource import pb
from mesh.messages.proxy_configuration import BalanceConnections
from mesh.messages.wrappers import BoolValue, UInt32Value, UInt64Value

_MESH = "hashicorp.consul.mesh.v2beta1"
_PACKAGE = f"{_MESH}.pbproxystate"


class Direction(IntEnum):
    """The direction of a listener's traffic, seen from the workload."""

    DIRECTION_UNSPECIFIED = 0
    DIRECTION_INBOUND = 1
    DIRECTION_OUTBOUND = 2


class Capability(IntEnum):
    """A listener's inspection of new connections."""

    CAPABILITY_TRANSPARENT = 0
    CAPABILITY_L7_PROTOCOL_INSPECTION = 1
    CAPABILITY_L4_TLS_INSPECTION = 2


class L7Protocol(IntEnum):
    """The protocol of requests."""

    L7_PROTOCOL_HTTP = 0
    L7_PROTOCOL_HTTP2 = 1
    L7_PROTOCOL_GRPC = 2


class HealthStatus(IntEnum):
    """The health of an endpoint."""

    HEALTH_STATUS_UNKNOWN = 0
    HEALTH_STATUS_HEALTHY = 1
    HEALTH_STATUS_UNHEALTHY = 2


class AppendAction(IntEnum):
    """The treatment of a header that exists already."""

    APPEND_ACTION_APPEND_IF_EXISTS_OR_ADD = 0
    APPEND_ACTION_ADD_IF_ABSENT = 1
    APPEND_ACTION_OVERWRITE_IF_EXISTS_OR_ADD = 2


@message(name=f"{_PACKAGE}.EndpointRef")
class EndpointRef:
    """The endpoints of a cluster: those of a service that serve both ports."""

    id: pb.Id | None = field(1)
    mesh_port: str = field(2)
    route_port: str = field(3)


@message(name=f"{_PACKAGE}.LeafCertificateRef")
class LeafCertificateRef:
    """The certificate of an identity."""

    name: str = field(1)
    namespace: str = field(2)
    partition: str = field(3)
    host: str = field(4)
    datacenter: str = field(5)
    dns_san: list[str] = field(6)


@message(name=f"{_PACKAGE}.TrustBundleRef")
class TrustBundleRef:
    """The root certificates of a peer."""

    peer: str = field(1)
    trust_domain: str = field(2)


@message(name=f"{_PACKAGE}.HostPortAddress")
class HostPortAddress:
    """A host and a port."""

    host: str = field(1)
    port: int = field(2, kind="uint32")


@message(name=f"{_PACKAGE}.UnixSocketAddress")
class UnixSocketAddress:
    """A Unix socket and its mode."""

    path: str = field(1)
    mode: str = field(2)


@message(name=f"{_PACKAGE}.Spiffe")
class Spiffe:
    """A pattern of SPIFFE ids."""

    regex: str = field(1)


@message(name=f"{_PACKAGE}.Principal")
class Principal:
    """Senders, and those among them that are not meant."""

    spiffe: Spiffe | None = field(1)
    exclude_spiffes: list[Spiffe] = field(2)


@message(name=f"{_PACKAGE}.DestinationRuleHeader")
class DestinationRuleHeader:
    """A condition on a header of a request."""

    name: str = field(1)
    present: bool = field(2)
    exact: str = field(3)
    prefix: str = field(4)
    suffix: str = field(5)
    regex: str = field(6)
    invert: bool = field(7)


@message(name=f"{_PACKAGE}.DestinationRule")
class DestinationRule:
    """The requests that a permission is about."""

    path_exact: str = field(1)
    path_prefix: str = field(2)
    path_regex: str = field(3)
    methods: list[str] = field(4)
    destination_rule_header: list[DestinationRuleHeader] = field(5)


@message(name=f"{_PACKAGE}.Permission")
class Permission:
    """Senders, and the requests that they may or may not send."""

    principals: list[Principal] = field(1)
    destination_rules: list[DestinationRule] = field(2)


@message(name=f"{_PACKAGE}.TrafficPermissions")
class TrafficPermissions:
    """The permissions for the traffic to a port."""

    allow_permissions: list[Permission] = field(1)
    deny_permissions: list[Permission] = field(2)
    default_allow: bool = field(4)


@message(name=f"{_PACKAGE}.MeshInboundValidationContext")
class MeshInboundValidationContext:
    """The trust bundles that certificates of clients are checked with."""

    trust_bundle_peer_name_keys: list[str] = field(1)


@message(name=f"{_PACKAGE}.InboundMeshMTLS")
class InboundMeshMTLS:
    """TLS of connections from the mesh."""

    identity_key: str = field(1)
    validation_context: MeshInboundValidationContext | None = field(2)


@message(name=f"{_PACKAGE}.MeshOutboundValidationContext")
class MeshOutboundValidationContext:
    """The trust bundle and the identities that certificates of servers are checked with.

    Without identities, no server is trusted.
    """

    trust_bundle_peer_name_key: str = field(1)
    spiffe_ids: list[str] = field(2)


@message(name=f"{_PACKAGE}.OutboundMeshMTLS")
class OutboundMeshMTLS:
    """TLS of connections to the mesh."""

    identity_key: str = field(1)
    validation_context: MeshOutboundValidationContext | None = field(2)
    sni: str = field(3)


@message(name=f"{_PACKAGE}.TransportSocket")
class TransportSocket:
    """The transport of connections."""

    name: str = field(1)
    inbound_mesh: InboundMeshMTLS | None = field(2, oneof="connection_tls")
    outbound_mesh: OutboundMeshMTLS | None = field(3, oneof="connection_tls")
    alpn_protocols: list[str] = field(7)


@message(name=f"{_PACKAGE}.DestinationCluster")
class DestinationCluster:
    """The name of a cluster."""

    name: str = field(1)


@message(name=f"{_PACKAGE}.L4WeightedDestinationCluster")
class L4WeightedDestinationCluster:
    """A cluster and its share of the connections."""

    name: str = field(1)
    weight: UInt32Value | None = field(2)


@message(name=f"{_PACKAGE}.L4WeightedClusterGroup")
class L4WeightedClusterGroup:
    """Clusters that share connections."""

    clusters: list[L4WeightedDestinationCluster] = field(1)


@message(name=f"{_PACKAGE}.L4Destination")
class L4Destination:
    """The clusters of connections."""

    cluster: DestinationCluster | None = field(1, oneof="destination")
    weighted_clusters: L4WeightedClusterGroup | None = field(2, oneof="destination")
    stat_prefix: str = field(3)
    traffic_permissions: TrafficPermissions | None = field(4)
    max_inbound_connections: int = field(5, kind="uint64")


@message(name=f"{_PACKAGE}.L7DestinationRoute")
class L7DestinationRoute:
    """The name of a route."""

    name: str = field(1)


@message(name=f"{_PACKAGE}.L7Destination")
class L7Destination:
    """The route of requests."""

    route: L7DestinationRoute | None = field(1)
    stat_prefix: str = field(2)
    protocol: L7Protocol = field(3)
    traffic_permissions: TrafficPermissions | None = field(4)
    static_route: bool = field(8)
    max_inbound_connections: int = field(9, kind="uint64")


@message(name=f"{_PACKAGE}.Match")
class Match:
    """The connections that a router takes."""

    alpn_protocols: list[str] = field(1)
    destination_port: UInt32Value | None = field(2)
    server_names: list[str] = field(5)


@message(name=f"{_PACKAGE}.Router")
class Router:
    """Connections of a listener, and where they go."""

    match: Match | None = field(1)
    l4: L4Destination | None = field(2, oneof="destination")
    l7: L7Destination | None = field(3, oneof="destination")
    inbound_tls: TransportSocket | None = field(5)


@message(name=f"{_PACKAGE}.Listener")
class Listener:
    """An address that a proxy listens on."""

    name: str = field(1)
    direction: Direction = field(2)
    host_port: HostPortAddress | None = field(3, oneof="bind_address")
    unix_socket: UnixSocketAddress | None = field(4, oneof="bind_address")
    routers: list[Router] = field(5)
    default_router: Router | None = field(6)
    capabilities: list[Capability] = field(7)
    balance_connections: BalanceConnections = field(8)


@message(name=f"{_PACKAGE}.Header")
class Header:
    """A header and its value."""

    key: str = field(1)
    value: str = field(2)


@message(name=f"{_PACKAGE}.RequestHeaderAdd")
class RequestHeaderAdd:
    """A header that is added to a request."""

    header: Header | None = field(1)
    append_action: AppendAction = field(2)


@message(name=f"{_PACKAGE}.RequestHeaderRemove")
class RequestHeaderRemove:
    """Headers that are removed from a request."""

    header_keys: list[str] = field(1)


@message(name=f"{_PACKAGE}.ResponseHeaderAdd")
class ResponseHeaderAdd:
    """A header that is added to a response."""

    header: Header | None = field(1)
    append_action: AppendAction = field(2)


@message(name=f"{_PACKAGE}.ResponseHeaderRemove")
class ResponseHeaderRemove:
    """Headers that are removed from a response."""

    header_keys: list[str] = field(1)


@message(name=f"{_PACKAGE}.HeaderMutation")
class HeaderMutation:
    """A change of the headers of a request or a response."""

    request_header_add: RequestHeaderAdd | None = field(1, oneof="action")
    request_header_remove: RequestHeaderRemove | None = field(2, oneof="action")
    response_header_add: ResponseHeaderAdd | None = field(3, oneof="action")
    response_header_remove: ResponseHeaderRemove | None = field(4, oneof="action")


@message(name=f"{_PACKAGE}.PathMatch")
class PathMatch:
    """A condition on the path of a request."""

    exact: str | None = field(1, oneof="path_match")
    prefix: str | None = field(2, oneof="path_match")
    regex: str | None = field(3, oneof="path_match")


@message(name=f"{_PACKAGE}.HeaderMatch")
class HeaderMatch:
    """A condition on a header of a request."""

    name: str = field(1)
    exact: str | None = field(2, oneof="match")
    prefix: str | None = field(3, oneof="match")
    suffix: str | None = field(4, oneof="match")
    regex: str | None = field(5, oneof="match")
    present: bool | None = field(6, oneof="match")
    invert_match: bool = field(7)


@message(name=f"{_PACKAGE}.QueryParameterMatch")
class QueryParameterMatch:
    """A condition on a query parameter of a request."""

    name: str = field(1)
    exact: str | None = field(2, oneof="match")
    regex: str | None = field(3, oneof="match")
    present: bool | None = field(4, oneof="match")


@message(name=f"{_PACKAGE}.RouteMatch")
class RouteMatch:
    """Conditions on a request. It must meet all of them."""

    path_match: PathMatch | None = field(1)
    header_matches: list[HeaderMatch] = field(2)
    method_matches: list[str] = field(3)
    query_parameter_matches: list[QueryParameterMatch] = field(4)


@message(name=f"{_PACKAGE}.L7WeightedDestinationCluster")
class L7WeightedDestinationCluster:
    """A cluster and its share of the requests."""

    name: str = field(1)
    weight: UInt32Value | None = field(2)
    header_mutations: list[HeaderMutation] = field(3)


@message(name=f"{_PACKAGE}.L7WeightedClusterGroup")
class L7WeightedClusterGroup:
    """Clusters that share requests."""

    clusters: list[L7WeightedDestinationCluster] = field(1)


@message(name=f"{_PACKAGE}.TimeoutConfig")
class TimeoutConfig:
    """The time that a request may take."""

    timeout: datetime.timedelta | None = field(1)
    idle_timeout: datetime.timedelta | None = field(2)


@message(name=f"{_PACKAGE}.RetryPolicy")
class RetryPolicy:
    """The failures after which a request is sent again."""

    retry_on: str = field(1)
    num_retries: UInt32Value | None = field(2)
    retriable_status_codes: list[int] = field(3, kind="uint32")


@message(name=f"{_PACKAGE}.DestinationConfiguration")
class DestinationConfiguration:
    """The treatment of requests on their way."""

    auto_host_rewrite: BoolValue | None = field(1)
    timeout_config: TimeoutConfig | None = field(3)
    prefix_rewrite: str = field(4)
    retry_policy: RetryPolicy | None = field(5)


@message(name=f"{_PACKAGE}.RouteDestination")
class RouteDestination:
    """The clusters of requests."""

    cluster: DestinationCluster | None = field(1, oneof="destination")
    weighted_clusters: L7WeightedClusterGroup | None = field(2, oneof="destination")
    destination_configuration: DestinationConfiguration | None = field(3)


@message(name=f"{_PACKAGE}.RouteRule")
class RouteRule:
    """Requests, and where they go."""

    match: RouteMatch | None = field(1)
    destination: RouteDestination | None = field(2)
    header_mutations: list[HeaderMutation] = field(3)


@message(name=f"{_PACKAGE}.VirtualHost")
class VirtualHost:
    """The rules of requests to some domains."""

    name: str = field(1)
    domains: list[str] = field(2)
    header_mutations: list[HeaderMutation] = field(3)
    route_rules: list[RouteRule] = field(4)


@message(name=f"{_PACKAGE}.Route")
class Route:
    """The routing of requests."""

    virtual_hosts: list[VirtualHost] = field(1)


@message(name=f"{_PACKAGE}.UpstreamLimits")
class UpstreamLimits:
    """The most connections and requests at one time."""

    max_connections: UInt32Value | None = field(1)
    max_pending_requests: UInt32Value | None = field(2)
    max_concurrent_requests: UInt32Value | None = field(3)


@message(name=f"{_PACKAGE}.CircuitBreakers")
class CircuitBreakers:
    """The limits of a cluster."""

    upstream_limits: UpstreamLimits | None = field(1)


@message(name=f"{_PACKAGE}.LBPolicyLeastRequest")
class LBPolicyLeastRequest:
    """The endpoint with the fewest requests of some."""

    choice_count: UInt32Value | None = field(1)


@message(name=f"{_PACKAGE}.LBPolicyRoundRobin")
class LBPolicyRoundRobin:
    """One endpoint after another."""


@message(name=f"{_PACKAGE}.LBPolicyRandom")
class LBPolicyRandom:
    """A random endpoint."""


@message(name=f"{_PACKAGE}.LBPolicyRingHash")
class LBPolicyRingHash:
    """An endpoint by its place on a hash ring."""

    minimum_ring_size: UInt64Value | None = field(1)
    maximum_ring_size: UInt64Value | None = field(2)


@message(name=f"{_PACKAGE}.LBPolicyMaglev")
class LBPolicyMaglev:
    """An endpoint by its place in a table."""


@message(name=f"{_PACKAGE}.DynamicEndpointGroupConfig")
class DynamicEndpointGroupConfig:
    """The connections to endpoints that are found while the proxy runs."""

    connect_timeout: datetime.timedelta | None = field(1)
    disable_panic_threshold: bool = field(2)
    least_request: LBPolicyLeastRequest | None = field(3, oneof="lb_policy")
    round_robin: LBPolicyRoundRobin | None = field(4, oneof="lb_policy")
    random: LBPolicyRandom | None = field(5, oneof="lb_policy")
    ring_hash: LBPolicyRingHash | None = field(6, oneof="lb_policy")
    maglev: LBPolicyMaglev | None = field(7, oneof="lb_policy")
    circuit_breakers: CircuitBreakers | None = field(8)
    use_alt_stat_name: bool = field(11)


@message(name=f"{_PACKAGE}.DynamicEndpointGroup")
class DynamicEndpointGroup:
    """Endpoints that are found while the proxy runs."""

    config: DynamicEndpointGroupConfig | None = field(1)
    outbound_tls: TransportSocket | None = field(2)


@message(name=f"{_PACKAGE}.StaticEndpointGroupConfig")
class StaticEndpointGroupConfig:
    """The connections to fixed endpoints."""

    connect_timeout: datetime.timedelta | None = field(1)
    circuit_breakers: CircuitBreakers | None = field(2)


@message(name=f"{_PACKAGE}.StaticEndpointGroup")
class StaticEndpointGroup:
    """Endpoints that the state itself has."""

    config: StaticEndpointGroupConfig | None = field(1)


@message(name=f"{_PACKAGE}.EndpointGroup")
class EndpointGroup:
    """Endpoints of one kind."""

    dynamic: DynamicEndpointGroup | None = field(1, oneof="group")
    static: StaticEndpointGroup | None = field(2, oneof="group")
    name: str = field(5)


@message(name=f"{_PACKAGE}.FailoverGroupConfig")
class FailoverGroupConfig:
    """The connections to a failover group."""

    use_alt_stat_name: bool = field(1)
    connect_timeout: datetime.timedelta | None = field(2)


@message(name=f"{_PACKAGE}.FailoverGroup")
class FailoverGroup:
    """Groups of endpoints, in order. Each stands in for those before it."""

    endpoint_groups: list[EndpointGroup] = field(1)
    config: FailoverGroupConfig | None = field(2)


@message(name=f"{_PACKAGE}.Cluster")
class Cluster:
    """Endpoints that serve the same."""

    name: str = field(1)
    failover_group: FailoverGroup | None = field(2, oneof="group")
    endpoint_group: EndpointGroup | None = field(3, oneof="group")
    alt_stat_name: str = field(5)
    protocol: Protocol = field(6)


@message(name=f"{_PACKAGE}.Endpoint")
class Endpoint:
    """An address, its health and its share of the traffic."""

    host_port: HostPortAddress | None = field(1, oneof="address")
    unix_socket: UnixSocketAddress | None = field(2, oneof="address")
    health_status: HealthStatus = field(3)
    load_balancing_weight: UInt32Value | None = field(4)


@message(name=f"{_PACKAGE}.Endpoints")
class Endpoints:
    """The endpoints of a cluster."""

    endpoints: list[Endpoint] = field(1)


@message(name=f"{_MESH}.ProxyState")
class ProxyState:
    """The state of a proxy. Its maps are by name."""

    identity: headway.Reference | None = field(1)
    listeners: list[Listener] = field(2)
    clusters: dict[str, Cluster] = field(3)
    routes: dict[str, Route] = field(4)
    endpoints: dict[str, Endpoints] = field(5)


@message(name=f"{_MESH}.ProxyStateTemplate")
class ProxyStateTemplate:
    """The state of the proxy of the workload of the same name, and what it takes to complete it.

    The endpoints are by cluster, the certificates by identity, and the bundles by peer, with ``local`` for this
    cluster.
    """

    proxy_state: ProxyState | None = field(1)
    required_endpoints: dict[str, EndpointRef] = field(2)
    required_leaf_certificates: dict[str, LeafCertificateRef] = field(3)
    required_trust_bundles: dict[str, TrustBundleRef] = field(4)
