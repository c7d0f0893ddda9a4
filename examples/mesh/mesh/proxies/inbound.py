"""The listener for other proxies, and the clusters of the workload's own ports."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable

from catalog.messages import ComputedTrafficPermissions, Protocol, Service, Workload
from catalog.ports import find_target_port, mesh_address, mesh_port
from mesh.messages import DynamicConfig, UInt32Value
from mesh.messages.proxy_state import (
    Capability,
    CircuitBreakers,
    Cluster,
    DestinationCluster,
    DestinationConfiguration,
    Direction,
    Endpoint,
    EndpointGroup,
    Endpoints,
    HealthStatus,
    HostPortAddress,
    InboundMeshMTLS,
    L4Destination,
    L7Destination,
    L7DestinationRoute,
    L7Protocol,
    Listener,
    Match,
    MeshInboundValidationContext,
    PathMatch,
    ProxyState,
    Route,
    RouteDestination,
    RouteMatch,
    Router,
    RouteRule,
    StaticEndpointGroup,
    StaticEndpointGroupConfig,
    TimeoutConfig,
    TransportSocket,
    UpstreamLimits,
    VirtualHost,
)
from mesh.proxies import permissions
from mesh.proxies.names import BLACK_HOLE, LOCAL, Mesh, alpn

LISTENER = "public_listener"
"""The name of the listener for other proxies."""
REQUESTS = {
    Protocol.PROTOCOL_HTTP: L7Protocol.L7_PROTOCOL_HTTP,
    Protocol.PROTOCOL_HTTP2: L7Protocol.L7_PROTOCOL_HTTP2,
    Protocol.PROTOCOL_GRPC: L7Protocol.L7_PROTOCOL_GRPC,
}
"""The protocols whose requests a proxy understands."""


def protocols(workload: Workload, services: Iterable[Service]) -> dict[str, Protocol]:
    """Return the protocol of each port but the mesh port, in order of their names.

    Without one of its own, a port has that of the services that select the workload. If they have none, or different
    ones, it is TCP.
    """
    of_services: dict[str, set[Protocol]] = defaultdict(set)
    for service in services:
        for name in workload.ports:
            port = find_target_port(service, name)
            if port is not None and port.protocol != Protocol.PROTOCOL_UNSPECIFIED:
                of_services[name].add(port.protocol)
    found: dict[str, Protocol] = {}
    for name in sorted(workload.ports):
        protocol = workload.ports[name].protocol
        if protocol == Protocol.PROTOCOL_MESH:
            continue
        if protocol == Protocol.PROTOCOL_UNSPECIFIED:
            agreed = of_services[name]
            protocol = next(iter(agreed)) if len(agreed) == 1 else Protocol.PROTOCOL_TCP
        # A service cannot turn another port into the mesh port.
        found[name] = Protocol.PROTOCOL_TCP if protocol == Protocol.PROTOCOL_MESH else protocol
    return found


class Inbound:
    """The inbound part of the state of a workload's proxy.

    Args:
        workload: has a mesh port and an identity.
        given: the protocol of each port, in the order of the routers.
        permitted: the computed permissions of the workload's identity.
        config: the configuration of the proxy.
        mesh: the mesh of the proxy.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        given: dict[str, Protocol],
        permitted: ComputedTrafficPermissions | None,
        config: DynamicConfig,
        mesh: Mesh,
    ) -> None:
        self._workload = workload
        self._given = given
        self._permitted = permitted
        self._config = config
        self._mesh = mesh
        limits = config.inbound_connections
        self._most = 0 if limits is None else limits.max_inbound_connections

    def add_to(self, state: ProxyState) -> None:
        """Add the listener with its routes, clusters and endpoints. Without an address, there is nothing to add."""
        address = mesh_address(self._workload)
        if address is None:
            return
        limits = self._config.inbound_connections
        port = self._workload.ports[mesh_port(self._workload.ports)].port
        listener = Listener(
            name=LISTENER,
            direction=Direction.DIRECTION_INBOUND,
            host_port=HostPortAddress(host=address.host, port=port),
            capabilities=[Capability.CAPABILITY_L4_TLS_INSPECTION],
        )
        if limits is not None:
            listener.balance_connections = limits.balance_inbound_connections
        state.listeners.append(listener)
        for name, protocol in self._given.items():
            listener.routers.append(self._router(name, protocol, state))
            self._add_cluster(name, protocol, state)
        if not self._given:
            listener.routers.append(Router(l4=_to(BLACK_HOLE)))
            state.clusters[BLACK_HOLE] = static_cluster(BLACK_HOLE)
            state.endpoints[BLACK_HOLE] = Endpoints()

    def _router(self, port: str, protocol: Protocol, state: ProxyState) -> Router:
        permitted = permissions.of_port(self._permitted, port, self._mesh, has_requests=protocol in REQUESTS)
        name = f"{LISTENER}:{port}"
        tls = TransportSocket(
            inbound_mesh=InboundMeshMTLS(
                identity_key=self._workload.identity,
                validation_context=MeshInboundValidationContext(trust_bundle_peer_name_keys=[LOCAL]),
            ),
            alpn_protocols=[alpn(port)],
        )
        router = Router(match=Match(alpn_protocols=[alpn(port)]), inbound_tls=tls)
        if protocol not in REQUESTS:
            router.l4 = _to(_local(port))
            router.l4.traffic_permissions = permitted
            router.l4.max_inbound_connections = self._most
            return router
        router.l7 = L7Destination(
            route=L7DestinationRoute(name=name),
            stat_prefix=LISTENER,
            protocol=REQUESTS[protocol],
            traffic_permissions=permitted,
            static_route=True,
            max_inbound_connections=self._most,
        )
        state.routes[name] = self._route(name, port)
        return router

    def _route(self, name: str, port: str) -> Route:
        destination = RouteDestination(cluster=DestinationCluster(name=_local(port)))
        connection = self._config.local_connection.get(port)
        if connection is not None and connection.request_timeout is not None:
            timeout = TimeoutConfig(timeout=connection.request_timeout)
            destination.destination_configuration = DestinationConfiguration(timeout_config=timeout)
        rule = RouteRule(match=RouteMatch(path_match=PathMatch(prefix="/")), destination=destination)
        return Route(virtual_hosts=[VirtualHost(name=name, domains=["*"], route_rules=[rule])])

    def _add_cluster(self, port: str, protocol: Protocol, state: ProxyState) -> None:
        name = _local(port)
        config = StaticEndpointGroupConfig()
        connection = self._config.local_connection.get(port)
        timeout: datetime.timedelta | None = None if connection is None else connection.connect_timeout
        config.connect_timeout = timeout
        if self._most:
            limits = UpstreamLimits(max_connections=UInt32Value(value=self._most))
            config.circuit_breakers = CircuitBreakers(upstream_limits=limits)
        state.clusters[name] = static_cluster(name, protocol, config)
        address = HostPortAddress(host="127.0.0.1", port=self._workload.ports[port].port)
        endpoint = Endpoint(host_port=address, health_status=HealthStatus.HEALTH_STATUS_HEALTHY)
        state.endpoints[name] = Endpoints(endpoints=[endpoint])


def static_cluster(
    name: str, protocol: Protocol = Protocol.PROTOCOL_TCP, config: StaticEndpointGroupConfig | None = None
) -> Cluster:
    """Return a cluster whose endpoints are in the state itself."""
    group = StaticEndpointGroup(config=config or StaticEndpointGroupConfig())
    return Cluster(name=name, protocol=protocol, endpoint_group=EndpointGroup(static=group))


def _local(port: str) -> str:
    return f"local_app:{port}"


def _to(cluster: str) -> L4Destination:
    return L4Destination(cluster=DestinationCluster(name=cluster), stat_prefix=LISTENER)
