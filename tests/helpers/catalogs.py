"""Resources of the catalog, and apps with some of its controllers, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import catalog
import headway
from catalog import messages
from catalog.messages import Health, Protocol
from catalog.types import HEALTH_STATUS, NODE, NODE_HEALTH_STATUS, SERVICE, WORKLOAD

HTTP, GRPC, MESH = Protocol.PROTOCOL_HTTP, Protocol.PROTOCOL_GRPC, Protocol.PROTOCOL_MESH
PASSING, WARNING, CRITICAL, MAINTENANCE = (
    Health.HEALTH_PASSING,
    Health.HEALTH_WARNING,
    Health.HEALTH_CRITICAL,
    Health.HEALTH_MAINTENANCE,
)


def with_controllers(*names: str) -> headway.App:
    """Return an app with the catalog's types and only these of its controllers."""
    app = headway.App("catalog")
    app.registry = catalog.app.registry
    for name in names:
        app.controllers[name] = catalog.app.controllers[name]
    return app


def node(name: str, **given: Any) -> headway.Resource[messages.Node]:
    """Return a new node with an address."""
    return NODE.new(name, messages.Node(addresses=[messages.NodeAddress(host="10.0.0.1")]), **given)


def workload(
    name: str,
    *,
    node: str = "",
    identity: str = "",
    ports: Mapping[str, Protocol] | None = None,
    hosts: Sequence[str] = ("10.1.0.1",),
    **given: Any,
) -> headway.Resource[messages.Workload]:
    """Return a new workload. Its ports have the numbers from 8000 on."""
    protocols = {"http": HTTP} if ports is None else ports
    data = messages.Workload(
        addresses=[messages.WorkloadAddress(host=host) for host in hosts],
        ports={
            port: messages.WorkloadPort(port=8000 + number, protocol=protocol)
            for number, (port, protocol) in enumerate(protocols.items())
        },
        node_name=node,
        identity=identity,
    )
    return WORKLOAD.new(name, data, **given)


def service(
    name: str,
    *,
    prefixes: Sequence[str] = (),
    names: Sequence[str] = (),
    filter: str = "",
    ports: Mapping[str, Protocol] | None = None,
    **given: Any,
) -> headway.Resource[messages.Service]:
    """Return a new service. Without prefixes and names it has no selector."""
    selector = messages.WorkloadSelector(prefixes=list(prefixes), names=list(names), filter=filter)
    protocols = {"http": HTTP} if ports is None else ports
    data = messages.Service(
        workloads=selector if prefixes or names else None,
        ports=[messages.ServicePort(target_port=port, protocol=protocol) for port, protocol in protocols.items()],
    )
    return SERVICE.new(name, data, **given)


def check(
    of: headway.Resource[messages.Workload] | headway.ResourceId, health: Health, name: str = ""
) -> headway.Resource[messages.HealthStatus]:
    """Return the result of a check of a stored workload."""
    data = messages.HealthStatus(type="http", status=health)
    id = of if isinstance(of, headway.ResourceId) else of.id
    return HEALTH_STATUS.new(name or f"{id.name}-check", data, owner=of, namespace=id.namespace)


def node_check(
    of: headway.Resource[messages.Node], health: Health, name: str = ""
) -> headway.Resource[messages.NodeHealthStatus]:
    """Return the result of a check of a stored node."""
    data = messages.NodeHealthStatus(type="disk", status=health)
    return NODE_HEALTH_STATUS.new(name or f"{of.name}-check", data, owner=of)


def conditions(resource: headway.Resource[Any], key: str) -> list[tuple[str, str, str, str]]:
    """Return the conditions under a key, as (type, state, reason, message). The status must be of this generation."""
    status = resource.status[key]
    assert status.observed_generation == resource.generation
    return [(each.type, each.state.name or "", each.reason, each.message) for each in status.conditions]
