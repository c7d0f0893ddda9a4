"""Proxy configurations and destinations: facts MT-1 to MT-4."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from catalog.messages import WorkloadSelector
from headway.resource import pb
from mesh.messages import (
    AccessLogsConfig,
    BalanceConnections,
    BootstrapConfig,
    ConnectionConfig,
    Destination,
    Destinations,
    DynamicConfig,
    ExposeConfig,
    InboundConnectionsConfig,
    IPPortAddress,
    MeshGatewayMode,
    MutualTLSMode,
    PreparedQueryDestination,
    ProxyConfiguration,
    ProxyMode,
    Struct,
    TransparentProxy,
    UnixSocketAddress,
)
from mesh.types import DESTINATIONS, PROXY_CONFIGURATION
from tests.catalog.checks.hooked import faults, refused, stored
from tests.mesh.refs import SELECTOR, bare, ref


def configured(dynamic: DynamicConfig | None = None, bootstrap: BootstrapConfig | None = None) -> list[str]:
    data = ProxyConfiguration(workloads=SELECTOR, dynamic_config=dynamic, bootstrap_config=bootstrap)
    return faults(PROXY_CONFIGURATION.new("c", data))


def test_proxy_configuration_selects_and_configures() -> None:
    """MT-2."""
    assert configured(DynamicConfig()) == []
    assert configured(None, BootstrapConfig(stats_tags=["a"])) == []
    assert configured() == ["data.dynamic_config"]
    for selector in (None, WorkloadSelector()):
        data = ProxyConfiguration(workloads=selector, dynamic_config=DynamicConfig())
        assert faults(PROXY_CONFIGURATION.new("c", data)) == ["data.workloads"]


UNSUPPORTED: list[tuple[str, Any]] = [
    ("mode", ProxyMode.PROXY_MODE_TRANSPARENT),
    ("transparent_proxy", TransparentProxy()),
    ("transparent_proxy", TransparentProxy(dialed_directly=True)),
    ("mutual_tls_mode", MutualTLSMode.MUTUAL_TLS_MODE_STRICT),
    ("mesh_gateway_mode", MeshGatewayMode.MESH_GATEWAY_MODE_LOCAL),
    ("expose_config", ExposeConfig()),
    ("access_logs", AccessLogsConfig()),
    ("public_listener_json", "{}"),
    ("listener_tracing_json", "{}"),
    ("local_cluster_json", "{}"),
    ("local_workload_address", "10.0.0.1"),
    ("local_workload_port", 80),
    ("local_workload_socket_path", "/run/api.sock"),
]


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
def test_unsupported_dynamic_configuration_is_refused(name: str, value: object) -> None:
    """MT-1 and MT-2: the transparent mode is refused, so that its port needs no default."""
    config = DynamicConfig()
    setattr(config, name, value)
    assert configured(config) == [f"data.dynamic_config.{name}"]


@pytest.mark.parametrize(
    "name",
    [
        "override_json_tpl",
        "static_clusters_json",
        "static_listeners_json",
        "stats_sinks_json",
        "stats_config_json",
        "tracing_config_json",
    ],
)
def test_unsupported_bootstrap_configuration_is_refused(name: str) -> None:
    config = BootstrapConfig()
    setattr(config, name, "{}")
    assert configured(None, config) == [f"data.bootstrap_config.{name}"]


def test_opaque_configuration_is_refused() -> None:
    """MT-2."""
    data = ProxyConfiguration(workloads=SELECTOR, dynamic_config=DynamicConfig(), opaque_config=Struct())
    refused(PROXY_CONFIGURATION.new("c", data), "data.opaque_config is not supported: leave it out")


def test_connections_are_checked() -> None:
    """MT-2."""
    negative = datetime.timedelta(seconds=-1)
    local = {"http": ConnectionConfig(connect_timeout=negative, request_timeout=negative), "": ConnectionConfig()}
    inbound = InboundConnectionsConfig(balance_inbound_connections=BalanceConnections(1))
    at = "data.dynamic_config.local_connection"
    assert configured(DynamicConfig(local_connection=local, inbound_connections=inbound)) == [
        f"{at}['http'].connect_timeout",
        f"{at}['http'].request_timeout",
        at,
    ]


def to(address: IPPortAddress | UnixSocketAddress | None, **given: Any) -> Destination:
    values: dict[str, Any] = {"destination_ref": ref("api"), "destination_port": "http"} | given
    if isinstance(address, IPPortAddress):
        values["ip_port"] = address
    elif address is not None:
        values["unix"] = address
    return Destination(**values)


LOCAL = IPPortAddress(ip="127.0.0.1", port=1234)


def test_destination_is_in_the_tenancy_of_the_resource_by_default() -> None:
    """MT-3."""
    data = Destinations(workloads=SELECTOR, destinations=[to(LOCAL, destination_ref=bare("api"))])
    kept = stored(DESTINATIONS.new("d", data, partition="far", namespace="lab")).data.destinations[0].destination_ref
    assert kept is not None
    assert kept.tenancy == pb.Tenancy(partition="far", namespace="lab")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (to(LOCAL), ""),
        (to(LOCAL, destination_port="8080"), ""),
        (to(UnixSocketAddress(path="/run/api.sock", mode="0600")), ""),
        (to(LOCAL, destination_ref=None), ".destination_ref"),
        (to(LOCAL, destination_ref=DESTINATIONS.id("x").reference()), ".destination_ref.type"),
        (to(LOCAL, destination_port=""), ".destination_port"),
        (to(LOCAL, destination_port="0"), ".destination_port"),
        (to(LOCAL, datacenter="dc2"), ".datacenter"),
        (to(None), ""),
        (to(IPPortAddress(ip="localhost", port=80)), ".ip_port.ip"),
        (to(IPPortAddress(ip="127.0.0.1")), ".ip_port.port"),
        (to(IPPortAddress(ip="127.0.0.1", port=65536)), ".ip_port.port"),
        (to(UnixSocketAddress()), ".unix.path"),
        (to(UnixSocketAddress(path="/" + "x" * 108)), ".unix.path"),
        (to(UnixSocketAddress(path="/" + "ü" * 54)), ".unix.path"),
        (to(UnixSocketAddress(path="/x", mode="rw")), ".unix.mode"),
        (to(UnixSocketAddress(path="/x", mode="0777")), ""),
        (to(UnixSocketAddress(path="/x", mode="1777")), ".unix.mode"),
    ],
)
def test_destination_is_checked(given: Destination, fault: str) -> None:
    """MT-4. A path or a mode that no operating system takes is refused as well."""
    found = faults(DESTINATIONS.new("d", Destinations(workloads=SELECTOR, destinations=[given])))
    without_address = given.ip_port is None and given.unix is None
    assert found == ([f"data.destinations[0]{fault}"] if fault or without_address else [])


def test_destinations_select_and_name_no_queries_and_may_share_an_address() -> None:
    """MT-4."""
    assert faults(DESTINATIONS.new("d", Destinations(destinations=[to(LOCAL)]))) == ["data.workloads"]
    queries = Destinations(workloads=SELECTOR, pq_destinations=[PreparedQueryDestination()])
    assert faults(DESTINATIONS.new("d", queries)) == ["data.pq_destinations"]
    assert faults(DESTINATIONS.new("d", Destinations(workloads=SELECTOR, destinations=[to(LOCAL), to(LOCAL)]))) == []
