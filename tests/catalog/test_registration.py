"""The types of the catalog: their names, scopes and messages are Consul's."""

from __future__ import annotations

from typing import Any

import pytest

import catalog
import headway
from catalog import types
from headway import ResourceType, Scope
from headway.errors import InvalidArgument
from headway.resource import is_builtin

NAMESPACE, PARTITION = Scope.NAMESPACE, Scope.PARTITION
SERVED: list[tuple[str, Scope, ResourceType[Any]]] = [
    ("catalog.v2beta1.Service", NAMESPACE, types.SERVICE),
    ("catalog.v2beta1.Workload", NAMESPACE, types.WORKLOAD),
    ("catalog.v2beta1.Node", PARTITION, types.NODE),
    ("catalog.v2beta1.HealthStatus", NAMESPACE, types.HEALTH_STATUS),
    ("catalog.v2beta1.NodeHealthStatus", PARTITION, types.NODE_HEALTH_STATUS),
    ("catalog.v2beta1.ServiceEndpoints", NAMESPACE, types.SERVICE_ENDPOINTS),
    ("catalog.v2beta1.FailoverPolicy", NAMESPACE, types.FAILOVER_POLICY),
    ("catalog.v2beta1.ComputedFailoverPolicy", NAMESPACE, types.COMPUTED_FAILOVER_POLICY),
    ("auth.v2beta1.WorkloadIdentity", NAMESPACE, types.WORKLOAD_IDENTITY),
    ("auth.v2beta1.TrafficPermissions", NAMESPACE, types.TRAFFIC_PERMISSIONS),
    ("auth.v2beta1.NamespaceTrafficPermissions", NAMESPACE, types.NAMESPACE_TRAFFIC_PERMISSIONS),
    ("auth.v2beta1.PartitionTrafficPermissions", PARTITION, types.PARTITION_TRAFFIC_PERMISSIONS),
    ("auth.v2beta1.ComputedTrafficPermissions", NAMESPACE, types.COMPUTED_TRAFFIC_PERMISSIONS),
    ("multicluster.v2.ExportedServices", NAMESPACE, types.EXPORTED_SERVICES),
    ("multicluster.v2.NamespaceExportedServices", NAMESPACE, types.NAMESPACE_EXPORTED_SERVICES),
    ("multicluster.v2.PartitionExportedServices", PARTITION, types.PARTITION_EXPORTED_SERVICES),
    ("multicluster.v2.ComputedExportedServices", PARTITION, types.COMPUTED_EXPORTED_SERVICES),
]


@pytest.mark.parametrize(("name", "scope", "type"), SERVED, ids=[name for name, _, _ in SERVED])
def test_type_has_the_name_and_scope_and_message_of_consul(name: str, scope: Scope, type: ResourceType[Any]) -> None:
    assert str(type.name) == name
    assert type.scope is scope
    assert type.type_url == f"type.googleapis.com/hashicorp.consul.{name}"


def test_app_serves_these_types_and_no_others() -> None:
    """HealthChecks, VirtualIPs and SamenessGroup have no served type, as in Consul."""
    served = {type.name for type in catalog.app.registry if not is_builtin(type)}
    assert served == {type.name for _, _, type in SERVED}
    assert types.HEALTH_CHECKS.name not in served
    assert types.VIRTUAL_IPS.name not in served


REFUSED: list[tuple[ResourceType[Any], str]] = [
    (types.WORKLOAD, r"data\.ports is empty"),
    (types.NODE, r"data\.addresses is empty"),
    (types.HEALTH_STATUS, r"data\.type is required"),
    (types.NODE_HEALTH_STATUS, r"data\.type is required"),
    (types.FAILOVER_POLICY, r"data\.config is required"),
    (types.TRAFFIC_PERMISSIONS, r"data\.action ACTION_UNSPECIFIED is not supported"),
    (types.NAMESPACE_TRAFFIC_PERMISSIONS, r"data\.action ACTION_UNSPECIFIED is not supported"),
    (types.PARTITION_TRAFFIC_PERMISSIONS, r"data\.action ACTION_UNSPECIFIED is not supported"),
    (types.EXPORTED_SERVICES, r"data\.services is empty"),
    (types.COMPUTED_EXPORTED_SERVICES, "must be 'global'"),
    (types.HEALTH_CHECKS, r"catalog\.v2beta1\.HealthChecks"),
    (types.VIRTUAL_IPS, r"catalog\.v2beta1\.VirtualIPs"),
]


async def test_server_refuses_what_the_types_refuse() -> None:
    """The rules of each type are in `checks`. A type that is not served is unknown."""
    async with headway.open_engine("memory:", catalog.app) as engine:
        for type, words in REFUSED:
            with pytest.raises(InvalidArgument, match=words):
                await engine.client.write(type.new("a"))
        with pytest.raises(InvalidArgument, match=r"resource\.owner: Service a not found"):
            await engine.client.write(types.SERVICE_ENDPOINTS.new("a"))
        service = await engine.client.write(types.SERVICE.new("a"))
        assert (await engine.client.write(types.SERVICE_ENDPOINTS.new("a"))).owner == service.id
