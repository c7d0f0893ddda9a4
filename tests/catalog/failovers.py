"""Failover policies for the tests, and a plain function that says what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.messages import FailoverConfig, FailoverDestination, FailoverPolicy, Protocol, Service, ServicePort
from catalog.types import SERVICE


def port(target: str, virtual: int = 0, protocol: Protocol = Protocol.PROTOCOL_HTTP) -> ServicePort:
    """Return a port of a service."""
    return ServicePort(target_port=target, virtual_port=virtual, protocol=protocol)


HTTP, GRPC, MESH = port("http", 8080), port("grpc", 9090), port("mesh", 0, Protocol.PROTOCOL_MESH)
API = Service(ports=[HTTP, GRPC, MESH])


def to(*names: str, port: str = "", group: str = "") -> FailoverConfig:
    """Return a configuration with these services as destinations, all at one port."""
    named = [FailoverDestination(ref=SERVICE.id(name).reference(), port=port) for name in names]
    return FailoverConfig(destinations=named, sameness_group=group)


def policy(config: FailoverConfig | None = None, **ported: FailoverConfig) -> FailoverPolicy:
    """Return a policy. A leading underscore of a keyword, as in ``_8080``, is left out of the port's id."""
    return FailoverPolicy(config=config, port_configs={key.lstrip("_"): ported[key] for key in ported})


def destinations(config: FailoverConfig) -> list[tuple[str, str]]:
    """Return the services and ports of the destinations of a configuration."""
    return [(each.ref.name, each.port) for each in config.destinations if each.ref is not None]


def expected(policy: FailoverPolicy, services: Mapping[str, Service], own: str) -> tuple[dict[str, object], list[str]]:
    """Return the destinations of each port and the names of the bound references, computed in a plain way.

    All services are in one tenancy, no port has the name of another's number, and no key is signed.
    """
    ports: dict[str, object] = {}
    bound = {own}
    for port in services[own].ports:
        given = policy.port_configs.get(port.target_port) or policy.port_configs.get(str(port.virtual_port))
        meshed = port.protocol == Protocol.PROTOCOL_MESH
        if given is None and (meshed or policy.config is None):
            continue
        config = given if given is not None else policy.config
        assert config is not None
        found: list[tuple[str, str]] = []
        for name, text in destinations(config):
            bound.add(name)
            if name in services:
                wanted = text or ("" if meshed else port.target_port)
                known = {str(each.virtual_port): each.target_port for each in reversed(services[name].ports)}
                found.append((name, known.get(wanted, wanted)))
        if found:
            ports[port.target_port] = found
    return ports, sorted(bound)
