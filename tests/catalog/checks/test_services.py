"""Services, their endpoints, health checks and virtual IPs: facts T-1 to T-3, T-7 to T-9 and T-12."""

from __future__ import annotations

import pytest

from catalog.messages import (
    IP,
    DNSPolicy,
    Endpoint,
    Health,
    HealthCheck,
    HealthChecks,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    TCPCheck,
    VirtualIPs,
    Weights,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import HEALTH_CHECKS, NODE, SERVICE, SERVICE_ENDPOINTS, VIRTUAL_IPS, WORKLOAD
from headway import ResourceId
from tests.catalog.checks.hooked import faults, refused, stored

TCP, MESH = Protocol.PROTOCOL_TCP, Protocol.PROTOCOL_MESH
UNKNOWN = int.__new__(Protocol, 99)
HTTP = ServicePort(target_port="http", protocol=TCP)


def test_protocol_of_a_port_is_tcp_by_default() -> None:
    """T-1."""
    given = Service(
        ports=[
            ServicePort(target_port="a", virtual_port=1),
            ServicePort(target_port="b", protocol=MESH),
            ServicePort(target_port="c", protocol=Protocol.PROTOCOL_UNSPECIFIED),
        ],
        workloads=WorkloadSelector(prefixes=[""]),
    )
    ports = stored(SERVICE.new("api", given)).data.ports
    assert [(each.virtual_port, each.target_port, each.protocol) for each in ports] == [
        (1, "a", TCP),
        (0, "b", MESH),
        (0, "c", TCP),
    ]


@pytest.mark.parametrize(
    "service",
    [
        Service(),
        Service(workloads=WorkloadSelector()),
        Service(workloads=WorkloadSelector(prefixes=[""])),
        Service(workloads=WorkloadSelector(names=["a"], filter="metadata.color == red")),
        Service(ports=[HTTP, ServicePort(target_port="grpc")]),
        Service(ports=[HTTP, HTTP]),
        Service(ports=[ServicePort(target_port="a", protocol=MESH), ServicePort(target_port="b", protocol=MESH)]),
        Service(ports=[ServicePort(target_port="a", virtual_port=65535)], virtual_ips=["10.0.0.1", "::1"]),
    ],
)
def test_valid_service_is_stored(service: Service) -> None:
    """T-3, and the rules of selectors."""
    stored(SERVICE.new("api", service))


@pytest.mark.parametrize(
    ("service", "paths"),
    [
        (Service(workloads=WorkloadSelector(filter="metadata.a == b")), ["data.workloads.filter"]),
        (Service(workloads=WorkloadSelector(names=["a", ""])), ["data.workloads.names[1]"]),
        (Service(workloads=WorkloadSelector(prefixes=[""], filter="name == a")), ["data.workloads.filter"]),
        (Service(workloads=WorkloadSelector(names=["a"], filter="metadata.a ==")), ["data.workloads.filter"]),
        (Service(ports=[ServicePort(target_port="a_b")]), ["data.ports[0].target_port"]),
        (Service(ports=[ServicePort(virtual_port=1)]), ["data.ports[0].target_port"]),
        (Service(ports=[HTTP, ServicePort(target_port="a", protocol=UNKNOWN)]), ["data.ports[1].protocol"]),
        (Service(ports=[ServicePort(target_port="a", virtual_port=65536)]), ["data.ports[0].virtual_port"]),
        (
            Service(
                ports=[
                    ServicePort(target_port="a", virtual_port=70000),
                    HTTP,
                    ServicePort(target_port="b--", virtual_port=70000, protocol=UNKNOWN),
                ],
                workloads=WorkloadSelector(names=[""]),
                virtual_ips=["10.0.0.1", "", "ten"],
            ),
            [
                "data.workloads.names[0]",
                "data.ports[0].virtual_port",
                "data.ports[2].virtual_port",
                "data.ports[2].target_port",
                "data.ports[2].protocol",
                "data.ports[2].virtual_port",
                "data.virtual_ips[1]",
                "data.virtual_ips[2]",
            ],
        ),
    ],
)
def test_all_faults_of_a_service_are_told_at_once(service: Service, paths: list[str]) -> None:
    """T-2."""
    assert faults(SERVICE.new("api", service)) == paths


def test_reused_virtual_port_names_the_first_port_that_has_it() -> None:
    """T-2."""
    ports = [ServicePort(target_port="a", virtual_port=80), HTTP, ServicePort(target_port="b", virtual_port=80)]
    refused(SERVICE.new("api", Service(ports=ports)), "data.ports[2].virtual_port 80 is that of data.ports[0]")


def test_error_lists_a_bounded_number_of_faults() -> None:
    service = SERVICE.new("api", Service(virtual_ips=["no"] * 1000))
    refused(service, "data.virtual_ips[19] ", "; and more than these 20")
    assert len(faults(service)) == 21


def test_endpoints_belong_to_the_service_of_their_name() -> None:
    """T-7: the incarnation is found when the write is committed."""
    owned = stored(SERVICE_ENDPOINTS.new("api", namespace="lab"))
    assert owned.owner == SERVICE.id("api", namespace="lab")
    given = SERVICE.id("api", namespace="lab", uid="1")
    assert stored(SERVICE_ENDPOINTS.new("api", namespace="lab", owner=given)).owner == given


@pytest.mark.parametrize(
    ("owner", "paths"),
    [
        (WORKLOAD.id("api"), ["owner.type"]),
        (SERVICE.id("api", namespace="lab"), ["owner.tenancy"]),
        (SERVICE.id("other"), ["owner.name"]),
        (NODE.id("other", partition="far"), ["owner.type", "owner.tenancy", "owner.name"]),
    ],
)
def test_owner_of_endpoints_is_their_service(owner: ResourceId, paths: list[str]) -> None:
    """T-8."""
    assert faults(SERVICE_ENDPOINTS.new("api", owner=owner)) == paths


PORTS = {"http": WorkloadPort(port=80), "grpc": WorkloadPort(port=90)}
LOCAL = WorkloadAddress(host="10.0.0.1")


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint(ports=PORTS),
        Endpoint(ports=PORTS, addresses=[LOCAL]),
        Endpoint(ports=PORTS, addresses=[LOCAL], target_ref=WORKLOAD.id("api-1", uid="1").message()),
        Endpoint(ports=PORTS, addresses=[LOCAL], health_status=Health.HEALTH_MAINTENANCE),
    ],
)
def test_valid_endpoint_is_stored(endpoint: Endpoint) -> None:
    """T-9."""
    stored(SERVICE_ENDPOINTS.new("api", ServiceEndpoints(endpoints=[endpoint])))


