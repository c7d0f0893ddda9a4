"""The computation of a failover policy: the facts FO-4 to FO-7 and FO-9 of Consul's controller, some done better."""

from __future__ import annotations

import pytest

from catalog import failover
from catalog.messages import FailoverPolicy, Service, ServicePort
from catalog.types import SERVICE
from tests.catalog.failovers import API, GRPC, HTTP, MESH, destinations, policy, port, to

ON_API = "on catalog.v2beta1.Service/default.default/api"
ON_OTHER = "on catalog.v2beta1.Service/default.default/other"


def computed(
    given: FailoverPolicy, service: Service = API, **others: Service
) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Return the destinations by port, and the names of the bound references."""
    data, _ = failover.compute(given, SERVICE.id("api"), service, lambda service: others.get(service.name))
    assert data.config is None
    bound = [each.name for each in data.bound_references]
    return {name: destinations(data.port_configs[name]) for name in data.port_configs}, bound


def reasons(given: FailoverPolicy, service: Service = API, **others: Service) -> list[tuple[str, str]]:
    """Return the reasons and messages of the conditions. All are of one type, and only ``Ok`` is true."""
    _, found = failover.compute(given, SERVICE.id("api"), service, lambda service: others.get(service.name))
    assert {each.type for each in found} == {"accepted"}
    assert [each.state.name for each in found] == ["TRUE" if each.reason == "Ok" else "FALSE" for each in found]
    return [(each.reason, each.message) for each in found]


def test_fo4_general_configuration_holds_for_each_port_but_the_mesh() -> None:
    assert computed(policy(to("other")), other=API)[0] == {"grpc": [("other", "grpc")], "http": [("other", "http")]}


def test_fo4_configuration_of_a_port_wins_and_its_empty_ports_become_the_target_port() -> None:
    given = policy(to("other"), http=to("other", "third"))
    ported, _ = computed(given, other=API, third=API)
    assert ported == {"grpc": [("other", "grpc")], "http": [("other", "http"), ("third", "http")]}


def test_fo4_configuration_under_a_virtual_port_is_that_of_its_target_port() -> None:
    assert computed(policy(_8080=to("other")), other=API)[0] == {"http": [("other", "http")]}


def test_fo4_target_port_wins_over_the_virtual_port_of_the_same_port() -> None:
    given = policy(_8080=to("third"), http=to("other"))
    assert computed(given, other=API, third=API)[0] == {"http": [("other", "http")]}
    text = f"multiple configs found for port on destination service: http (virtual 8080) {ON_API}"
    assert reasons(given, other=API, third=API) == [("ConflictDestinationPort", text)]


def test_fo4_configuration_of_the_mesh_port_stays_as_it_is() -> None:
    """Its destinations keep their empty ports, which no service has."""
    assert computed(policy(mesh=to("other")), other=API)[0] == {"mesh": [("other", "")]}


def test_fo6_destination_without_a_service_is_left_out_and_so_is_a_port_without_destinations() -> None:
    given = policy(http=to("other", "missing"), grpc=to("missing"))
    assert computed(given, other=API)[0] == {"http": [("other", "http")]}
    text = "destination service for failover policy does not exist: catalog.v2beta1.Service/default.default/missing"
    assert reasons(given, other=API) == [("MissingDestinationService", text)]


def test_fo6_destination_with_an_unknown_port_stays() -> None:
    given = policy(http=to("other", port="admin"))
    assert computed(given, other=API)[0] == {"http": [("other", "admin")]}
    text = f"port is not defined on destination service: admin {ON_OTHER}"
    assert reasons(given, other=API) == [("UnknownDestinationPort", text)]


def test_fo7_bound_references_have_every_service_and_those_that_do_not_exist() -> None:
    """They are sorted (W-1)."""
    given = policy(to("zulu", "missing", "alpha"))
    assert computed(given, zulu=API, alpha=API)[1] == ["alpha", "api", "missing", "zulu"]


def test_fo9_accepted_policy_has_one_condition() -> None:
    assert reasons(policy(to("other")), other=API) == [("Ok", "failover policy was accepted")]


def test_fo9_key_that_is_no_port_of_the_service_is_left_out_and_reported() -> None:
    given = policy(admin=to("other"))
    assert computed(given, other=API) == ({}, ["api"])
    assert reasons(given, other=API) == [("UnknownPort", f"port is not defined on service: admin {ON_API}")]


@pytest.mark.parametrize("order", [[HTTP, GRPC, MESH], [MESH, GRPC, HTTP]])
def test_w2_order_of_a_map_does_not_matter(order: list[ServicePort]) -> None:
    given, other = policy(_9090=to("other"), http=to("b", "a")), Service(ports=[*API.ports])
    back = FailoverPolicy(port_configs=dict(reversed(given.port_configs.items())))
    service = Service(ports=[each for each in order if each in API.ports])
    find = {"other": other, "a": other, "b": other}.get
    first, second = (
        failover.compute(each, SERVICE.id("api"), service, lambda service: find(service.name)) for each in (given, back)
    )
    assert list(first[0].port_configs) == list(second[0].port_configs) == ["grpc", "http"]
    assert first == second


def test_w20_destination_port_may_be_a_virtual_port_of_the_destination() -> None:
    given = policy(http=to("other", port="7070"))
    other = Service(ports=[port("web", 7070)])
    assert computed(given, other=other)[0] == {"http": [("other", "web")]}
    assert reasons(given, other=other) == [("Ok", "failover policy was accepted")]


def test_w21_destination_at_the_mesh_port_has_a_reason_of_its_own() -> None:
    given = policy(http=to("other", port="mesh"))
    text = f"port is a special unroutable mesh port on destination service: mesh {ON_OTHER}"
    assert reasons(given, other=API) == [("UsingMeshDestinationPort", text)]
    assert computed(given, other=API)[0] == {"http": [("other", "mesh")]}


@pytest.mark.parametrize("given", [policy(to(group="pals")), policy(http=to(group="pals"))])
def test_fo5_w22_sameness_group_gives_no_destinations_and_is_reported(given: FailoverPolicy) -> None:
    assert computed(given) == ({}, ["api"])
    text = "referenced sameness group does not exist: multicluster.v2.SamenessGroup/default/pals"
    assert reasons(given) == [("MissingSamenessGroup", text)]
