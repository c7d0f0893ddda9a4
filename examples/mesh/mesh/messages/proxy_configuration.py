"""The messages that configure the proxies of workloads."""

from __future__ import annotations

import datetime
from enum import IntEnum

from catalog.messages import WorkloadSelector
from headway import field, message
from mesh.messages.wrappers import Struct

_PACKAGE = "hashicorp.consul.mesh.v2beta1"


class ProxyMode(IntEnum):
    """The way in which a workload's traffic reaches its proxy."""

    PROXY_MODE_DEFAULT = 0
    PROXY_MODE_TRANSPARENT = 1
    PROXY_MODE_DIRECT = 2


class BalanceConnections(IntEnum):
    """The way in which connections are spread over the threads of a proxy."""

    BALANCE_CONNECTIONS_DEFAULT = 0
    BALANCE_CONNECTIONS_EXACT = 1


class MutualTLSMode(IntEnum):
    """The demands on TLS of connections to a proxy."""

    MUTUAL_TLS_MODE_DEFAULT = 0
    MUTUAL_TLS_MODE_STRICT = 1
    MUTUAL_TLS_MODE_PERMISSIVE = 2


class MeshGatewayMode(IntEnum):
    """The gateways that traffic to another datacenter takes."""

    MESH_GATEWAY_MODE_UNSPECIFIED = 0
    MESH_GATEWAY_MODE_NONE = 1
    MESH_GATEWAY_MODE_LOCAL = 2
    MESH_GATEWAY_MODE_REMOTE = 3


@message(name=f"{_PACKAGE}.TransparentProxy")
class TransparentProxy:
    """The transparent mode of a proxy."""

    outbound_listener_port: int = field(1, kind="uint32")
    dialed_directly: bool = field(2)


@message(name=f"{_PACKAGE}.ConnectionConfig")
class ConnectionConfig:
    """The limits of the connections from a proxy to its own workload."""

    connect_timeout: datetime.timedelta | None = field(1)
    request_timeout: datetime.timedelta | None = field(2)


@message(name=f"{_PACKAGE}.InboundConnectionsConfig")
class InboundConnectionsConfig:
    """The limits of the connections that a proxy accepts."""

    max_inbound_connections: int = field(1, kind="uint32")
    balance_inbound_connections: BalanceConnections = field(2)


@message(name=f"{_PACKAGE}.ExposeConfig")
class ExposeConfig:
    """Paths that are reached without TLS. Validation refuses it."""


@message(name=f"{_PACKAGE}.AccessLogsConfig")
class AccessLogsConfig:
    """The access logs of a proxy. Validation refuses it."""


@message(name=f"{_PACKAGE}.DynamicConfig")
class DynamicConfig:
    """The part of a proxy's configuration that may change while it runs."""

    mode: ProxyMode = field(1)
    transparent_proxy: TransparentProxy | None = field(2)
    mutual_tls_mode: MutualTLSMode = field(3)
    local_connection: dict[str, ConnectionConfig] = field(4)
    inbound_connections: InboundConnectionsConfig | None = field(5)
    mesh_gateway_mode: MeshGatewayMode = field(6)
    expose_config: ExposeConfig | None = field(7)
    access_logs: AccessLogsConfig | None = field(8)
    public_listener_json: str = field(9)
    listener_tracing_json: str = field(10)
    local_cluster_json: str = field(11)
    # Deprecated in Consul.
    local_workload_address: str = field(12)
    local_workload_port: int = field(13, kind="uint32")
    local_workload_socket_path: str = field(14)


@message(name=f"{_PACKAGE}.BootstrapConfig")
class BootstrapConfig:
    """The part of a proxy's configuration that it reads when it starts."""

    statsd_url: str = field(1)
    dogstatsd_url: str = field(2)
    stats_tags: list[str] = field(3)
    prometheus_bind_addr: str = field(4)
    stats_bind_addr: str = field(5)
    ready_bind_addr: str = field(6)
    override_json_tpl: str = field(7)
    static_clusters_json: str = field(8)
    static_listeners_json: str = field(9)
    stats_sinks_json: str = field(10)
    stats_config_json: str = field(11)
    stats_flush_interval: str = field(12)
    tracing_config_json: str = field(13)
    telemetry_collector_bind_socket_dir: str = field(14)


@message(name=f"{_PACKAGE}.ProxyConfiguration")
class ProxyConfiguration:
    """The configuration of the proxies of the workloads that it selects."""

    workloads: WorkloadSelector | None = field(1)
    dynamic_config: DynamicConfig | None = field(2)
    bootstrap_config: BootstrapConfig | None = field(3)
    opaque_config: Struct | None = field(4)


@message(name=f"{_PACKAGE}.ComputedProxyConfiguration")
class ComputedProxyConfiguration:
    """The configuration of the proxy of the workload of the same name, from all that select it."""

    dynamic_config: DynamicConfig | None = field(2)
    bootstrap_config: BootstrapConfig | None = field(3)
