"""A store with the services and workloads of a catalog (examples/catalog), for the scenarios that measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import headway
from catalog.messages import (
    Health,
    HealthStatus,
    Protocol,
    Service,
    ServicePort,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import HEALTH_STATUS, SERVICE, WORKLOAD
from headway.protobuf import encode
from headway.resource import AnyMessage, ResourceType, pb
from headway.storage import MemoryBackend, Put

AT_ONCE = 2000
"""The number of resources in each commit that fills a store."""

_PORTS = {"http": (8080, Protocol.PROTOCOL_HTTP), "mesh": (20000, Protocol.PROTOCOL_MESH)}


async def filled(services: int, workloads: int) -> MemoryBackend:
    """Return a store with services that each select ``workloads`` by a prefix. No controller has seen it yet."""
    backend = MemoryBackend()
    made = list(_operations(services, workloads))
    for begin in range(0, len(made), AT_ONCE):
        await backend.commit(made[begin : begin + AT_ONCE])
    return backend


def service_name(number: int) -> str:
    """Return the name of a service."""
    return f"s{number:05d}"


def workload_name(service: int, number: int) -> str:
    """Return the name of a workload of a service."""
    return f"{service_name(service)}-{number:05d}"


def check(workload: str, health: Health) -> headway.Resource[HealthStatus]:
    """Return the result of the check of a workload."""
    data = HealthStatus(type="http", status=health)
    return HEALTH_STATUS.new(workload, data, owner=WORKLOAD.id(workload))


def _operations(services: int, workloads: int) -> Iterator[Put]:
    ports = [ServicePort(target_port=name, protocol=protocol) for name, (_, protocol) in _PORTS.items()]
    for service in range(services):
        name = service_name(service)
        data = Service(workloads=WorkloadSelector(prefixes=[f"{name}-"]), ports=ports)
        yield put(SERVICE, name, encode(data), service)
        for number in range(workloads):
            text = encode(_workload(name, number))
            yield put(WORKLOAD, workload_name(service, number), text, services + service * workloads + number)


def _workload(service: str, number: int) -> Workload:
    return Workload(
        addresses=[
            WorkloadAddress(host=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"),
            WorkloadAddress(host=f"{service}.example", ports=["mesh"], external=True),
        ],
        ports={name: WorkloadPort(port=port, protocol=protocol) for name, (port, protocol) in _PORTS.items()},
        identity=service,
    )


def put(type: ResourceType[Any], name: str, value: bytes, number: int) -> Put:
    """Return the operation that stores a resource. The number is unique in its store."""
    resource = pb.Resource(
        id=type.id(name, uid=f"01HZ{number:022d}").message(),
        generation=f"01HY{number:022d}",
        data=AnyMessage(type_url=type.type_url, value=value),
    )
    return Put(type.kind, ("default", "default", name), resource, "")


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that this many percent of the values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
