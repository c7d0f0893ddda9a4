"""The endpoints that are found while a proxy runs: those of a service that serve a port through the mesh."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from catalog.messages import Endpoint, Health, ServiceEndpoints
from mesh.messages.proxy_state import EndpointRef
from mesh.xds import messages as m
from mesh.xds.translation.faults import socket_address

# One locality: without a weight of its own, those of its endpoints are not used.
_LOCALITY = m.Locality(region="local")
_HEALTH = {
    Health.HEALTH_CRITICAL: m.HealthStatus.UNHEALTHY,
    # It gets no new connections, and ends those that it has.
    Health.HEALTH_MAINTENANCE: m.HealthStatus.DRAINING,
}
# By default, others stand in for a cluster once less than 72 % of it is healthy. Here, all of it must fail first.
_POLICY = m.ClusterLoadAssignmentPolicy(overprovisioning_factor=100_000)
_MATCHED = "envoy.transport_socket_match"
_SERVING = (m.HealthStatus.HEALTHY, m.HealthStatus.DRAINING, m.HealthStatus.UNHEALTHY)


@dataclass(frozen=True)
class Assigned:
    """The endpoints of a cluster.

    Attributes:
        message: the endpoints, as a proxy gets them.
        problems: what was left out, and why.
    """

    message: m.ClusterLoadAssignment
    problems: tuple[str, ...]


def member(name: str) -> m.Struct:
    """Return what tells the endpoints of one group of a failover cluster from those of the others."""
    return m.Struct(fields={"member": m.Value(string_value=name)})


def joined(cluster: str, members: Sequence[Assigned]) -> Assigned:
    """Return the endpoints of a failover cluster: those of a group are used if the groups before it have none."""
    made = m.ClusterLoadAssignment(cluster_name=cluster, policy=_POLICY)
    for priority, each in enumerate(members):
        # A group without endpoints keeps its place: there must be no gap.
        found = [one for group in each.message.endpoints for one in group.lb_endpoints]
        for one in found:
            one.metadata = m.Metadata(filter_metadata={_MATCHED: member(each.message.cluster_name)})
        group = m.LocalityLbEndpoints(locality=_LOCALITY, load_balancing_weight=1, lb_endpoints=found)
        group.priority = priority
        made.endpoints.append(group)
    return Assigned(made, tuple(text for each in members for text in each.problems))


def assign(
    cluster: str, ref: EndpointRef, given: ServiceEndpoints | None, is_trusted: Callable[[str], bool]
) -> Assigned:
    """Return the endpoints of a cluster, in order of their addresses.

    An endpoint that cannot be used is left out, and the others stay.

    Args:
        cluster: the name of the cluster, or of the group of a failover cluster.
        ref: the ports that they must serve.
        given: the endpoints of the service; None if it has none yet.
        is_trusted: True for the identities that the cluster accepts. Those of others would fail every request.
    """
    made = m.ClusterLoadAssignment(cluster_name=cluster, policy=_POLICY)
    problems: list[str] = []
    found: dict[tuple[str, int], m.LbEndpoint] = {}
    for each in given.endpoints if given is not None else ():
        if not is_trusted(each.identity):
            continue
        for host, port in _addresses(each, ref):
            if not _is_ip(host):
                problems.append(f"{host!r} is not an IP address")
                continue
            one = m.LbEndpoint(
                endpoint=m.Endpoint(address=socket_address(host, port)),
                health_status=_HEALTH.get(each.health_status, m.HealthStatus.HEALTHY),
                load_balancing_weight=_weight(each),
            )
            known = found.get((host, port))
            if known is None or _SERVING.index(one.health_status) < _SERVING.index(known.health_status):
                found[host, port] = one
    if found:
        ordered = [found[key] for key in sorted(found)]
        made.endpoints = [m.LocalityLbEndpoints(locality=_LOCALITY, load_balancing_weight=1, lb_endpoints=ordered)]
    return Assigned(made, tuple(sorted(set(problems))))


def _addresses(endpoint: Endpoint, ref: EndpointRef) -> Iterator[tuple[str, int]]:
    """Yield the addresses at which both ports are served."""
    mesh = endpoint.ports.get(ref.mesh_port)
    if mesh is None or ref.route_port not in endpoint.ports:
        return
    for each in endpoint.addresses:
        serves = not each.ports or (ref.mesh_port in each.ports and ref.route_port in each.ports)
        if serves and not each.external:
            yield each.host, mesh.port


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _weight(endpoint: Endpoint) -> int:
    weights = endpoint.dns.weights if endpoint.dns is not None else None
    if weights is None:
        return 1
    return max(1, weights.warning if endpoint.health_status == Health.HEALTH_WARNING else weights.passing)
