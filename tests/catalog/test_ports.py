"""Ports, addresses, identities and destinations of the messages."""

from __future__ import annotations

import pytest

import headway
from catalog import ports
from catalog.messages import (
    Endpoint,
    FailoverConfig,
    FailoverDestination,
    FailoverMode,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)

MESH, HTTP = Protocol.PROTOCOL_MESH, Protocol.PROTOCOL_HTTP
A, B, C, D = (
    ServicePort(target_port="http", virtual_port=8080),
    ServicePort(target_port="8080", virtual_port=9090),
    ServicePort(target_port="http", virtual_port=7070),
    ServicePort(target_port="mesh", protocol=MESH),
)
SERVICE = Service(ports=[A, B, C, D])


@pytest.mark.parametrize(
    ("id", "port"),
    [
        ("", None),
        ("http", A),
        ("8080", A),
        ("+8080", A),
        ("08080", A),
        ("9090", B),
        ("7070", C),
        ("0", None),
        ("-8080", None),
        ("8081", None),
        ("８０８０", None),
        ("9" * 5000, None),
        ("other", None),
    ],
)
def test_number_finds_a_virtual_port_and_a_name_a_target_port(id: str, port: ServicePort | None) -> None:
    assert ports.find_port(SERVICE, id) is port


def test_first_matching_port_wins_and_finding_by_target_ignores_numbers() -> None:
    assert ports.find_target_port(SERVICE, "http") is A
    assert ports.find_target_port(SERVICE, "8080") is B
    assert ports.find_target_port(SERVICE, "9090") is None
    assert ports.find_target_port(Service(ports=[ServicePort()]), "") is None


def test_text_of_a_port_has_its_virtual_port_if_it_has_one() -> None:
    assert [ports.port_text(each) for each in (A, D)] == ["http (virtual 8080)", "mesh"]


def test_identities_are_sorted_and_unique() -> None:
    endpoints = [Endpoint(identity=name) for name in ("foo", "", "bar", "foo")]
    assert ports.identities(ServiceEndpoints(endpoints=endpoints)) == ["bar", "foo"]
    assert ports.identities(ServiceEndpoints()) == []


def test_mesh_port_makes_a_workload_and_a_service_mesh_enabled() -> None:
    meshed = Workload(ports={"http": WorkloadPort(port=1, protocol=HTTP), "m": WorkloadPort(port=2, protocol=MESH)})
    plain = Workload(ports={"http": WorkloadPort(port=1, protocol=HTTP)})
    assert [ports.mesh_port(each.ports) for each in (meshed, plain)] == ["m", ""]
    assert [ports.is_mesh_enabled(each) for each in (meshed, plain)] == [True, False]
    assert [ports.is_mesh_enabled(each) for each in (SERVICE, Service(ports=[A]))] == [True, False]


def test_addresses_of_a_port_serve_it_and_are_not_external() -> None:
    every, named, other, external = (
        WorkloadAddress(host="10.0.0.1"),
        WorkloadAddress(host="10.0.0.2", ports=["http", "mesh"]),
        WorkloadAddress(host="10.0.0.3", ports=["http"]),
        WorkloadAddress(host="198.18.0.1", ports=["mesh"], external=True),
    )
    workload = Workload(
        addresses=[external, named, every, other],
        ports={"http": WorkloadPort(port=1), "mesh": WorkloadPort(port=2, protocol=MESH)},
    )
    assert ports.addresses_of_port(workload, "mesh") == [named, every]
    assert ports.addresses_of_port(workload, "http") == [named, every, other]
    assert ports.addresses_of_port(workload, "grpc") == []
    assert ports.mesh_address(workload) is named
    assert ports.mesh_address(Workload(addresses=[every], ports={"http": WorkloadPort(port=1)})) is None


@pytest.mark.parametrize(
    ("config", "empty"),
    [
        (None, True),
        (FailoverConfig(), True),
        (FailoverConfig(destinations=[FailoverDestination()]), False),
        (FailoverConfig(mode=FailoverMode.FAILOVER_MODE_SEQUENTIAL), False),
        (FailoverConfig(regions=["eu"]), False),
        (FailoverConfig(sameness_group="g"), False),
    ],
)
def test_failover_configuration_is_empty_if_it_says_nothing(config: FailoverConfig | None, empty: bool) -> None:
    assert ports.is_empty(config) is empty


def test_destinations_are_those_of_the_general_configuration_and_then_of_each_port() -> None:
    one, two, three = (FailoverDestination(ref=headway.Reference(name=name)) for name in ("a", "b", "a"))
    ported = {"y": FailoverConfig(destinations=[three]), "x": FailoverConfig(destinations=[two])}
    found = list(ports.destinations(FailoverConfig(destinations=[one]), ported))
    assert [each.ref.name for each in found if each.ref] == ["a", "b", "a"]
    assert list(ports.destinations(None, {})) == []
