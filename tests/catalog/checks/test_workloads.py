"""Workloads, nodes and their health: facts T-4 to T-6, T-10 and T-11."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from catalog.messages import (
    DNSPolicy,
    Health,
    HealthStatus,
    Locality,
    Node,
    NodeAddress,
    NodeHealthStatus,
    Protocol,
    Weights,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)
from catalog.types import HEALTH_STATUS, NODE, NODE_HEALTH_STATUS, SERVICE, WORKLOAD
from tests.catalog.checks.hooked import faults, refused, stored

MESH = WorkloadPort(port=20000, protocol=Protocol.PROTOCOL_MESH)
PLAIN = WorkloadPort(port=80)
LOCAL = WorkloadAddress(host="10.0.0.1")
SOCKET = "unix:///run/api.sock"


def workload(**changes: Any) -> headway.Resource[Workload]:
    """Return a workload that is valid without the changes."""
    given: dict[str, Any] = {"addresses": [LOCAL], "ports": {"http": PLAIN}}
    return WORKLOAD.new("api-1", Workload(**(given | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ports": {"http": WorkloadPort(port=65535)}, "node_name": "node-1"},
        {"ports": {"http": PLAIN, "mesh": MESH}, "identity": "api"},
        {"locality": Locality(region="eu", zone="a")},
        {"locality": Locality(region="eu")},
        {"addresses": [LOCAL, WorkloadAddress(host="api.example.com", ports=["http"], external=True)]},
        {"addresses": [WorkloadAddress(host=SOCKET)]},
        {"addresses": [WorkloadAddress(host=SOCKET, ports=["http"])], "ports": {"http": PLAIN, "grpc": PLAIN}},
        {"dns": DNSPolicy()},
        {"dns": DNSPolicy(weights=Weights(passing=1))},
        {"dns": DNSPolicy(weights=Weights(passing=65535, warning=65535))},
        {"tags": ["a"], "enable_tag_override": True, "connect_native": True},
    ],
)
def test_valid_workload_is_stored_as_it_is(changes: dict[str, Any]) -> None:
    """T-4: nothing is filled in."""
    given = workload(**changes)
    assert stored(given) == given


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"ports": {}}, ["data.ports"]),
        ({"ports": {"a_b": PLAIN}}, ["data.ports"]),
        ({"ports": {"http": WorkloadPort()}}, ["data.ports['http'].port"]),
        ({"ports": {"http": WorkloadPort(port=65536)}}, ["data.ports['http'].port"]),
        ({"ports": {"http": WorkloadPort(port=1, protocol=int.__new__(Protocol, 9))}}, ["data.ports['http'].protocol"]),
        ({"ports": {"b": MESH, "a": MESH}, "identity": "api"}, ["data.ports"]),
        ({"ports": {"mesh": MESH}}, ["data.identity"]),
        ({"identity": "Api"}, ["data.identity"]),
        ({"node_name": "a.b"}, ["data.node_name"]),
        ({"locality": Locality(zone="a")}, ["data.locality.region"]),
        ({"addresses": []}, ["data.addresses"]),
        ({"addresses": [LOCAL, WorkloadAddress()]}, ["data.addresses[1].host"]),
        ({"addresses": [WorkloadAddress(host="a", ports=["grpc"])]}, ["data.addresses[0].ports[0]"]),
        (
            {"addresses": [WorkloadAddress(host=SOCKET, ports=["a", "b"])], "ports": {"a": PLAIN, "b": PLAIN}},
            ["data.addresses[0].ports"],
        ),
        ({"addresses": [WorkloadAddress(host=SOCKET)], "ports": {"a": PLAIN, "b": PLAIN}}, ["data.addresses[0].ports"]),
        ({"dns": DNSPolicy(weights=Weights(warning=1))}, ["data.dns.weights.passing"]),
        ({"dns": DNSPolicy(weights=Weights(passing=70000))}, ["data.dns.weights.passing"]),
        ({"dns": DNSPolicy(weights=Weights(passing=1, warning=70000))}, ["data.dns.weights.warning"]),
        (
            {"ports": {"mesh": MESH}, "addresses": [], "locality": Locality(zone="a"), "node_name": "_"},
            ["data.identity", "data.node_name", "data.locality.region", "data.addresses"],
        ),
    ],
)
def test_faults_of_a_workload_have_the_paths_of_fields(changes: dict[str, Any], paths: list[str]) -> None:
    """T-4, T-5 and T-6, with the names that the fields have (W-25)."""
    assert faults(workload(**changes)) == paths


def test_several_mesh_ports_are_named_in_order() -> None:
    """T-4."""
    refused(workload(ports={"b": MESH, "a": MESH}, identity="api"), "data.ports has several mesh ports, a, b")


@pytest.mark.parametrize(
    ("hosts", "paths"),
    [
        ([], ["data.addresses"]),
        (["10.0.0.1", ""], ["data.addresses[1].host"]),
        ([SOCKET, "Foo.com"], ["data.addresses[0].host", "data.addresses[1].host"]),
        (["10.0.0.1", "::1", "node-1.example.com"], []),
    ],
)
def test_node_has_addresses_that_are_no_sockets(hosts: list[str], paths: list[str]) -> None:
    """T-10."""
    node = Node(addresses=[NodeAddress(host=host, external=True) for host in hosts])
    assert faults(NODE.new("node-1", node)) == paths


UNKNOWN = int.__new__(Health, 9)


@pytest.mark.parametrize(
    ("type", "status", "owner", "paths"),
    [
        *(("http", status, WORKLOAD.id("api-1"), []) for status in Health if status),
        ("", Health.HEALTH_PASSING, WORKLOAD.id("api-1"), ["data.type"]),
        ("http", Health.HEALTH_ANY, WORKLOAD.id("api-1"), ["data.status"]),
        ("http", UNKNOWN, WORKLOAD.id("api-1"), ["data.status"]),
        ("http", Health.HEALTH_PASSING, None, ["owner"]),
        ("http", Health.HEALTH_PASSING, SERVICE.id("api"), ["owner.type"]),
        ("http", Health.HEALTH_PASSING, NODE.id("node-1"), ["owner.type"]),
        ("", Health.HEALTH_ANY, None, ["data.type", "data.status", "owner"]),
    ],
)
def test_health_status_belongs_to_a_workload(
    type: str, status: Health, owner: headway.ResourceId | None, paths: list[str]
) -> None:
    """T-11."""
    assert faults(HEALTH_STATUS.new("h", HealthStatus(type=type, status=status), owner=owner)) == paths


@pytest.mark.parametrize(
    ("status", "owner", "paths"),
    [
        (Health.HEALTH_CRITICAL, NODE.id("node-1"), []),
        (Health.HEALTH_ANY, NODE.id("node-1"), ["data.status"]),
        (Health.HEALTH_PASSING, None, ["owner"]),
        (Health.HEALTH_PASSING, WORKLOAD.id("api-1"), ["owner.type"]),
    ],
)
def test_node_health_status_belongs_to_a_node(
    status: Health, owner: headway.ResourceId | None, paths: list[str]
) -> None:
    """T-11."""
    given = NodeHealthStatus(type="synthetic", status=status)
    assert faults(NODE_HEALTH_STATUS.new("h", given, owner=owner)) == paths
