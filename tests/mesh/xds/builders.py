"""Short forms of the resources that the tests send to proxies."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from mesh.xds import Resource, packed
from mesh.xds import messages as m

ADS = m.ConfigSource(ads=m.AggregatedConfigSource(), resource_api_version=m.ApiVersion.V3)


def address(port: int) -> m.Address:
    return m.Address(socket_address=m.SocketAddress(address="127.0.0.1", port_value=port))


def cluster(name: str, seconds: float = 1.0, secret: str = "") -> Resource:
    """Return a cluster whose endpoints are sent apart, and its secret, too."""
    socket = None
    if secret:
        sds = m.SdsSecretConfig(name=secret, sds_config=ADS)
        tls = m.UpstreamTlsContext(common_tls_context=m.CommonTlsContext(tls_certificate_sds_secret_configs=[sds]))
        socket = m.TransportSocket(name="envoy.transport_sockets.tls", typed_config=packed(tls))
    return Resource.of(
        m.Cluster(
            name=name,
            type=m.ClusterDiscoveryType.EDS,
            eds_cluster_config=m.ClusterEdsClusterConfig(eds_config=ADS),
            connect_timeout=datetime.timedelta(seconds=seconds),
            transport_socket=socket,
        )
    )


def secret(name: str) -> Resource:
    return Resource.of(m.Secret(name=name))


def endpoints(name: str, *ports: int) -> Resource:
    group = m.LocalityLbEndpoints(
        locality=m.Locality(region="local"),
        load_balancing_weight=1,
        lb_endpoints=[m.LbEndpoint(endpoint=m.Endpoint(address=address(port))) for port in ports],
    )
    return Resource.of(m.ClusterLoadAssignment(cluster_name=name, endpoints=[group]))


def route(name: str, weights: Mapping[str, int], domains: Sequence[str] = ("*",)) -> Resource:
    clusters = [m.WeightedClusterClusterWeight(name=each, weight=weight) for each, weight in weights.items()]
    action = m.RouteAction(weighted_clusters=m.WeightedCluster(clusters=clusters))
    host = m.VirtualHost(
        name="all", domains=list(domains), routes=[m.Route(match=m.RouteMatch(prefix="/"), route=action)]
    )
    return Resource.of(m.RouteConfiguration(name=name, virtual_hosts=[host]))


def manager(route: str) -> m.HttpConnectionManager:
    return m.HttpConnectionManager(
        stat_prefix="in",
        rds=m.Rds(config_source=ADS, route_config_name=route),
        http_filters=[m.HttpFilter(name="envoy.filters.http.router", typed_config=packed(m.Router()))],
    )


def listener(name: str, port: int, route: str) -> Resource:
    filters = [m.Filter(name="http", typed_config=packed(manager(route)))]
    return Resource.of(m.Listener(name=name, address=address(port), filter_chains=[m.FilterChain(filters=filters)]))


def api_listener(name: str, route: str) -> Resource:
    """Return a listener as clients of gRPC get it."""
    return Resource.of(m.Listener(name=name, api_listener=m.ApiListener(api_listener=packed(manager(route)))))
