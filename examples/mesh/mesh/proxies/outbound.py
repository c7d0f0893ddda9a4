"""The listeners of a workload's destinations, their routes and clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import headway
from catalog.checks.references import service_id
from catalog.messages import Protocol
from catalog.types import SERVICE_ENDPOINTS
from mesh.explicit import address
from mesh.messages import (
    BackendTargetDetails,
    BackendTargetDetailsType,
    ComputedGRPCBackendRef,
    ComputedHTTPBackendRef,
    ComputedPortRoutes,
    ComputedTCPBackendRef,
    Destination,
    DestinationConfig,
    LoadBalancer,
    LoadBalancerPolicy,
    ProxyStateTemplate,
    UInt32Value,
    UInt64Value,
)
from mesh.messages.proxy_state import (
    Cluster,
    DestinationCluster,
    Direction,
    DynamicEndpointGroup,
    DynamicEndpointGroupConfig,
    EndpointGroup,
    EndpointRef,
    Endpoints,
    FailoverGroup,
    FailoverGroupConfig,
    HostPortAddress,
    L4Destination,
    L4WeightedClusterGroup,
    L4WeightedDestinationCluster,
    L7Destination,
    L7DestinationRoute,
    L7WeightedClusterGroup,
    L7WeightedDestinationCluster,
    LBPolicyLeastRequest,
    LBPolicyMaglev,
    LBPolicyRandom,
    LBPolicyRingHash,
    LBPolicyRoundRobin,
    Listener,
    MeshOutboundValidationContext,
    OutboundMeshMTLS,
    ProxyState,
    Route,
    RouteDestination,
    RouteMatch,
    Router,
    RouteRule,
    TransportSocket,
    UnixSocketAddress,
    VirtualHost,
)
from mesh.proxies import matching
from mesh.proxies.inbound import REQUESTS, static_cluster
from mesh.proxies.names import LOCAL, NULL_CLUSTER, Mesh, alpn

Identities = Callable[[headway.ResourceId], Sequence[str]]
"""A way to find the identities of a service's endpoints."""
Backend = ComputedHTTPBackendRef | ComputedGRPCBackendRef | ComputedTCPBackendRef
_DIRECT = BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_DIRECT


