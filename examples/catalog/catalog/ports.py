"""Ports, addresses and identities: what the messages of the catalog say about themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from catalog.messages import (
    FailoverConfig,
    FailoverDestination,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)

_LARGEST = (1 << 63) - 1


def find_port(service: Service, id: str) -> ServicePort | None:
    """Return the first port of a service with this id, or None.

    An id that is a number above 0 is a virtual port. Any other id is a target port.
    """
    number = port_number(id)
    if number is not None and number > 0:
        return next((port for port in service.ports if port.virtual_port == number), None)
    return find_target_port(service, id)


def find_target_port(service: Service, name: str) -> ServicePort | None:
    """Return the first port of a service with this target port, or None."""
    return next((port for port in service.ports if port.target_port == name), None) if name else None


def port_number(id: str) -> int | None:
    """Return the number that a port id is, or None if it is a name. A sign and leading zeros are allowed."""
    digits = id[1:] if id[:1] in ("+", "-") else id
    # Compared before it is read: a long number takes quadratic time to read.
    if not digits.isascii() or not digits.isdecimal() or len(digits.lstrip("0")) > len(str(_LARGEST)):
        return None
    number = int(id)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None


def port_text(port: ServicePort) -> str:
    """Return a service port for a person: its target port, and its virtual port if it has one."""
    return f"{port.target_port} (virtual {port.virtual_port})" if port.virtual_port else port.target_port


def mesh_port(ports: Mapping[str, WorkloadPort]) -> str:
    """Return the name of the port that speaks the mesh protocol, or an empty string."""
    return min((name for name, port in ports.items() if port.protocol == Protocol.PROTOCOL_MESH), default="")


def is_mesh_enabled(of: Service | Workload) -> bool:
    """Return True if a service or a workload has a port that speaks the mesh protocol."""
    if isinstance(of, Workload):
        return bool(mesh_port(of.ports))
    return any(port.protocol == Protocol.PROTOCOL_MESH for port in of.ports)


def addresses_of_port(workload: Workload, name: str) -> list[WorkloadAddress]:
    """Return the addresses of a workload that serve a port and are not external, in the workload's order."""
    if name not in workload.ports:
        return []
    return [each for each in workload.addresses if not each.external and (not each.ports or name in each.ports)]


def mesh_address(workload: Workload) -> WorkloadAddress | None:
    """Return the first address that serves the mesh port and is not external, or None."""
    return next(iter(addresses_of_port(workload, mesh_port(workload.ports))), None)


def identities(endpoints: ServiceEndpoints) -> list[str]:
    """Return the identities of the endpoints, sorted and each once."""
    return sorted({each.identity for each in endpoints.endpoints if each.identity})


def is_empty(config: FailoverConfig | None) -> bool:
    """Return True if a failover configuration says nothing."""
    return config is None or not (config.destinations or config.mode or config.regions or config.sameness_group)


def destinations(config: FailoverConfig | None, ported: Mapping[str, FailoverConfig]) -> Iterator[FailoverDestination]:
    """Yield every destination of a failover policy: of the general configuration, then by port, in order of the keys.

    A destination that two configurations name is yielded twice.
    """
    for each in (config, *(ported[key] for key in sorted(ported))):
        yield from each.destinations if each is not None else ()
