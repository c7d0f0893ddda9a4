"""The rules of computed routes and of the templates of proxy states."""

from __future__ import annotations

from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.messages import Protocol
from headway import Resource
from headway.resource import quoted
from mesh.checks import limits
from mesh.messages import (
    BackendTargetDetails,
    BackendTargetDetailsType,
    ComputedPortRoutes,
    ComputedRoutes,
    ProxyStateTemplate,
)
from mesh.messages.proxy_state import Cluster


def routes(resource: Resource[ComputedRoutes]) -> Faults:
    """Yield the faults of computed routes."""
    if not resource.data.ported_configs:
        yield "data.ported_configs is empty: give the routing of at least one port"
    for port, config in resource.data.ported_configs.items():
        yield from _port(f"data.ported_configs[{quoted(port)}]", config)


def _port(path: str, config: ComputedPortRoutes) -> Faults:
    if config.http is None and config.grpc is None and config.tcp is None:
        yield f"{path} has no routing: set http, grpc or tcp"
    for key, target in config.targets.items():
        yield from _target(f"{path}.targets[{quoted(key)}]", target)


def _target(path: str, target: BackendTargetDetails) -> Faults:
    yield from values.member(f"{path}.type", target.type, 1)
    indirect = target.type == BackendTargetDetailsType.BACKEND_TARGET_DETAILS_TYPE_INDIRECT
    if indirect and target.failover_config is not None:
        yield f"{path}.failover_config must be absent: an indirect target stands in itself"
    if not target.mesh_port:
        yield f"{path}.mesh_port is required, such as 'mesh'"
    if target.destination_config is None:
        yield f"{path}.destination_config is required"
    else:
        yield from limits.duration(
            f"{path}.destination_config.connect_timeout", target.destination_config.connect_timeout
        )


def template(resource: Resource[ProxyStateTemplate]) -> Faults:
    """Yield the faults of the template of a proxy state."""
    state = resource.data.proxy_state
    for key, cluster in (state.clusters if state is not None else {}).items():
        yield from _cluster(f"data.proxy_state.clusters[{quoted(key)}]", key, cluster)


def _cluster(path: str, key: str, cluster: Cluster) -> Faults:
    if not cluster.name or cluster.name != key:
        yield f"{path}.name {quoted(cluster.name)} must be the key of the cluster, and not empty"
    yield from values.member(f"{path}.protocol", cluster.protocol, 1)
    if cluster.protocol == Protocol.PROTOCOL_MESH:
        yield f"{path}.protocol PROTOCOL_MESH is no protocol of a cluster: use that of the port"
    single, failover = cluster.endpoint_group, cluster.failover_group
    if single is None and failover is None:
        yield f"{path} has no endpoints: set endpoint_group or failover_group"
    if single is not None and single.name not in ("", cluster.name):
        yield f"{path}.endpoint_group.name {quoted(single.name)} must be empty or that of the cluster"
    if failover is not None:
        if not failover.endpoint_groups:
            yield f"{path}.failover_group.endpoint_groups is empty: give at least one"
        for index, group in enumerate(failover.endpoint_groups):
            if group.name in ("", cluster.name):
                at = f"{path}.failover_group.endpoint_groups[{index}].name"
                yield f"{at} {quoted(group.name)} must not be empty, nor that of the cluster"
