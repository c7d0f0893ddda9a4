"""The rules of proxy configurations and of destinations."""

from __future__ import annotations

import re
from typing import Final

from catalog.checks import services, values
from catalog.checks.faults import Faults
from catalog.checks.references import complete, service_reference
from headway import Resource
from headway.resource import quoted
from mesh.checks import limits
from mesh.messages import BootstrapConfig, Destination, Destinations, DynamicConfig, ProxyConfiguration, ProxyMode

_MODE = re.compile(r"0?[0-7]{1,3}\Z", re.ASCII)
# They change nothing for a proxy that this mesh configures, or need what it does not have.
_UNSUPPORTED: Final = (
    "transparent_proxy",
    "mutual_tls_mode",
    "mesh_gateway_mode",
    "expose_config",
    "access_logs",
    "public_listener_json",
    "listener_tracing_json",
    "local_cluster_json",
    "local_workload_address",
    "local_workload_port",
    "local_workload_socket_path",
)
_UNSUPPORTED_AT_START: Final = (
    "override_json_tpl",
    "static_clusters_json",
    "static_listeners_json",
    "stats_sinks_json",
    "stats_config_json",
    "tracing_config_json",
)


def configuration(resource: Resource[ProxyConfiguration]) -> Faults:
    """Yield the faults of a proxy configuration."""
    data = resource.data
    yield from services.selector("data.workloads", data.workloads, may_be_empty=False)
    if data.dynamic_config is None and data.bootstrap_config is None:
        yield "data.dynamic_config and data.bootstrap_config are absent: give at least one of them"
    yield from limits.absent("data.opaque_config", data.opaque_config)
    if data.dynamic_config is not None:
        yield from _dynamic("data.dynamic_config", data.dynamic_config)
    if data.bootstrap_config is not None:
        yield from _bootstrap("data.bootstrap_config", data.bootstrap_config)


def _dynamic(path: str, config: DynamicConfig) -> Faults:
    yield from values.member(f"{path}.mode", config.mode)
    if config.mode == ProxyMode.PROXY_MODE_TRANSPARENT:
        yield f"{path}.mode PROXY_MODE_TRANSPARENT is not supported: use PROXY_MODE_DIRECT, and Destinations"
    for name in _UNSUPPORTED:
        yield from limits.absent(f"{path}.{name}", getattr(config, name))
    for port, connection in config.local_connection.items():
        yield from values.port_name(f"{path}.local_connection key", port)
        at = f"{path}.local_connection[{quoted(port)}]"
        yield from limits.duration(f"{at}.connect_timeout", connection.connect_timeout)
        yield from limits.duration(f"{at}.request_timeout", connection.request_timeout)
    if config.inbound_connections is not None:
        balance = config.inbound_connections.balance_inbound_connections
        yield from values.member(f"{path}.inbound_connections.balance_inbound_connections", balance)


def _bootstrap(path: str, config: BootstrapConfig) -> Faults:
    for name in _UNSUPPORTED_AT_START:
        yield from limits.absent(f"{path}.{name}", getattr(config, name))


def fill_in_destinations(resource: Resource[Destinations]) -> None:
    """Complete the tenancies of the destinations."""
    for each in resource.data.destinations:
        complete(each.destination_ref, resource.id)


def destinations(resource: Resource[Destinations]) -> Faults:
    """Yield the faults of destinations. Two of them may have one address: the status says so."""
    data = resource.data
    yield from services.selector("data.workloads", data.workloads, may_be_empty=False)
    yield from limits.absent("data.pq_destinations", data.pq_destinations)
    for index, each in enumerate(data.destinations):
        yield from _destination(f"data.destinations[{index}]", each)


def _destination(path: str, given: Destination) -> Faults:
    yield from service_reference(f"{path}.destination_ref", given.destination_ref, "is reached")
    yield from values.port_id(f"{path}.destination_port", given.destination_port)
    yield from limits.absent(f"{path}.datacenter", given.datacenter)
    if given.ip_port is not None:
        yield from values.ip_address(f"{path}.ip_port.ip", given.ip_port.ip)
        yield from values.number(f"{path}.ip_port.port", given.ip_port.port, 1)
    elif given.unix is None:
        yield f"{path} has no address: set ip_port or unix"
    elif not given.unix.path:
        yield f"{path}.unix.path is empty: give the path of a socket, such as '/run/api.sock'"
    else:
        yield from _socket(f"{path}.unix", given.unix.path, given.unix.mode)


def _socket(path: str, socket: str, mode: str) -> Faults:
    if len(socket.encode()) >= values.LONGEST_SOCKET or "\0" in socket:
        yield (
            f"{path}.path {quoted(socket)} is not the path of a socket: use fewer than {values.LONGEST_SOCKET} bytes "
            "without a NUL, such as '/run/api.sock'"
        )
    if mode and not _MODE.match(mode):
        yield f"{path}.mode {quoted(mode)} is not a mode: use octal digits up to '0777', such as '0600'"
