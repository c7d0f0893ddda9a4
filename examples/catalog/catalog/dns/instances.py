"""The healthy instances in a resource: their addresses, ports and weights. No I/O.

An instance counts with its passing weight while it passes, and with its warning weight while it warns. Both are 1 if
the workload has no weights. One that is critical or in maintenance, or whose health is not known, is never answered.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from catalog.dns.names import IPAddress
from catalog.endpoint import health_of
from catalog.messages import (
    DNSPolicy,
    Endpoint,
    Health,
    ServiceEndpoints,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)
from headway import Resource

_HOST = re.compile(r"(?=.{1,240}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII | re.IGNORECASE)
_LARGEST = 65_535


class Instance(NamedTuple):
    """One address of something healthy.

    Attributes:
        host: an IP address, or a DNS name in lower case.
        ports: the numbers of its ports by their names in lower case, in order of the names.
        weight: at least 1.
    """

    host: IPAddress | str
    ports: tuple[tuple[str, int], ...]
    weight: int


def of_endpoints(endpoints: ServiceEndpoints) -> list[Instance]:
    """Return the healthy instances of a service."""
    return [instance for each in endpoints.endpoints for instance in _of_endpoint(each)]


def of_workload(workload: Resource[Workload]) -> list[Instance]:
    """Return the addresses of a workload; none if it is not healthy."""
    data = workload.data
    weight = weight_of(data.dns, health_of(workload))
    return list(_instances(data.addresses, data.ports, weight)) if weight else []


def port_names(ports: Iterable[str]) -> frozenset[str]:
    """Return the names of ports as they stand in questions."""
    return frozenset(map(str.lower, ports))


def weight_of(policy: DNSPolicy | None, health: Health) -> int:
    """Return the weight in answers; 0 if it must not be answered."""
    weights = policy.weights if policy is not None else None
    if health == Health.HEALTH_PASSING:
        return weights.passing if weights is not None else 1
    if health == Health.HEALTH_WARNING:
        return weights.warning if weights is not None else 1
    return 0


def _of_endpoint(endpoint: Endpoint) -> Iterator[Instance]:
    weight = weight_of(endpoint.dns, endpoint.health_status)
    if weight:
        yield from _instances(endpoint.addresses, endpoint.ports, weight)


def _instances(
    addresses: Sequence[WorkloadAddress], ports: Mapping[str, WorkloadPort], weight: int
) -> Iterator[Instance]:
    # The addresses of the inner network, if there are any: callers of this server are inside it.
    inner = [each for each in addresses if not each.external] or addresses
    for address in inner:
        host = parsed_host(address.host)
        if host is not None:
            named = {name.lower(): ports[name].port for name in address.ports or ports if name in ports}
            numbers = sorted((name, number) for name, number in named.items() if number <= _LARGEST)
            yield Instance(host, tuple(numbers), min(weight, _LARGEST))


def parsed_host(host: str) -> IPAddress | str | None:
    """Return an IP address, a DNS name, or None for a Unix socket and for what DNS cannot carry."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() if _HOST.fullmatch(host) else None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


def addresses_of(workload: Resource[Workload]) -> list[str]:
    """Return the IP addresses of a workload as texts, for the index of reverse names."""
    hosts = {parsed_host(each.host) for each in workload.data.addresses}
    return sorted(str(host) for host in hosts if host is not None and not isinstance(host, str))
