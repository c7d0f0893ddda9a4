"""EP-5 to EP-9: conversion of workloads to endpoints of a service."""

from __future__ import annotations

import pytest

import headway
import headway.testing
from catalog.endpoint import endpoint_of, health_of, is_outdated
from catalog.messages import (
    DNSPolicy,
    Health,
    Locality,
    Protocol,
    ServicePort,
    Weights,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)
from catalog.types import WORKLOAD
from tests.helpers.catalogs import CRITICAL, GRPC, HTTP, MESH, PASSING, WARNING

UNSPECIFIED, TCP = Protocol.PROTOCOL_UNSPECIFIED, Protocol.PROTOCOL_TCP
KEY = "consul.io/workload-health"


def stored(**given: object) -> headway.Resource[Workload]:
    data = Workload(
        addresses=[WorkloadAddress(host="10.0.0.1")],
        ports={
            "http": WorkloadPort(port=8080, protocol=HTTP),
            "grpc": WorkloadPort(port=9090, protocol=GRPC),
            "mesh": WorkloadPort(port=10000, protocol=MESH),
        },
        identity="api",
    )
    for name, value in given.items():
        setattr(data, name, value)
    return headway.testing.stored(WORKLOAD.new("api-1", data), version=7)


def with_status(*given: headway.Condition, generation: str | None = None) -> headway.Resource[Workload]:
    message = stored().message()
    message.status[KEY] = headway.Status(observed_generation=generation or message.generation, conditions=list(given))
    return WORKLOAD.view(message)


def ports(**wanted: Protocol) -> list[ServicePort]:
    return [ServicePort(target_port=name, protocol=protocol) for name, protocol in wanted.items()]


def test_ep5_ports_of_both_with_the_same_protocol() -> None:
    endpoint = endpoint_of(stored(), ports(http=HTTP, grpc=HTTP, other=TCP, mesh=MESH))
    assert endpoint is not None
    assert endpoint.ports == {
        "http": WorkloadPort(port=8080, protocol=HTTP),
        "mesh": WorkloadPort(port=10000, protocol=MESH),
    }


def test_ep5_protocol_of_the_service_stands_for_none_of_the_workload() -> None:
    endpoint = endpoint_of(stored(ports={"http": WorkloadPort(port=80)}), ports(http=GRPC))
    assert endpoint is not None
    assert endpoint.ports == {"http": WorkloadPort(port=80, protocol=GRPC)}


def test_ep5_virtual_port_is_not_the_number_of_the_endpoint() -> None:
    endpoint = endpoint_of(stored(), [ServicePort(target_port="http", virtual_port=80, protocol=HTTP)])
    assert endpoint is not None
    assert endpoint.ports == {"http": WorkloadPort(port=8080, protocol=HTTP)}


def test_ep6_addresses_serve_the_ports_of_the_endpoint_by_name() -> None:
    addresses = [
        WorkloadAddress(host="10.0.0.1"),
        WorkloadAddress(host="198.18.0.1", ports=["mesh", "grpc"], external=True),
        WorkloadAddress(host="10.0.0.3", ports=["grpc"]),
        WorkloadAddress(host="10.0.0.2", ports=["mesh", "http"]),
    ]
    endpoint = endpoint_of(stored(addresses=addresses), ports(mesh=MESH, http=HTTP))
    assert endpoint is not None
    assert endpoint.addresses == [
        WorkloadAddress(host="10.0.0.1", ports=["http", "mesh"]),
        WorkloadAddress(host="198.18.0.1", ports=["mesh"], external=True),
        WorkloadAddress(host="10.0.0.2", ports=["http", "mesh"]),
    ]


@pytest.mark.parametrize("wanted", [ports(), ports(other=HTTP), ports(http=TCP)])
def test_ep7_workload_without_an_address_for_the_service_is_no_endpoint(wanted: list[ServicePort]) -> None:
    assert endpoint_of(stored(), wanted) is None


def test_ep7_address_for_other_ports_is_no_endpoint() -> None:
    addresses = [WorkloadAddress(host="10.0.0.1", ports=["grpc"])]
    assert endpoint_of(stored(addresses=addresses), ports(http=HTTP)) is None


def test_ep8_endpoint_has_the_workloads_id_and_identity_and_dns() -> None:
    dns = DNSPolicy(weights=Weights(passing=3, warning=2))
    given = stored(dns=dns, locality=Locality(region="west"), tags=["old"])
    endpoint = endpoint_of(given, ports(http=HTTP))
    assert endpoint is not None
    assert endpoint.target_ref == given.id.message()
    assert endpoint.target_ref is not None
    assert endpoint.target_ref.uid == given.uid
    assert (endpoint.identity, endpoint.dns) == ("api", dns)


def condition(reason: str, type: str = "healthy") -> headway.Condition:
    # EP-9: the state is ignored.
    return headway.Condition(type=type, state=headway.ConditionState.UNKNOWN, reason=reason)


@pytest.mark.parametrize("health", [*Health])
def test_ep9_health_is_the_reason_of_the_condition(health: Health) -> None:
    assert health_of(with_status(condition("HEALTH_ANY", type="other"), condition(health.name))) is health
    endpoint = endpoint_of(with_status(condition(health.name)), ports(http=HTTP))
    assert endpoint is not None
    assert endpoint.health_status is health


@pytest.mark.parametrize(
    "given", [stored(), with_status(), with_status(condition("HEALTH_PASSING", "other")), with_status(condition("ILL"))]
)
def test_ep9_workload_without_a_known_health_is_critical(given: headway.Resource[Workload]) -> None:
    assert health_of(given) is CRITICAL


def test_ep9_w26_health_of_an_earlier_generation_counts_and_is_outdated() -> None:
    old = with_status(condition("HEALTH_WARNING"), generation="earlier")
    assert health_of(old) is WARNING
    assert is_outdated(old)
    assert not is_outdated(with_status(condition(PASSING.name)))
    assert not is_outdated(stored())
