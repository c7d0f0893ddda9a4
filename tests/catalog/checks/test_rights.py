"""The rights that each type needs, in addition to those on the resource itself."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import headway
from catalog import app, types
from catalog.messages import (
    ComputedFailoverPolicy,
    Destination,
    ExportedServices,
    FailoverConfig,
    FailoverDestination,
    FailoverPolicy,
    Health,
    HealthStatus,
    NodeHealthStatus,
    Service,
    TrafficPermissions,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, NODE, SERVICE, WORKLOAD
from headway import Reference, Resource, ResourceType
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.resource import pb

UNITS: dict[str, Any] = {"partition": "far", "namespace": "lab"}


def to(name: str, **units: str) -> FailoverDestination:
    tenancy = pb.Tenancy(**units) if units else None
    return FailoverDestination(ref=Reference(type=SERVICE.name.message(), name=name, tenancy=tenancy))


SELECTOR = WorkloadSelector(names=["a", "b"], prefixes=["api-", ""])
FAILOVER = FailoverConfig(destinations=[to("x"), to("y", partition="other")])
PORTED = {"http": FailoverConfig(destinations=[to("z", namespace="own")])}

NEEDS: list[tuple[Resource[Any], list[str], list[str]]] = [
    (
        types.SERVICE.new("api", Service(workloads=SELECTOR), **UNITS),
        [],
        [f"read Workload far/lab/{name}" for name in ("a", "b", "api-", "")],
    ),
    (types.WORKLOAD.new("api-1", Workload(), **UNITS), [], []),
    (types.WORKLOAD.new("api-1", Workload(node_name="n"), **UNITS), [], ["read Node far/n"]),
    (types.WORKLOAD.new("api-1", Workload(identity="i"), **UNITS), [], ["read WorkloadIdentity far/lab/i"]),
    (
        types.WORKLOAD.new("api-1", Workload(node_name="n", identity="i"), **UNITS),
        [],
        ["read Node far/n", "read WorkloadIdentity far/lab/i"],
    ),
    (
        types.HEALTH_STATUS.new("h", HealthStatus(), owner=WORKLOAD.id("api-1", **UNITS), **UNITS),
        ["read Workload far/lab/api-1"],
        ["write Workload far/lab/api-1"],
    ),
    (
        types.HEALTH_STATUS.new("h", HealthStatus(), owner=headway.ResourceId(WORKLOAD.name, "api-1"), **UNITS),
        ["read Workload far/lab/api-1"],
        ["write Workload far/lab/api-1"],
    ),
    (types.HEALTH_STATUS.new("h", HealthStatus(), **UNITS), [], []),
    (
        types.NODE_HEALTH_STATUS.new("h", NodeHealthStatus(), owner=NODE.id("n", partition="far"), partition="far"),
        ["read Node far/n"],
        ["write Node far/n"],
    ),
    (
        FAILOVER_POLICY.new("api", FailoverPolicy(config=FAILOVER, port_configs=PORTED), **UNITS),
        [],
        ["read Service far/lab/x", "read Service other/default/y", "read Service far/own/z"],
    ),
    (
        COMPUTED_FAILOVER_POLICY.new("api", ComputedFailoverPolicy(port_configs=PORTED), **UNITS),
        [],
        ["read Service far/own/z"],
    ),
    (
        types.TRAFFIC_PERMISSIONS.new(
            "to-api", TrafficPermissions(destination=Destination(identity_name="api")), **UNITS
        ),
        ["read ComputedTrafficPermissions far/lab/api"],
        ["write ComputedTrafficPermissions far/lab/api"],
    ),
    (
        types.EXPORTED_SERVICES.new("x", ExportedServices(services=["api", "db"]), **UNITS),
        ["read Service far/lab/api", "read Service far/lab/db"],
        ["write Service far/lab/api", "write Service far/lab/db"],
    ),
]


def needs(verb: Literal["read", "write"], resource: Resource[Any]) -> list[str]:
    function = resource.type.hooks.needs
    assert function is not None
    return [f"{need.verb} {need.id}" for need in function(verb, resource)]


@pytest.mark.parametrize(("resource", "read", "write"), NEEDS, ids=lambda each: getattr(each, "name", None))
def test_rights_follow_what_the_resource_refers_to(resource: Resource[Any], read: list[str], write: list[str]) -> None:
    """A workload needs its node and its identity (W-19)."""
    assert needs("read", resource) == read
    assert needs("write", resource) == write


def rule(type: ResourceType[Any], *verbs: str, name_prefix: str = "") -> Rule:
    return Rule(verbs=verbs, type=str(type.name), partition="*", namespace="*", name_prefix=name_prefix)


async def test_rights_are_asked_for_over_the_network() -> None:
    """An agent that registers the workloads of one service neither writes nor sees the health of others."""
    rules = [
        rule(types.WORKLOAD, "view", "edit", name_prefix="api-"),
        rule(types.HEALTH_STATUS, "view", "edit"),
        rule(types.NODE, "read", name_prefix="node-1"),
    ]
    text, token = new_token(["agent"])
    access = Authorizer(Access([Policy("agent", rules)], [token]))
    ports, addresses = {"http": WorkloadPort(port=80)}, [WorkloadAddress(host="10.0.0.1")]
    passing = HealthStatus(type="http", status=Health.HEALTH_PASSING)
    async with (
        headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        headway.connect(engine.addresses, app, token=text) as agent,
    ):
        theirs = await engine.client.write(WORKLOAD.new("db-1", Workload(ports=ports, addresses=addresses)))
        await engine.client.write(types.HEALTH_STATUS.new("db-1", passing, owner=theirs))
        on_node = Workload(ports=ports, addresses=addresses, node_name="node-1")
        mine = await agent.write(WORKLOAD.new("api-1", on_node))
        await agent.write(types.HEALTH_STATUS.new("api-1", passing, owner=mine))
        assert [each.name for each in await agent.list(types.HEALTH_STATUS)] == ["api-1"]
        refusals: list[Resource[Any]] = [
            WORKLOAD.new("api-1", Workload(ports=ports, addresses=addresses, node_name="node-2")),
            WORKLOAD.new("api-1", Workload(ports=ports, addresses=addresses, node_name="node-1", identity="api")),
            types.HEALTH_STATUS.new("mine", passing, owner=theirs),
        ]
        for refused in refusals:
            with pytest.raises(headway.errors.PermissionDenied):
                await agent.write(refused)