class Outbound:
    """The outbound part of a template.

    Args:
        id: the id of the workload.
        identity: the identity of the workload.
        mesh: the mesh of the proxy.
        identities: finds the identities that the endpoints of a service have.
    """

    def __init__(self, *, id: headway.ResourceId, identity: str, mesh: Mesh, identities: Identities) -> None:
        self._id = id
        self._identity = identity
        self._mesh = mesh
        self._identities = identities

    def add_to(self, template: ProxyStateTemplate, destination: Destination, config: ComputedPortRoutes) -> None:
        """Add the listener of a destination, the route of its port, and the clusters of the targets."""
        state = template.proxy_state
        if state is None or destination.destination_ref is None:
            return
        service = service_id(destination.destination_ref, self._id)
        at = f"{destination.destination_port}:{address(destination)}"
        name = f"{service.partition}/{service.namespace}/{service.name}:{at}"
        listener = Listener(name=name, direction=Direction.DIRECTION_OUTBOUND)
        if destination.ip_port is not None:
            listener.host_port = HostPortAddress(host=destination.ip_port.ip, port=destination.ip_port.port)
        elif destination.unix is not None:
            listener.unix_socket = UnixSocketAddress(path=destination.unix.path, mode=destination.unix.mode)
        listener.routers = [self._router(name, config, state)]
        state.listeners.append(listener)
        for key in sorted(config.targets):
            if config.targets[key].type == _DIRECT:
                self._add_cluster(config.targets[key], config, template)

    def _router(self, name: str, config: ComputedPortRoutes, state: ProxyState) -> Router:
        if config.tcp is not None:
            backends = config.tcp.rules[0].backend_refs if config.tcp.rules else []
            return Router(l4=self._connections(name, backends, config, state))
        state.routes[name] = Route(virtual_hosts=[VirtualHost(name=name, domains=["*"])])
        rules = state.routes[name].virtual_hosts[0].route_rules
        if config.http is not None:
            for http in config.http.rules:
                destination = self._requests(http.backend_refs, config, state)
                destination.destination_configuration = matching.treatment(http.filters, http.timeouts, http.retries)
                matches = [matching.http(each) for each in http.matches]
                rules += _rules(matches, destination, http.filters)
        if config.grpc is not None:
            for grpc in config.grpc.rules:
                destination = self._requests(grpc.backend_refs, config, state)
                destination.destination_configuration = matching.treatment(grpc.filters, grpc.timeouts, grpc.retries)
                matches = [matching.grpc(each) for each in grpc.matches]
                rules += _rules(matches, destination, grpc.filters)
        protocol = REQUESTS.get(config.protocol, REQUESTS[Protocol.PROTOCOL_HTTP])
        return Router(l7=L7Destination(route=L7DestinationRoute(name=name), stat_prefix=name, protocol=protocol))

    def _connections(
        self, name: str, backends: Sequence[Backend], config: ComputedPortRoutes, state: ProxyState
    ) -> L4Destination:
        clusters = self._clusters(backends, config, state)
        made = L4Destination(stat_prefix=name)
        if len(clusters) == 1:
            made.cluster = DestinationCluster(name=clusters[0][0])
        else:
            weighted = [
                L4WeightedDestinationCluster(name=name, weight=UInt32Value(value=weight)) for name, weight in clusters
            ]
            made.weighted_clusters = L4WeightedClusterGroup(clusters=weighted)
        return made

    def _requests(self, backends: Sequence[Backend], config: ComputedPortRoutes, state: ProxyState) -> RouteDestination:
        clusters = self._clusters(backends, config, state)
        if len(clusters) == 1:
            return RouteDestination(cluster=DestinationCluster(name=clusters[0][0]))
        weighted = [
            L7WeightedDestinationCluster(name=name, weight=UInt32Value(value=weight)) for name, weight in clusters
        ]
        return RouteDestination(weighted_clusters=L7WeightedClusterGroup(clusters=weighted))

    def _clusters(
        self, backends: Sequence[Backend], config: ComputedPortRoutes, state: ProxyState
    ) -> list[tuple[str, int]]:
        """Return the clusters of backends and their weights. A backend without a target has the null cluster."""
        found: list[tuple[str, int]] = []
        for each in backends:
            target = config.targets.get(each.backend_target)
            found.append((NULL_CLUSTER if target is None else self._cluster_name(target), each.weight))
        found = found or [(NULL_CLUSTER, 0)]
        if any(name == NULL_CLUSTER for name, _ in found):
            state.clusters[NULL_CLUSTER] = static_cluster(NULL_CLUSTER)
            state.endpoints[NULL_CLUSTER] = Endpoints()
        return found

    def _cluster_name(self, target: BackendTargetDetails) -> str:
        service, port = self._target(target)
        return self._mesh.cluster(service, port)

    def _target(self, target: BackendTargetDetails) -> tuple[headway.ResourceId, str]:
        backend = target.backend_ref
        if backend is None or backend.ref is None:
            raise ValueError("a target of computed routes must have a backend_ref with a ref")
        return service_id(backend.ref, self._id), backend.port

    def _add_cluster(
        self, target: BackendTargetDetails, config: ComputedPortRoutes, template: ProxyStateTemplate
    ) -> None:
        state = template.proxy_state
        assert state is not None
        name = self._cluster_name(target)
        protocol = max(config.protocol, Protocol.PROTOCOL_TCP)
        known = state.clusters.get(name)
        if known is not None:
            known.protocol = max(known.protocol, protocol)
            return
        failover = target.failover_config
        listed = [] if failover is None else [config.targets.get(each.backend_target) for each in failover.destinations]
        standing_in = [each for each in listed if each is not None]
        made = Cluster(name=name, protocol=protocol)
        if standing_in:
            groups = []
            for index, each in enumerate([target, *standing_in]):
                member = f"failover-target~{index}~{name}"
                groups.append(self._group(each, member))
                template.required_endpoints[member] = self._endpoints(each)
            timeout = None if target.destination_config is None else target.destination_config.connect_timeout
            made.failover_group = FailoverGroup(
                endpoint_groups=groups, config=FailoverGroupConfig(use_alt_stat_name=True, connect_timeout=timeout)
            )
            made.alt_stat_name = name
        else:
            made.endpoint_group = self._group(target, "")
            template.required_endpoints[name] = self._endpoints(target)
        state.clusters[name] = made

    def _endpoints(self, target: BackendTargetDetails) -> EndpointRef:
        service, port = self._target(target)
        id = service._replace(type=SERVICE_ENDPOINTS.name).message()
        return EndpointRef(id=id, mesh_port=target.mesh_port, route_port=port)

    def _group(self, target: BackendTargetDetails, name: str) -> EndpointGroup:
        service, port = self._target(target)
        config = target.destination_config or DestinationConfig()
        group = DynamicEndpointGroupConfig(connect_timeout=config.connect_timeout, disable_panic_threshold=True)
        if config.load_balancer is not None:
            _balance(group, config.load_balancer)
        spiffe_ids = [self._mesh.identity(service, each) for each in self._identities(service)]
        tls = OutboundMeshMTLS(
            identity_key=self._identity,
            validation_context=MeshOutboundValidationContext(trust_bundle_peer_name_key=LOCAL, spiffe_ids=spiffe_ids),
            sni=self._mesh.server_name(service),
        )
        socket = TransportSocket(outbound_mesh=tls, alpn_protocols=[alpn(port)])
        return EndpointGroup(name=name, dynamic=DynamicEndpointGroup(config=group, outbound_tls=socket))


def _rules(
    matches: Sequence[RouteMatch], destination: RouteDestination, filters: Sequence[matching.Filter]
) -> list[RouteRule]:
    changes = list(matching.mutations(filters))
    return [RouteRule(match=each, destination=destination, header_mutations=changes) for each in matches]


def _balance(group: DynamicEndpointGroupConfig, given: LoadBalancer) -> None:
    match given.policy:
        case LoadBalancerPolicy.LOAD_BALANCER_POLICY_RANDOM:
            group.random = LBPolicyRandom()
        case LoadBalancerPolicy.LOAD_BALANCER_POLICY_ROUND_ROBIN:
            group.round_robin = LBPolicyRoundRobin()
        case LoadBalancerPolicy.LOAD_BALANCER_POLICY_LEAST_REQUEST:
            count = given.least_request_config.choice_count if given.least_request_config is not None else 0
            group.least_request = LBPolicyLeastRequest(choice_count=UInt32Value(value=count) if count else None)
        case LoadBalancerPolicy.LOAD_BALANCER_POLICY_MAGLEV:
            group.maglev = LBPolicyMaglev()
        case LoadBalancerPolicy.LOAD_BALANCER_POLICY_RING_HASH:
            sizes = given.ring_hash_config
            group.ring_hash = LBPolicyRingHash()
            if sizes is not None and sizes.minimum_ring_size:
                group.ring_hash.minimum_ring_size = UInt64Value(value=sizes.minimum_ring_size)
            if sizes is not None and sizes.maximum_ring_size:
                group.ring_hash.maximum_ring_size = UInt64Value(value=sizes.maximum_ring_size)
        case _:
            pass
