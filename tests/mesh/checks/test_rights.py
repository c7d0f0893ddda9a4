"""The rights that each type needs, in addition to those on the resource itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from catalog.messages import WorkloadSelector
from headway import Resource
from mesh import types
from mesh.messages import Destinations, ParentReference, ProxyConfiguration
from tests.mesh.refs import bare, grpc, http, tcp, to_grpc, to_http, to_tcp

UNITS: dict[str, Any] = {"partition": "far", "namespace": "lab"}
SELECTOR = WorkloadSelector(names=["a"], prefixes=["api-", ""])
SELECTED = [f"read Workload far/lab/{name}" for name in ("a", "api-", "")]
READ, WRITTEN = ["read Service default/default/api"], ["write Service default/default/api"]
BACKENDS = [f"read Service default/default/{name}" for name in ("x", "y")]

NEEDS: list[tuple[Resource[Any], Sequence[str], Sequence[str]]] = [
    (types.PROXY_CONFIGURATION.new("c", ProxyConfiguration(workloads=SELECTOR), **UNITS), [], SELECTED),
    (types.DESTINATIONS.new("d", Destinations(workloads=SELECTOR), **UNITS), [], SELECTED),
    (types.HTTP_ROUTE.new("r", http(to_http("x", "y"))), READ, WRITTEN + BACKENDS),
    (types.GRPC_ROUTE.new("r", grpc(to_grpc("x", "y"))), READ, WRITTEN + BACKENDS),
    (types.TCP_ROUTE.new("r", tcp(to_tcp("x", "y"))), READ, WRITTEN + BACKENDS),
    (
        types.HTTP_ROUTE.new("r", http(parents=[ParentReference(ref=bare("web"))]), **UNITS),
        ["read Service far/lab/web"],
        ["write Service far/lab/web"],
    ),
    (types.PROXY_STATE_TEMPLATE.new("api-1", **UNITS), ["read Workload far/lab/api-1"], []),
]


def needed(verb: Literal["read", "write"], resource: Resource[Any]) -> list[str]:
    needs = resource.type.hooks.needs
    assert needs is not None
    found = list(needs(verb, resource))
    return [f"{each.verb} {each.id.type.kind} {each.id.partition}/{each.id.namespace}/{each.id.name}" for each in found]


@pytest.mark.parametrize(("resource", "read", "write"), NEEDS)
def test_rights_follow_from_the_content(resource: Resource[Any], read: Sequence[str], write: Sequence[str]) -> None:
    assert needed("read", resource) == list(read)
    assert needed("write", resource) == list(write)


@pytest.mark.parametrize(
    "resource",
    [
        types.PROXY_CONFIGURATION.new("c", ProxyConfiguration()),
        types.DESTINATIONS.new("d", Destinations()),
        types.HTTP_ROUTE.new("r", http(parents=[ParentReference()])),
    ],
)
def test_absent_references_need_nothing(resource: Resource[Any]) -> None:
    """Rights are checked before validation refuses such a resource."""
    assert needed("write", resource) == []
