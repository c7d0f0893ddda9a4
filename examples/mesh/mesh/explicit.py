"""The destinations of a workload: which are valid, and which have an address that another one has, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import headway
from catalog import metadata_filter
from catalog.checks.references import service_id
from catalog.computed import condition, id_text
from catalog.messages import Protocol, Service, Workload
from catalog.ports import find_port
from catalog.selecting import selected_paths, workload_path
from headway.protobuf import copy_message
from mesh.messages import ComputedRoutes, Destination, Destinations
from mesh.routing.binding import mesh_port_of
from mesh.types import DESTINATIONS

Found = tuple[Service | None, ComputedRoutes | None]
"""A service and its computed routes, as far as they exist."""

KEY = "consul.io/explicit-mapper-controller"
"""The key of the status on destinations."""

BY_SELECTED = headway.indexes.by_many(
    DESTINATIONS, "selected-workloads", lambda each: selected_paths(each.id, each.data.workloads)
)
"""The destinations by the names and prefixes that they select."""

_NAMED = 10
"""The number of other resources that a condition names."""


def address(destination: Destination) -> str:
    """Return the address that the proxy listens on for a destination, as text."""
    if destination.ip_port is not None:
        return f"{destination.ip_port.ip}:{destination.ip_port.port}"
    return destination.unix.path if destination.unix is not None else ""


def addresses(resource: headway.Resource[Destinations]) -> set[str]:
    """Return the addresses of a resource."""
    return {address(each) for each in resource.data.destinations}


def selects(destinations: headway.Resource[Destinations], workload: headway.Resource[Workload]) -> bool:
    """Return True if a resource selects a workload."""
    selector = destinations.data.workloads
    path = workload_path(workload)
    if selector is None or not any(map(path.startswith, selected_paths(destinations.id, selector))):
        return False
    return not selector.filter or metadata_filter.parse(selector.filter)(workload.metadata)


def selecting(workload: headway.Resource[Workload], cache: headway.CacheReader) -> list[headway.Resource[Destinations]]:
    """Return the destinations that select a workload, sorted by name."""
    by_name = cache.index_parents(BY_SELECTED, workload_path(workload))
    return sorted((each for each in by_name if selects(each, workload)), key=lambda each: each.name)


def services(destinations: headway.Resource[Destinations]) -> list[headway.ResourceId]:
    """Return the services that destinations name, each once."""
    refs = (each.destination_ref for each in destinations.data.destinations)
    return list(dict.fromkeys(service_id(ref, destinations.id) for ref in refs if ref is not None))


def conflicting(together: Sequence[headway.Resource[Destinations]]) -> set[str]:
    """Return the names of the resources with an address that occurs twice among resources of one workload."""
    counts = Counter(address(each) for resource in together for each in resource.data.destinations)
    return {
        resource.name for resource in together if any(counts[address(each)] > 1 for each in resource.data.destinations)
    }


def repeats_an_address(destinations: Destinations) -> bool:
    """Return True if two destinations of one resource have one address."""
    found = [address(each) for each in destinations.destinations]
    return len(set(found)) < len(found)


class Validity:
    """The destinations of a resource with their target ports, and the first fault among them, if there is one."""

    def __init__(self, resource: headway.Resource[Destinations], found: dict[headway.ResourceId, Found]) -> None:
        self.destinations: list[Destination] = []
        self.reason, self.message = "AllDestinationServicesValid", "all destination services are valid"
        for each in resource.data.destinations:
            if each.destination_ref is None:
                continue
            id = service_id(each.destination_ref, resource.id)
            service, routes = found.get(id, (None, None))
            port, fault = _target_port(each.destination_port, service, routes)
            if fault:
                self.reason, self.message = fault, f"{each.destination_port} on {id_text(id)}: {_MESSAGES[fault]}"
                self.destinations = []
                return
            valid = copy_message(each)
            valid.destination_port = port
            self.destinations.append(valid)

    @property
    def is_valid(self) -> bool:
        """True if every destination is valid."""
        return self.reason == "AllDestinationServicesValid"


_MESSAGES = {
    "ServiceNotFound": "the service does not exist",
    "MeshPortProtocolNotFound": "the service has no mesh port",
    "DestinationWithMeshPortProtocol": "the port is the mesh port",
    "ComputedRoutesNotFound": "the service has no computed routes",
    "ComputedRoutesPortNotFound": "the computed routes of the service have no such port",
}


def _target_port(port: str, service: Service | None, routes: ComputedRoutes | None) -> tuple[str, str]:
    """Return the target port that a port id means, and the reason why it cannot be used, or an empty one."""
    if service is None:
        return "", "ServiceNotFound"
    if not mesh_port_of(service):
        return "", "MeshPortProtocolNotFound"
    found = find_port(service, port)
    if found is not None and found.protocol == Protocol.PROTOCOL_MESH:
        return "", "DestinationWithMeshPortProtocol"
    if routes is None:
        return "", "ComputedRoutesNotFound"
    if found is None or found.target_port not in routes.ported_configs:
        return "", "ComputedRoutesPortNotFound"
    return found.target_port, ""


def conditions(validity: Validity, *, repeats: bool, others: Iterable[str]) -> Iterator[headway.Condition]:
    """Yield the conditions of destinations.

    Args:
        repeats: True if two destinations of the resource have one address.
        others: the names of other resources that have an address of the resource for a workload of both.
    """
    named = sorted(others)
    if repeats or named:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        text = f"an address is used twice, here or in: {', '.join(named[:_NAMED])}{more}" if named else _TWICE
        yield condition("ConflictFound", True, text, "ConflictingListenAddress")
        return
    yield condition("ConflictFound", False, "all listen addresses are unique", "AllListenAddressesAreUnique")
    yield condition("DestinationsAccepted", validity.is_valid, validity.message, validity.reason)


_TWICE = "an address is used twice here"
