"""The clusters. The endpoints of most of them come apart, so that a change of an endpoint changes no cluster."""

from __future__ import annotations

import datetime

from catalog.messages import Protocol
from mesh.messages.proxy_state import (
    CircuitBreakers,
    Cluster,
    DynamicEndpointGroup,
    DynamicEndpointGroupConfig,
    Endpoint,
    Endpoints,
    FailoverGroup,
    HealthStatus,
    StaticEndpointGroup,
    StaticEndpointGroupConfig,
)
from mesh.xds import messages as m
from mesh.xds.resources import packed
from mesh.xds.translation import tls
from mesh.xds.translation.endpoints import member
from mesh.xds.translation.faults import ADS, Unfit, socket_address

_CONNECT = datetime.timedelta(seconds=5)
_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": packed(
        m.HttpProtocolOptions(
            explicit_http_config=m.HttpProtocolOptionsExplicitHttpConfig(
                http2_protocol_options=m.Http2ProtocolOptions()
            )
        )
    )
}
_HEALTH = {
    HealthStatus.HEALTH_STATUS_HEALTHY: m.HealthStatus.HEALTHY,
    HealthStatus.HEALTH_STATUS_UNHEALTHY: m.HealthStatus.UNHEALTHY,
}


def cluster(path: str, given: Cluster, endpoints: Endpoints | None) -> m.Cluster:
    """Return a cluster.

    Args:
        path: where it is, for errors.
        given: the cluster.
        endpoints: its endpoints, if the state has them.
    """
    made = m.Cluster(
        name=given.name, alt_stat_name=given.alt_stat_name, typed_extension_protocol_options=_options(given.protocol)
    )
    if given.failover_group is not None:
        _failing_over(f"{path}.failover_group", made, given.failover_group)
    elif given.endpoint_group is None:
        raise Unfit(f"{path} has no endpoints: set endpoint_group or failover_group")
    elif given.endpoint_group.dynamic is not None:
        _found(f"{path}.endpoint_group", made, given.endpoint_group.dynamic)
    elif given.endpoint_group.static is not None:
        _fixed(made, given.endpoint_group.static, endpoints or Endpoints())
    else:
        raise Unfit(f"{path}.endpoint_group has no group: set dynamic or static")
    return made


def _failing_over(path: str, made: m.Cluster, given: FailoverGroup) -> None:
    """Make a cluster of several groups of endpoints, each with its own identities.

    A cluster of clusters would be simpler. But Envoy 1.40 may keep sending to its first member, which has no healthy
    endpoint, if it had rejected an earlier version of that member while it started.
    """
    for index, each in enumerate(given.endpoint_groups):
        at = f"{path}.endpoint_groups[{index}]"
        if each.dynamic is None:
            raise Unfit(f"{at}.dynamic is missing: the endpoints of a failover group are found while the proxy runs")
        if not index:
            _found(at, made, each.dynamic)
        made.transport_socket_matches.append(
            m.ClusterTransportSocketMatch(
                name=each.name, match=member(each.name), transport_socket=_socket(at, each.dynamic)
            )
        )
    if not given.endpoint_groups:
        raise Unfit(f"{path}.endpoint_groups is empty: name the groups in the order in which they are used")
    if given.config is not None and given.config.connect_timeout is not None:
        made.connect_timeout = _timeout(given.config.connect_timeout)


def _found(path: str, made: m.Cluster, group: DynamicEndpointGroup) -> None:
    config = group.config or DynamicEndpointGroupConfig()
    made.type = m.ClusterDiscoveryType.EDS
    made.eds_cluster_config = m.ClusterEdsClusterConfig(eds_config=ADS)
    made.connect_timeout = _timeout(config.connect_timeout)
    made.circuit_breakers = _breakers(config.circuit_breakers)
    if config.disable_panic_threshold:
        made.common_lb_config = m.ClusterCommonLbConfig(healthy_panic_threshold=m.Percent(value=0.0))
    _balance(made, config)
    made.transport_socket = _socket(path, group)


def _socket(path: str, group: DynamicEndpointGroup) -> m.TransportSocket:
    if group.outbound_tls is None:
        raise Unfit(f"{path}.dynamic.outbound_tls is missing: connections to other workloads are encrypted")
    return tls.outbound(f"{path}.dynamic.outbound_tls", group.outbound_tls)


def _fixed(made: m.Cluster, group: StaticEndpointGroup, endpoints: Endpoints) -> None:
    config = group.config or StaticEndpointGroupConfig()
    made.type = m.ClusterDiscoveryType.STATIC
    made.connect_timeout = _timeout(config.connect_timeout)
    made.circuit_breakers = _breakers(config.circuit_breakers)
    assigned = m.ClusterLoadAssignment(cluster_name=made.name)
    if endpoints.endpoints:
        held = [_endpoint(each) for each in endpoints.endpoints]
        assigned.endpoints.append(m.LocalityLbEndpoints(lb_endpoints=held))
    made.load_assignment = assigned


def _endpoint(given: Endpoint) -> m.LbEndpoint:
    made = m.LbEndpoint(health_status=_HEALTH.get(given.health_status, m.HealthStatus.UNKNOWN))
    if given.host_port is not None:
        made.endpoint = m.Endpoint(address=socket_address(given.host_port.host, given.host_port.port))
    elif given.unix_socket is not None:
        made.endpoint = m.Endpoint(address=m.Address(pipe=m.Pipe(path=given.unix_socket.path)))
    if given.load_balancing_weight is not None:
        made.load_balancing_weight = max(1, given.load_balancing_weight.value)
    return made


def _timeout(given: datetime.timedelta | None) -> datetime.timedelta:
    # A proxy takes only positive ones.
    return given if given is not None and given > datetime.timedelta() else _CONNECT


def _options(protocol: Protocol) -> dict[str, m.Any]:
    return dict(_HTTP2) if protocol in (Protocol.PROTOCOL_HTTP2, Protocol.PROTOCOL_GRPC) else {}


def _breakers(given: CircuitBreakers | None) -> m.CircuitBreakers | None:
    limits = given.upstream_limits if given is not None else None
    if limits is None:
        return None
    thresholds = m.CircuitBreakersThresholds(
        max_connections=None if limits.max_connections is None else limits.max_connections.value,
        max_pending_requests=None if limits.max_pending_requests is None else limits.max_pending_requests.value,
        max_requests=None if limits.max_concurrent_requests is None else limits.max_concurrent_requests.value,
    )
    return m.CircuitBreakers(thresholds=[thresholds])


def _balance(made: m.Cluster, given: DynamicEndpointGroupConfig) -> None:
    if given.least_request is not None:
        made.lb_policy = m.ClusterLbPolicy.LEAST_REQUEST
        count = given.least_request.choice_count
        if count is not None:
            # The proxy takes no number below 2.
            made.least_request_lb_config = m.ClusterLeastRequestLbConfig(choice_count=max(2, count.value))
    elif given.random is not None:
        made.lb_policy = m.ClusterLbPolicy.RANDOM
    elif given.maglev is not None:
        made.lb_policy = m.ClusterLbPolicy.MAGLEV
    elif given.ring_hash is not None:
        made.lb_policy = m.ClusterLbPolicy.RING_HASH
        sizes = given.ring_hash
        made.ring_hash_lb_config = m.ClusterRingHashLbConfig(
            minimum_ring_size=None if sizes.minimum_ring_size is None else sizes.minimum_ring_size.value,
            maximum_ring_size=None if sizes.maximum_ring_size is None else sizes.maximum_ring_size.value,
        )
