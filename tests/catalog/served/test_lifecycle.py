"""Nodes, workloads and services that come, change and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from catalog import types
from catalog.messages import (
    Health,
    HealthStatus,
    Node,
    NodeAddress,
    NodeHealthStatus,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from headway import Resource, ResourceId, ResourceType
from tests.catalog.served.kit import KINDS, PATIENCE, Served, condition_of, served, until

PASSING, WARNING = Health.HEALTH_PASSING, Health.HEALTH_WARNING
CRITICAL, MAINTENANCE = Health.HEALTH_CRITICAL, Health.HEALTH_MAINTENANCE
CHANGES = [PASSING, WARNING, CRITICAL, MAINTENANCE, CRITICAL, WARNING, PASSING, WARNING]
OF_WORKLOAD = "One or more workload health checks are not passing"
OF_NODE = "One or more node health checks are not passing"
OF_BOTH = "One or more workload and node health checks are not passing"
ALONE = "All workload health checks are passing"
PORTS = {
    "http": WorkloadPort(port=8080, protocol=Protocol.PROTOCOL_HTTP),
    "grpc": WorkloadPort(port=9090, protocol=Protocol.PROTOCOL_GRPC),
    "mesh": WorkloadPort(port=10000, protocol=Protocol.PROTOCOL_MESH),
}
SERVICE_PORTS = {name: ServicePort(target_port=name, protocol=port.protocol) for name, port in PORTS.items()}


class Acting:
    """The steps of the scenarios: what is written, and what is waited for."""

    def __init__(self, running: Served) -> None:
        self.client, self.writer = running.client, running.writer

    async def node(self, name: str) -> ResourceId:
        data = Node(addresses=[NodeAddress(host="172.16.2.3")])
        return await self.writer.write(types.NODE.new(name, data))

    async def node_health(self, node: ResourceId, health: Health) -> ResourceId:
        data = NodeHealthStatus(type="synthetic", status=health)
        return await self.writer.write(types.NODE_HEALTH_STATUS.new(f"{node.name}-health", data, owner=node))

    async def workload(self, name: str, node_name: str = "") -> ResourceId:
        ports, addresses = {"http": PORTS["http"]}, [WorkloadAddress(host="10.0.0.1")]
        return await self.writer.write(
            types.WORKLOAD.new(name, Workload(ports=ports, addresses=addresses, node_name=node_name))
        )

    async def health(self, workload: ResourceId, health: Health) -> ResourceId:
        data = HealthStatus(type="synthetic", status=health)
        return await self.writer.write(types.HEALTH_STATUS.new(f"{workload.name}-health", data, owner=workload))

    async def until_node_is(self, node: ResourceId, health: Health) -> None:
        await until(self.client, types.NODE, node.name, condition_of("consul.io/node-health", "healthy", health.name))

    async def until_workload_is(self, workload: ResourceId, health: Health, message: str | None = None) -> None:
        awaited = condition_of("consul.io/workload-health", "healthy", health.name, message)
        await until(self.client, types.WORKLOAD, workload.name, awaited)

    async def delete_with(self, owner: ResourceId, type: ResourceType[Any], owned: ResourceId) -> None:
        """Delete a resource, and wait until the one that it owns is gone."""
        await self.writer.delete(owner)
        with trio.fail_after(PATIENCE):
            await headway.until_gone(self.client, type, owned)

    async def service(self, *ports: str, names: Sequence[str] = (), prefixes: Sequence[str] = ()) -> ResourceId:
        """Write the service with ports, and the names or prefixes that it selects."""
        selector = WorkloadSelector(names=list(names), prefixes=list(prefixes)) if names or prefixes else None
        data = Service(workloads=selector, ports=[SERVICE_PORTS[each] for each in ports])
        return await self.writer.write(types.SERVICE.new("api", data))

    async def until_managed(self, *, managed: bool) -> None:
        reason = "SelectorFound" if managed else "SelectorNotFound"
        awaited = condition_of("consul.io/endpoint-manager", "EndpointsManaged", reason)
        await until(self.client, types.SERVICE, "api", awaited)

    async def until_endpoints_are(self, *expected: tuple[str, list[str], Health]) -> None:
        """Wait for endpoints, as (workload, ["host [ports]"], health)."""

        def holds(found: Resource[ServiceEndpoints] | None) -> bool:
            if found is None:
                return False
            shown = [
                (
                    each.target_ref.name if each.target_ref else "",
                    [f"{address.host} {sorted(address.ports)}" for address in each.addresses],
                    each.health_status,
                )
                for each in found.data.endpoints
            ]
            return shown == list(expected)

        await until(self.client, types.SERVICE_ENDPOINTS, "api", holds)

    async def until_endpoints_are_gone(self) -> None:
        with trio.fail_after(PATIENCE):
            await headway.until_gone(self.client, types.SERVICE_ENDPOINTS, "api")


async def nodes_follow_their_health(act: Acting) -> None:
    node = await act.node("test-node")
    await act.until_node_is(node, PASSING)
    for each in CHANGES:
        status = await act.node_health(node, each)
        await act.until_node_is(node, each)
    await act.writer.delete(status)
    await act.until_node_is(node, PASSING)
    status = await act.node_health(node, CRITICAL)
    await act.until_node_is(node, CRITICAL)
    await act.delete_with(node, types.NODE_HEALTH_STATUS, status)


async def workloads_follow_their_health(act: Acting) -> None:
    workload = await act.workload("test-workload")
    await act.until_workload_is(workload, PASSING, ALONE)
    for each in CHANGES:
        status = await act.health(workload, each)
        await act.until_workload_is(workload, each, ALONE if each == PASSING else OF_WORKLOAD)
    await act.writer.delete(status)
    await act.until_workload_is(workload, PASSING, ALONE)
    status = await act.health(workload, CRITICAL)
    await act.until_workload_is(workload, CRITICAL)
    await act.delete_with(workload, types.HEALTH_STATUS, status)


async def workloads_follow_their_nodes(act: Acting) -> None:
    first, second = await act.node("node-1"), await act.node("node-2")
    await act.node_health(first, CRITICAL)
    await act.node_health(second, WARNING)
    workload = await act.workload("test-workload")
    await act.until_workload_is(workload, PASSING, ALONE)
    await act.workload("test-workload", "node-1")
    await act.until_workload_is(workload, CRITICAL, OF_NODE)
    await act.workload("test-workload", "node-2")
    await act.until_workload_is(workload, WARNING, OF_NODE)
    await act.writer.delete(second)
    await act.until_workload_is(workload, CRITICAL, OF_NODE)
    await act.workload("test-workload", "node-1")
    await act.node_health(first, WARNING)
    await act.until_workload_is(workload, WARNING, OF_NODE)
    await act.health(workload, CRITICAL)
    await act.until_workload_is(workload, CRITICAL, OF_BOTH)
    await act.health(workload, PASSING)
    await act.until_workload_is(workload, WARNING, OF_NODE)
    await act.workload("test-workload")
    await act.until_workload_is(workload, PASSING, ALONE)


def workload_data(ports: list[str], addresses: dict[str, list[str]]) -> Workload:
    return Workload(
        ports={name: PORTS[name] for name in ports},
        addresses=[WorkloadAddress(host=host, ports=names) for host, names in addresses.items()],
        identity="api",
    )


API = {
    "api-1": workload_data(
        ["http", "grpc", "mesh"],
        {"127.0.0.1": [], "::1": ["grpc"], "127.0.0.2": ["http"], "172.17.1.1": ["mesh"]},
    ),
    "api-2": workload_data(["grpc", "mesh"], {"127.0.0.1": [], "::1": ["grpc"], "172.17.1.2": ["mesh"]}),
    "api-3": workload_data(["http", "mesh"], {"127.0.0.1": [], "172.17.1.3": ["mesh"]}),
}


async def endpoints_follow_their_service(act: Acting) -> None:
    write = act.writer.write
    service = await act.service("http")
    await act.until_managed(managed=False)
    assert await act.client.get(types.SERVICE_ENDPOINTS, "api") is None
    endpoints = await write(types.SERVICE_ENDPOINTS.new("api", owner=service))
    await act.delete_with(service, types.SERVICE_ENDPOINTS, endpoints)

    workloads = {name: await write(types.WORKLOAD.new(name, data)) for name, data in API.items()}
    service = await act.service("http")
    await act.until_managed(managed=False)
    by_hand = types.SERVICE_ENDPOINTS.new("api", owner=service, metadata={"by": "hand"})
    await write(by_hand)
    found = await act.client.get(types.SERVICE_ENDPOINTS, "api")
    assert found is not None
    assert found.metadata == {"by": "hand"}
    await act.service("http", names=["bar"])
    await act.until_managed(managed=True)
    # The metadata shows that these are not the ones by hand, which were as empty.
    await until(
        act.client,
        types.SERVICE_ENDPOINTS,
        "api",
        lambda found: found is not None and "by" not in found.metadata and not found.data.endpoints,
    )
    await act.service("http", prefixes=["api-"])
    await act.until_endpoints_are(
        ("api-1", ["127.0.0.1 ['http']", "127.0.0.2 ['http']"], PASSING),
        ("api-3", ["127.0.0.1 ['http']"], PASSING),
    )
    await act.service("grpc", prefixes=["api-"])
    both = ["127.0.0.1 ['grpc']", "::1 ['grpc']"]
    await act.until_endpoints_are(("api-1", both, PASSING), ("api-2", both, PASSING))
    swapped = workload_data(["http", "mesh"], {"127.0.0.1": [], "::1": ["http"], "172.17.1.2": ["mesh"]})
    await write(types.WORKLOAD.new("api-2", swapped))
    await act.until_endpoints_are(("api-1", both, PASSING))
    await write(types.WORKLOAD.new("api-1", workload_data(["grpc", "mesh"], {"127.0.0.1": [], "172.17.1.1": ["mesh"]})))
    await act.until_endpoints_are(("api-1", ["127.0.0.1 ['grpc']"], PASSING))
    await act.health(workloads["api-1"], CRITICAL)
    await act.until_endpoints_are(("api-1", ["127.0.0.1 ['grpc']"], CRITICAL))
    await act.service("grpc")
    await act.until_managed(managed=False)
    await act.until_endpoints_are_gone()
    await act.service("grpc", prefixes=["api-"])
    await act.until_managed(managed=True)
    await act.until_endpoints_are(("api-1", ["127.0.0.1 ['grpc']"], CRITICAL))
    await act.writer.delete(service)
    await act.until_endpoints_are_gone()


@pytest.mark.wide
@pytest.mark.parametrize("kind", KINDS)
async def test_statuses_and_endpoints_follow_what_is_written(kind: str, tmp_path: Path) -> None:
    store, writer = kind.split("-")
    async with served(store, tmp_path, writer) as running:
        act = Acting(running)
        await nodes_follow_their_health(act)
        await workloads_follow_their_health(act)
        await workloads_follow_their_nodes(act)
        await endpoints_follow_their_service(act)
