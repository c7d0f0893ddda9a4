"""The whole template of a workload's proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import headway
from catalog.checks.references import service_id
from catalog.messages import ComputedTrafficPermissions, Service, Workload
from catalog.ports import is_mesh_enabled
from catalog.types import WORKLOAD_IDENTITY
from mesh.messages import (
    ComputedExplicitDestinations,
    ComputedProxyConfiguration,
    ComputedRoutes,
    DynamicConfig,
    ProxyState,
    ProxyStateTemplate,
)
from mesh.messages.proxy_state import LeafCertificateRef, TrustBundleRef
from mesh.proxies.inbound import Inbound, protocols
from mesh.proxies.names import LOCAL, Mesh
from mesh.proxies.outbound import Outbound

GATEWAY = "gateway-kind"
"""The metadata of a workload that is a gateway."""


class View(Protocol):
    """A way to find the resources of a proxy."""

    def selecting(self, workload: headway.Resource[Workload]) -> Iterable[Service]:
        """Return the services that select a workload."""
        ...

    def service(self, id: headway.ResourceId) -> Service | None:
        """Return the service with an id."""
        ...

    def routes(self, service: headway.ResourceId) -> ComputedRoutes | None:
        """Return the computed routes of a service."""
        ...

    def identities(self, service: headway.ResourceId) -> list[str]:
        """Return the identities of a service's endpoints, sorted."""
        ...

    def permissions(self, workload: headway.Resource[Workload]) -> ComputedTrafficPermissions | None:
        """Return the computed permissions of a workload's identity."""
        ...

    def configuration(self, workload: headway.ResourceId) -> ComputedProxyConfiguration | None:
        """Return the computed configuration of a workload's proxy."""
        ...

    def destinations(self, workload: headway.ResourceId) -> ComputedExplicitDestinations | None:
        """Return the computed destinations of a workload."""
        ...


def template(workload: headway.Resource[Workload], view: View, mesh: Mesh) -> ProxyStateTemplate | None:
    """Return the template of a workload's proxy, or None if the workload has no sidecar."""
    data, id = workload.data, workload.id
    if not is_mesh_enabled(data) or not data.identity or workload.metadata.get(GATEWAY):
        return None
    identity = WORKLOAD_IDENTITY.id(data.identity, partition=id.partition, namespace=id.namespace)
    state = ProxyState(identity=identity.reference())
    made = ProxyStateTemplate(proxy_state=state)
    configured = view.configuration(id)
    Inbound(
        workload=data,
        given=protocols(data, view.selecting(workload)),
        permitted=view.permissions(workload),
        config=(configured.dynamic_config if configured is not None else None) or DynamicConfig(),
        mesh=mesh,
    ).add_to(state)
    outbound = Outbound(id=id, identity=data.identity, mesh=mesh, identities=view.identities)
    destinations = view.destinations(id)
    for each in destinations.destinations if destinations is not None else ():
        if each.destination_ref is None:
            continue
        to = service_id(each.destination_ref, id)
        service, routes = view.service(to), view.routes(to)
        config = None if routes is None else routes.ported_configs.get(each.destination_port)
        if service is not None and is_mesh_enabled(service) and config is not None:
            outbound.add_to(made, each, config)
    made.required_leaf_certificates[data.identity] = LeafCertificateRef(
        name=data.identity, namespace=id.namespace, partition=id.partition
    )
    made.required_trust_bundles[LOCAL] = TrustBundleRef(peer=LOCAL, trust_domain=mesh.trust_domain)
    return made
