"""The catalog with 4 nodes, 20 workloads and 4 services, written in any order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from catalog import types
from catalog.messages import (
    Endpoint,
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
from headway import Resource, ResourceType
from headway.resource import resource_id
from tests.catalog.served.kit import KINDS, Holds, Served, condition_of, publish, served, until

HTTP, GRPC, MESH = Protocol.PROTOCOL_HTTP, Protocol.PROTOCOL_GRPC, Protocol.PROTOCOL_MESH
PORTS = {
    "http": WorkloadPort(port=8080, protocol=HTTP),
    "grpc": WorkloadPort(port=9090, protocol=GRPC),
    "mesh": WorkloadPort(port=10000, protocol=MESH),
}
SERVICE_PORTS = {name: ServicePort(target_port=name, protocol=port.protocol) for name, port in PORTS.items()}
BY_HAND = Endpoint(
    addresses=[WorkloadAddress(host="198.18.0.1")],
    ports={"ext-svc-port": WorkloadPort(port=9876, protocol=Protocol.PROTOCOL_HTTP2)},
    health_status=Health.HEALTH_PASSING,
)
SELECTORS = {
    "api": (WorkloadSelector(prefixes=["api-"]), ["http", "grpc", "mesh"], range(1, 21)),
    "http-api": (WorkloadSelector(prefixes=["api-1"]), ["http"], [1, *range(10, 20)]),
    "grpc-api": (
        WorkloadSelector(names=[f"api-{k}" for k in (*range(1, 10), 20)]),
        ["grpc", "mesh"],
        [*range(1, 10), 20],
    ),
}


def health(k: int) -> Health:
    """Return the health of node k, and the own health of workload k."""
    return Health((k - 1) % 4 + 1)


def node_of(k: int) -> int | None:
    """Return the number of the node of workload k."""
    return (k + 3) // 4 if k <= 16 else None


def worse(k: int) -> Health:
    node = node_of(k)
    return max(health(k), health(node)) if node else health(k)


def resources() -> list[Resource[Any]]:
    """Return the 53 resources and their owners without uids."""
    made: list[Resource[Any]] = []
    for n in range(1, 5):
        hosts = [NodeAddress(host=f"198.18.1.{n}", external=True), NodeAddress(host=f"172.16.0.{n}")]
        status = NodeHealthStatus(type="synthetic", status=health(n))
        made.append(types.NODE.new(f"node-{n}", Node(addresses=hosts)))
        made.append(types.NODE_HEALTH_STATUS.new(f"node-{n}-health", status, owner=types.NODE.id(f"node-{n}")))
    for k in range(1, 21):
        addresses = [
            WorkloadAddress(host=f"172.16.1.{k}"),
            WorkloadAddress(host=f"198.18.2.{k}", external=True, ports=["mesh"]),
        ]
        node = f"node-{node_of(k)}" if node_of(k) else ""
        workload = Workload(addresses=addresses, ports=PORTS, identity="api", node_name=node)
        status_of = HealthStatus(type="synthetic", status=health(k))
        made.append(types.WORKLOAD.new(f"api-{k}", workload))
        made.append(types.HEALTH_STATUS.new(f"api-{k}-health", status_of, owner=types.WORKLOAD.id(f"api-{k}")))
    for name, (selector, ports, _) in SELECTORS.items():
        made.append(types.SERVICE.new(name, Service(workloads=selector, ports=[SERVICE_PORTS[each] for each in ports])))
    external = ServicePort(target_port="ext-svc-port", protocol=Protocol.PROTOCOL_HTTP2)
    made.append(types.SERVICE.new("foo", Service(ports=[external])))
    by_hand = ServiceEndpoints(endpoints=[BY_HAND])
    made.append(types.SERVICE_ENDPOINTS.new("foo", by_hand, owner=types.SERVICE.id("foo")))
    return made


def workload_message(k: int) -> str:
    """Return the message of the condition of workload k."""
    own, node = health(k), node_of(k)
    if node is None:
        passing = own == Health.HEALTH_PASSING
        return "All workload health checks are passing" if passing else NOT_WORKLOAD
    bad_own, bad_node = own > Health.HEALTH_PASSING, health(node) > Health.HEALTH_PASSING
    if bad_own and bad_node:
        return "One or more workload and node health checks are not passing"
    if bad_own:
        return NOT_WORKLOAD
    return "One or more node health checks are not passing" if bad_node else ALL_WELL


NOT_WORKLOAD = "One or more workload health checks are not passing"
ALL_WELL = "All workload and associated node health checks are passing"

Shown = tuple[str, str, str, str, frozenset[tuple[str, bool, tuple[str, ...]]], frozenset[tuple[str, int, int]]]


def shown(endpoint: Endpoint) -> Shown:
    """Return everything of an endpoint, without the order of its addresses and ports."""
    target = "" if endpoint.target_ref is None else resource_id(endpoint.target_ref)
    return (
        getattr(target, "name", ""),
        getattr(target, "uid", ""),
        endpoint.identity,
        endpoint.health_status.name or "",
        frozenset((each.host, each.external, tuple(sorted(each.ports))) for each in endpoint.addresses),
        frozenset((name, port.port, int(port.protocol)) for name, port in endpoint.ports.items()),
    )


def expected(k: int, ports: list[str], uid: str) -> Shown:
    """Return what a service with these ports shows of workload k."""
    addresses = {(f"172.16.1.{k}", False, tuple(sorted(ports)))}
    if "mesh" in ports:
        addresses.add((f"198.18.2.{k}", True, ("mesh",)))
    numbers = frozenset((name, PORTS[name].port, int(PORTS[name].protocol)) for name in ports)
    return f"api-{k}", uid, "api", worse(k).name, frozenset(addresses), numbers


def shows_all(wanted: set[Shown]) -> Holds:
    """Return a function that is true for endpoints that show exactly these."""
    return lambda found: found is not None and {shown(each) for each in found.data.endpoints} == wanted


@pytest.mark.wide
@pytest.mark.parametrize("kind", KINDS)
async def test_catalog_reaches_the_same_state_in_any_order_of_writes(kind: str, tmp_path: Path) -> None:
    store, writer = kind.split("-")
    async with served(store, tmp_path, writer) as running:
        await publish(running.writer, resources(), random.Random(kind))
        await check_health(running)
        await check_endpoints(running)


async def check_health(running: Served) -> None:
    """Steps 1 to 3: owners, the status of each node, and that of each workload."""
    client = running.client
    kinds: list[tuple[ResourceType[Any], ResourceType[Any]]] = [
        (types.HEALTH_STATUS, types.WORKLOAD),
        (types.NODE_HEALTH_STATUS, types.NODE),
    ]
    for owned, owner in kinds:
        uids = {each.name: each.uid for each in await client.list(owner)}
        statuses = await client.list(owned)
        assert {each.name: each.owner.uid if each.owner else "" for each in statuses} == {
            f"{name}-health": uid for name, uid in uids.items()
        }
    for n in range(1, 5):
        bad = health(n) > Health.HEALTH_PASSING
        message = f"{'One or more' if bad else 'All'} node health checks are {'not ' if bad else ''}passing"
        awaited = condition_of("consul.io/node-health", "healthy", health(n).name, message)
        await until(client, types.NODE, f"node-{n}", awaited)
    for k in range(1, 21):
        awaited = condition_of("consul.io/workload-health", "healthy", worse(k).name, workload_message(k))
        await until(client, types.WORKLOAD, f"api-{k}", awaited)


async def check_endpoints(running: Served) -> None:
    """Steps 4 and 5: who manages the endpoints of each service, and what they are."""
    client = running.client
    uids = {each.name: each.uid for each in await client.list(types.WORKLOAD)}
    for name in ("foo", *SELECTORS):
        reason = "SelectorNotFound" if name == "foo" else "SelectorFound"
        awaited = condition_of("consul.io/endpoint-manager", "EndpointsManaged", reason)
        await until(client, types.SERVICE, name, awaited)
    foo = await client.get(types.SERVICE_ENDPOINTS, "foo")
    assert foo is not None
    assert [shown(each) for each in foo.data.endpoints] == [shown(BY_HAND)]
    for name, (_, ports, numbers) in SELECTORS.items():
        wanted = {expected(k, ports, uids[f"api-{k}"]) for k in numbers}
        found = await until(client, types.SERVICE_ENDPOINTS, name, shows_all(wanted))
        assert found is not None
        assert len(found.data.endpoints) == len(wanted)
