"""Hand-made proxy states of two sidecars: one that serves, and one that calls it."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.messages import Endpoint, Health, Protocol, ServiceEndpoints, WorkloadAddress, WorkloadPort
from mesh.messages import ProxyState, UInt32Value
from mesh.messages import proxy_state as p
from mesh.proxies.names import MESH, alpn

LOCAL = "local"


def spiffe(name: str) -> str:
    return f"spiffe://{MESH.trust_domain}/ap/default/ns/default/identity/{name}"


def allowing(*names: str, rules: Sequence[p.DestinationRule] = ()) -> p.TrafficPermissions:
    principals = [p.Principal(spiffe=p.Spiffe(regex=MESH.identities("default", "default", each))) for each in names]
    return p.TrafficPermissions(
        allow_permissions=[p.Permission(principals=principals, destination_rules=list(rules))] if names else []
    )


def inbound_tls(name: str, port: str) -> p.TransportSocket:
    context = p.MeshInboundValidationContext(trust_bundle_peer_name_keys=[LOCAL])
    return p.TransportSocket(
        inbound_mesh=p.InboundMeshMTLS(identity_key=name, validation_context=context), alpn_protocols=[alpn(port)]
    )


def outbound_tls(name: str, port: str, spiffe_ids: Sequence[str]) -> p.TransportSocket:
    context = p.MeshOutboundValidationContext(trust_bundle_peer_name_key=LOCAL, spiffe_ids=list(spiffe_ids))
    tls = p.OutboundMeshMTLS(
        identity_key=name, validation_context=context, sni="api.default.dc1.internal.cluster.local"
    )
    return p.TransportSocket(outbound_mesh=tls, alpn_protocols=[alpn(port)])


def server(
    name: str,
    mesh_port: int,
    *,
    http: int = 0,
    tcp: int = 0,
    permitted: p.TrafficPermissions | None = None,
    most: int = 0,
) -> ProxyState:
    """Return the state of a sidecar that serves a port `http` and a port `tcp`."""
    state = ProxyState()
    listener = p.Listener(
        name="public_listener",
        direction=p.Direction.DIRECTION_INBOUND,
        host_port=p.HostPortAddress(host="127.0.0.1", port=mesh_port),
        capabilities=[p.Capability.CAPABILITY_L4_TLS_INSPECTION],
    )
    state.listeners.append(listener)
    for port, number in (("http", http), ("tcp", tcp)):
        if not number:
            continue
        local = f"local_app:{port}"
        match = p.Match(alpn_protocols=[alpn(port)])
        router = p.Router(match=match, inbound_tls=inbound_tls(name, port))
        if port == "http":
            router.l7 = p.L7Destination(
                route=p.L7DestinationRoute(name="public_listener:http"),
                stat_prefix="public_listener",
                traffic_permissions=permitted,
                static_route=True,
                max_inbound_connections=most,
            )
            state.routes["public_listener:http"] = to_cluster(local)
        else:
            router.l4 = p.L4Destination(
                cluster=p.DestinationCluster(name=local),
                stat_prefix="public_listener",
                traffic_permissions=permitted,
                max_inbound_connections=most,
            )
        listener.routers.append(router)
        protocol = Protocol.PROTOCOL_HTTP if port == "http" else Protocol.PROTOCOL_TCP
        group = p.StaticEndpointGroup(config=p.StaticEndpointGroupConfig())
        state.clusters[local] = p.Cluster(name=local, protocol=protocol, endpoint_group=p.EndpointGroup(static=group))
        at = p.HostPortAddress(host="127.0.0.1", port=number)
        state.endpoints[local] = p.Endpoints(
            endpoints=[p.Endpoint(host_port=at, health_status=p.HealthStatus.HEALTH_STATUS_HEALTHY)]
        )
    return state


def to_cluster(*clusters: str, weights: Sequence[int] = ()) -> p.Route:
    if len(clusters) == 1:
        destination = p.RouteDestination(cluster=p.DestinationCluster(name=clusters[0]))
    else:
        shares = [
            p.L7WeightedDestinationCluster(name=each, weight=UInt32Value(value=weight))
            for each, weight in zip(clusters, weights, strict=True)
        ]
        destination = p.RouteDestination(weighted_clusters=p.L7WeightedClusterGroup(clusters=shares))
    rule = p.RouteRule(match=p.RouteMatch(path_match=p.PathMatch(prefix="/")), destination=destination)
    return p.Route(virtual_hosts=[p.VirtualHost(name="all", domains=["*"], route_rules=[rule])])


def dynamic(
    name: str, caller: str, port: str, spiffe_ids: Sequence[str], protocol: Protocol = Protocol.PROTOCOL_HTTP
) -> p.Cluster:
    return p.Cluster(name=name, protocol=protocol, endpoint_group=group("", caller, port, spiffe_ids))


def group(name: str, caller: str, port: str, spiffe_ids: Sequence[str]) -> p.EndpointGroup:
    config = p.DynamicEndpointGroupConfig(disable_panic_threshold=True)
    tls = outbound_tls(caller, port, spiffe_ids)
    return p.EndpointGroup(name=name, dynamic=p.DynamicEndpointGroup(config=config, outbound_tls=tls))


def outbound(name: str, port: int, *, route: str = "", cluster: str = "") -> p.Listener:
    """Return a listener for the application: its requests have a route, its connections a cluster."""
    router = p.Router()
    if route:
        router.l7 = p.L7Destination(route=p.L7DestinationRoute(name=route), stat_prefix=name)
    else:
        router.l4 = p.L4Destination(cluster=p.DestinationCluster(name=cluster), stat_prefix=name)
    return p.Listener(
        name=name,
        direction=p.Direction.DIRECTION_OUTBOUND,
        host_port=p.HostPortAddress(host="127.0.0.1", port=port),
        routers=[router],
    )


def service_endpoints(
    *at: int, identity: str = "api", health: Health = Health.HEALTH_PASSING, host: str = "127.0.0.1"
) -> ServiceEndpoints:
    """Return endpoints that serve `http` and `tcp` through the mesh, at these ports."""
    ports = [
        {
            "mesh": WorkloadPort(port=each, protocol=Protocol.PROTOCOL_MESH),
            "http": WorkloadPort(port=80, protocol=Protocol.PROTOCOL_HTTP),
            "tcp": WorkloadPort(port=81, protocol=Protocol.PROTOCOL_TCP),
        }
        for each in at
    ]
    return ServiceEndpoints(
        endpoints=[
            Endpoint(
                addresses=[WorkloadAddress(host=host)],
                ports=each,
                health_status=health,
                identity=identity,
            )
            for each in ports
        ]
    )
