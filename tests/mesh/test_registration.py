"""The types of the mesh: their names, scopes and messages are Consul's, and an engine serves them."""

from __future__ import annotations

from typing import Any

import pytest

import catalog
import headway
import mesh
from headway import ResourceType, Scope
from headway.errors import InvalidArgument
from mesh import types

SERVED = {
    "ProxyConfiguration",
    "Destinations",
    "HTTPRoute",
    "GRPCRoute",
    "TCPRoute",
    "DestinationPolicy",
    "ComputedProxyConfiguration",
    "ComputedExplicitDestinations",
    "ComputedRoutes",
    "ProxyStateTemplate",
}
TYPES: list[ResourceType[Any]] = [each for each in mesh.app.registry if each.name.group == "mesh"]


def test_app_serves_these_types_and_no_others() -> None:
    """Gateways and the configuration of the mesh are left out."""
    assert {each.name.kind for each in TYPES} == SERVED


@pytest.mark.parametrize("type", TYPES, ids=[each.name.kind for each in TYPES])
def test_type_has_the_name_and_scope_and_message_of_consul(type: ResourceType[Any]) -> None:
    assert str(type.name) == f"mesh.v2beta1.{type.name.kind}"
    assert type.scope is Scope.NAMESPACE
    assert type.type_url == f"type.googleapis.com/hashicorp.consul.{type.name}"


REFUSED: list[tuple[ResourceType[Any], str]] = [
    (types.PROXY_CONFIGURATION, r"data\.workloads is empty"),
    (types.DESTINATIONS, r"data\.workloads is empty"),
    (types.HTTP_ROUTE, r"data\.parent_refs is empty"),
    (types.GRPC_ROUTE, r"data\.parent_refs is empty"),
    (types.TCP_ROUTE, r"data\.parent_refs is empty"),
    (types.DESTINATION_POLICY, r"data\.port_configs is empty"),
    (types.COMPUTED_ROUTES, r"data\.ported_configs is empty"),
]


async def test_each_type_validates_what_is_written() -> None:
    """Both apps run in one engine."""
    async with headway.open_engine("memory:", catalog.app, mesh.app) as engine:
        for type, match in REFUSED:
            with pytest.raises(InvalidArgument, match=match):
                await engine.client.write(type.new("api"))
        stored = await engine.client.write(types.PROXY_STATE_TEMPLATE.new("api-1"))
        assert stored.data.proxy_state is None