@pytest.mark.parametrize(
    ("endpoint", "paths"),
    [
        (Endpoint(), ["ports"]),
        (Endpoint(ports=PORTS, target_ref=SERVICE.id("api").message()), ["target_ref.type"]),
        (
            Endpoint(ports=PORTS, target_ref=WORKLOAD.id("api", namespace="lab").message()),
            ["target_ref.tenancy"],
        ),
        (Endpoint(ports=PORTS, addresses=[WorkloadAddress(host="-")]), ["addresses[0].host"]),
        (
            Endpoint(ports=PORTS, addresses=[LOCAL, WorkloadAddress(host="a", ports=["http", "no"])]),
            ["addresses[1].ports[1]"],
        ),
        (Endpoint(ports=PORTS, health_status=int.__new__(Health, 9)), ["health_status"]),
        (Endpoint(ports={"1": WorkloadPort(port=1)}), ["ports"]),
        (Endpoint(ports={"a": WorkloadPort(port=1, protocol=UNKNOWN)}), ["ports['a'].protocol"]),
        (Endpoint(ports={"a": WorkloadPort()}), ["ports['a'].port"]),
        (Endpoint(ports=PORTS, dns=DNSPolicy(weights=Weights())), ["dns.weights.passing"]),
    ],
)
def test_faults_of_an_endpoint_have_the_paths_of_fields(endpoint: Endpoint, paths: list[str]) -> None:
    """T-9, with the names that the fields have (W-25)."""
    endpoints = ServiceEndpoints(endpoints=[Endpoint(ports=PORTS), endpoint])
    expected = [f"data.endpoints[1].{path}" for path in paths]
    assert faults(SERVICE_ENDPOINTS.new("api", endpoints)) == expected


def test_no_endpoints_are_valid() -> None:
    """T-9."""
    stored(SERVICE_ENDPOINTS.new("api"))


@pytest.mark.parametrize(
    ("checks", "paths"),
    [
        (HealthChecks(), ["data.workloads"]),
        (HealthChecks(workloads=WorkloadSelector()), ["data.workloads"]),
        (
            HealthChecks(workloads=WorkloadSelector(filter="metadata.a == b")),
            ["data.workloads", "data.workloads.filter"],
        ),
        (
            HealthChecks(
                workloads=WorkloadSelector(names=["a"]),
                health_checks=[
                    HealthCheck(name="tcp", tcp=TCPCheck()),
                    HealthCheck(tcp=TCPCheck()),
                    HealthCheck(name="A", tcp=TCPCheck()),
                    HealthCheck(name="none"),
                ],
            ),
            ["data.health_checks[1].name", "data.health_checks[2].name", "data.health_checks[3]"],
        ),
    ],
)
def test_health_checks_select_workloads_and_say_what_to_check(checks: HealthChecks, paths: list[str]) -> None:
    """T-12."""
    assert faults(HEALTH_CHECKS.new("api", checks)) == paths


def test_virtual_ips_are_addresses() -> None:
    """T-12."""
    given = VirtualIPs(ips=[IP(address="10.0.0.1", generated=True), IP(), IP(address="api")])
    assert faults(VIRTUAL_IPS.new("api", given)) == ["data.ips[1].address", "data.ips[2].address"]
