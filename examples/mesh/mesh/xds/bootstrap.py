"""The file with which an Envoy starts, and from which it finds this server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "10s"}}
        },
    }
}
_STEPS = {"error_level": 4000, "warn_level": 4000}


def bootstrap(
    node: str,
    address: str,
    *,
    token: str | None = None,
    admin: str = "127.0.0.1:0",
    cluster: str = "headway",
    metadata: Mapping[str, str] | None = None,
    authority: str | None = None,
    server: str | None = None,
) -> dict[str, Any]:
    """Return an Envoy's bootstrap, to be written as JSON.

    Args:
        node: the proxy's name, which the server gets as ``node.id``.
        address: the server's address, such as ``127.0.0.1:9000``.
        token: sent with the stream. The file then holds it in clear: give it mode 0600.
        admin: the address of Envoy's admin interface. Port 0 takes a free one.
        cluster: the proxy's group.
        metadata: more about the proxy, such as its namespace.
        authority: a file with the certificate of the authority that has signed the server's. None for plain text.
        server: the name or the IP address in the server's certificate; that of ``address`` by default. The token is
            sent to no other server.
    """
    control: dict[str, Any] = {
        "name": "control",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": _HTTP2,
        "load_assignment": {
            "cluster_name": "control",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address("address", address)}}]}],
        },
    }
    if authority is not None:
        control["transport_socket"] = _tls(authority, server or address.rpartition(":")[0].strip("[]"))
    # By default, a proxy would wait for up to half a minute after an outage of a few.
    again = {"retry_back_off": {"base_interval": "0.5s", "max_interval": "5s"}}
    service: dict[str, Any] = {"envoy_grpc": {"cluster_name": "control", "retry_policy": again}}
    if token is not None:
        service["initial_metadata"] = [{"key": "x-consul-token", "value": token}]
    over_ads = {"ads": {}, "resource_api_version": "V3"}
    return {
        "node": {"id": node, "cluster": cluster, "metadata": dict(metadata or {})},
        "admin": {"address": _address("admin", admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "grpc_services": [service],
                "set_node_on_first_message_only": True,
            },
            "lds_config": over_ads,
            "cds_config": over_ads,
        },
        "static_resources": {"clusters": [control]},
        # By default, a proxy refuses patterns of more than 100 steps, even those of long names in permissions.
        "layered_runtime": {"layers": [{"name": "patterns", "static_layer": {"re2": {"max_program_size": _STEPS}}}]},
    }


def _tls(authority: str, server: str) -> dict[str, Any]:
    try:
        ipaddress.ip_address(server)
        kind = "IP_ADDRESS"
    except ValueError:
        kind = "DNS"
    expected = {"san_type": kind, "matcher": {"exact": server}}
    tls: dict[str, Any] = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "validation_context": {
                "trusted_ca": {"filename": authority},
                "match_typed_subject_alt_names": [expected],
            },
        },
    }
    if kind == "DNS":
        tls["sni"] = server
    return {"name": "tls", "typed_config": tls}


def _address(field: str, given: str) -> dict[str, Any]:
    host, colon, port = given.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{field}: {given!r} is not a host and a port, such as 127.0.0.1:9000")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
