"""The rules for single values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.messages import Health, Protocol

Rule = Callable[[str, str], Faults]
LONG = "a" * 63

ACCEPTED: list[tuple[Rule, list[str]]] = [
    (values.ip_address, ["10.0.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"]),
    (values.dns_label, ["a", "0", "api-1", "a_b", "1.2"[:1], LONG]),
    (
        values.workload_host,
        ["10.0.0.1", "::1", "api", "1.2.3", "api.example.com", "unix:///run/a.sock", "unix://" + "a" * 101],
    ),
    (values.workload_host, [".".join([LONG] * 4), "a.b_c.d"]),
    (values.node_host, ["10.0.0.1", "::1", "node-1.example.com"]),
    (values.port_name, ["http", "HTTP", "a", "grpc-2", "1a", "a" * 15, "8-a-0"]),
    (values.port_id, ["http", "1", "65535", "+80", "0080", "00000000000000080", "1e3"]),
]

REFUSED: list[tuple[Rule, list[str]]] = [
    (values.ip_address, ["", "10.0.0", "10.0.0.01", "1.2.3.4.5", "fe80::1%eth0", "api", " 10.0.0.1"]),
    (values.dns_label, ["", "-a", "a-", "_a", "a_", "A", "á", "a.b", "a\n", LONG + "a"]),
    (values.workload_host, ["", "a..b", "Foo.com", ".", "a.", "-a.b", "a b", "unix:///a\0b", "unix://" + "a" * 102]),
    (values.workload_host, [".".join([LONG] * 4) + ".a", "unix://" + "é" * 51]),
    (values.node_host, ["", "unix:///run/a.sock", "Foo.com", "a..b"]),
    (values.port_name, ["", "80", "-a", "a-", "a--b", "a_b", "é", "a" * 16, "a\n"]),
    (values.port_id, ["", "0", "65536", "-1", "+", "８０", "a--b", "9" * 50]),
]


@pytest.mark.parametrize(("rule", "given"), ACCEPTED)
def test_valid_values_have_no_faults(rule: Rule, given: list[str]) -> None:
    assert [(each, list(rule("data.x", each))) for each in given] == [(each, []) for each in given]


@pytest.mark.parametrize(("rule", "given"), REFUSED)
def test_invalid_values_have_one_fault_that_shows_a_right_one(rule: Rule, given: list[str]) -> None:
    for each in given:
        [fault] = rule("data.x", each)
        assert fault.startswith("data.x ")
        assert "'" in fault.partition(":")[2] or "such as '" in fault, each


@pytest.mark.parametrize(
    ("value", "lowest", "valid"),
    [(0, 0, True), (0, 1, False), (1, 1, True), (65535, 1, True), (65536, 0, False)],
)
def test_ports_and_weights_have_bounds(value: int, lowest: int, valid: bool) -> None:
    assert (not list(values.number("data.x", value, lowest))) is valid


def test_every_number_that_an_enum_has_is_valid_and_no_other() -> None:
    assert not [fault for each in Protocol for fault in values.member("p", each)]
    assert len(list(values.member("h", Health.HEALTH_ANY, 1))) == 1
    unknown = int.__new__(Protocol, 99)
    [fault] = values.member("p", unknown)
    assert fault.startswith("p 99 is not supported: use one of PROTOCOL_UNSPECIFIED, PROTOCOL_TCP")
