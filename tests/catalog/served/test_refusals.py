"""The answers to a stock client in Go: statuses, and texts with the paths of the fields that it has set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog import types
from catalog.messages import (
    HealthChecks,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    TrafficPermissions,
    Workload,
    WorkloadIdentity,
    WorkloadSelector,
)
from headway import Resource
from tests.catalog.served.kit import ByGo, id_in_json, in_json, served

REFUSED: list[tuple[Resource[Any], str, str]] = [
    (types.SERVICE.new("a", Service(ports=[ServicePort()])), "InvalidArgument", "data.ports[0].target_port ''"),
    (types.WORKLOAD.new("a", Workload()), "InvalidArgument", "data.addresses is empty"),
    (types.TRAFFIC_PERMISSIONS.new("a", TrafficPermissions()), "InvalidArgument", "data.action ACTION_UNSPECIFIED"),
    (types.SERVICE_ENDPOINTS.new("a", ServiceEndpoints()), "InvalidArgument", "resource.owner: Service a not found"),
    # As in Consul, there is no such type.
    (
        types.HEALTH_CHECKS.new("a", HealthChecks(workloads=WorkloadSelector(names=["a"]))),
        "InvalidArgument",
        "catalog.v2beta1.HealthChecks",
    ),
]


@pytest.mark.wide
async def test_client_in_go_is_refused_with_statuses_and_paths(tmp_path: Path) -> None:
    async with served("memory", tmp_path, "go") as running:
        go = running.writer
        assert isinstance(go, ByGo)
        for resource, code, text in REFUSED:
            answer = await go.ask(verb="write", resource=in_json(resource))
            assert (answer.code, text in answer.message) == (code, True), answer
        missing = await go.ask(verb="read", id=id_in_json(types.WORKLOAD_IDENTITY.id("api")))
        assert missing.code == "NotFound"


@pytest.mark.wide
async def test_client_in_go_reads_what_it_wrote_with_the_defaults(tmp_path: Path) -> None:
    async with served("sqlite", tmp_path, "go") as running:
        go = running.writer
        assert isinstance(go, ByGo)
        service = types.SERVICE.new("api", Service(ports=[ServicePort(target_port="http", virtual_port=80)]))
        checked = await go.ask(verb="check", resource=in_json(service))
        assert "uid" not in checked.resource["id"]
        await go.write(service)
        for found in (checked, await go.ask(verb="read", id=id_in_json(service.id))):
            assert found.resource["data"] == {
                "@type": "type.googleapis.com/hashicorp.consul.catalog.v2beta1.Service",
                "ports": [{"virtualPort": 80, "targetPort": "http", "protocol": Protocol.PROTOCOL_TCP.name}],
            }
        identity = await go.write(types.WORKLOAD_IDENTITY.new("api", WorkloadIdentity()))
        await go.delete(identity)
        assert (await go.ask(verb="read", id=id_in_json(identity))).code == "NotFound"
