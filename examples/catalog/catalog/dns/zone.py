"""The answer to a question, from the cache. No I/O.

NXDOMAIN: neither the name nor a name below it exists. NODATA (no error and no record): the name exists without a record
of this type, as a service whose workloads are all unhealthy.
"""

from __future__ import annotations

from typing import NamedTuple

import dns.rcode
from dns.rdatatype import ANY, PTR

import headway
from catalog.dns import names
from catalog.dns.answers import Answer
from catalog.dns.instances import Instance, addresses_of, of_endpoints, of_workload, port_names
from catalog.dns.names import Node, Target
from catalog.dns.records import Records
from catalog.messages import Service, ServiceEndpoints, Workload
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD

BY_ADDRESS = headway.indexes.by_many(WORKLOAD, "address", addresses_of)

WATCHES, INDEXES = (SERVICE, SERVICE_ENDPOINTS, WORKLOAD), (BY_ADDRESS,)
"""The types and indexes that the cache of a zone must have."""

_MOST_KEPT = 100_000
"""The most records that are kept encoded."""

REFUSED = Answer(dns.rcode.REFUSED)


class _Kept(NamedTuple):
    versions: tuple[str, str]
    answer: Answer


class Zone:
    """The names of one domain, and the reverse names of its workloads.

    Args:
        cache: has `WATCHES` and `INDEXES`.
        records: makes the answers of the domain.
    """

    def __init__(self, cache: headway.CacheReader, records: Records) -> None:
        self._cache = cache
        self._records = records
        self._domain = tuple(label.decode().lower() for label in self._records.origin.labels[:-1])
        # The answers about services and workloads, each with the versions of its resources.
        self._kept: dict[tuple[Target, int], _Kept] = {}
        self._size = 0

    def find(self, labels: tuple[str, ...], qtype: int) -> Answer:
        """Return the answer to a question about a name in lower case, given by its labels without the root's."""
        depth = len(labels) - len(self._domain)
        if depth >= 0 and labels[depth:] == self._domain:
            meaning = names.parse(labels[:depth])
            if isinstance(meaning, Target):
                return (
                    self._workload(meaning, qtype) if meaning.kind == names.WORKLOAD else self._service(meaning, qtype)
                )
            if meaning is None:
                return self._records.nxdomain()
            if meaning is Node.APEX:
                return self._records.apex(qtype)
            if meaning is Node.SERVER:
                return self._records.server(qtype)
            if isinstance(meaning, Node):
                return self._records.nodata()
            return self._records.of_address(meaning, qtype)
        return self._reverse(labels, qtype) if names.is_reverse(labels) else REFUSED

    def _service(self, target: Target, qtype: int) -> Answer:
        where = {"partition": target.partition, "namespace": target.namespace}
        service = self._cache.get(SERVICE, target.name, **where)
        if service is None:
            return self._records.nxdomain()
        endpoints = self._cache.get(SERVICE_ENDPOINTS, target.name, **where)
        versions = (service.version, endpoints.version if endpoints is not None else "")
        kept = self._kept.get((target, qtype))
        if kept is not None and kept.versions == versions:
            return kept.answer
        ports = _service_ports(service.data)
        instances: list[Instance] = []
        # A service that was created again does not have the endpoints of the first one.
        if endpoints is not None and endpoints.owner is not None and endpoints.owner.uid == service.uid:
            ports |= _endpoint_ports(endpoints.data)
            instances = of_endpoints(endpoints.data)
        return self._keep(target, qtype, versions, self._answer(target, qtype, instances, ports))

    def _workload(self, target: Target, qtype: int) -> Answer:
        workload = self._cache.get(WORKLOAD, target.name, partition=target.partition, namespace=target.namespace)
        if workload is None:
            return self._records.nxdomain()
        versions = (workload.version, "")
        kept = self._kept.get((target, qtype))
        if kept is not None and kept.versions == versions:
            return kept.answer
        answer = self._answer(target, qtype, of_workload(workload), port_names(workload.data.ports))
        return self._keep(target, qtype, versions, answer)

    def _answer(self, target: Target, qtype: int, instances: list[Instance], ports: frozenset[str]) -> Answer:
        if target.between:
            return self._records.nodata()
        if target.port:
            if target.port not in ports:
                return self._records.nxdomain()
            instances = [cut for each in instances if (cut := _at_port(each, target.port)).ports]
        return self._records.of_instances(instances, qtype)

    def _keep(self, target: Target, qtype: int, versions: tuple[str, str], answer: Answer) -> Answer:
        old = self._kept.get((target, qtype))
        self._size += len(answer.records) + 1 - (len(old.answer.records) + 1 if old is not None else 0)
        if self._size > _MOST_KEPT:
            self._kept.clear()
            self._size = len(answer.records) + 1
        self._kept[target, qtype] = _Kept(versions, answer)
        return answer

    def _reverse(self, labels: tuple[str, ...], qtype: int) -> Answer:
        meaning, zone = names.parse_reverse(labels), labels[-2:]
        if len(labels) == len(zone):
            return self._records.apex(qtype, zone)
        if isinstance(meaning, Node):
            return self._records.nodata(zone)
        workloads = self._cache.index(BY_ADDRESS, str(meaning)) if meaning is not None else []
        if not workloads:
            return self._records.nxdomain(zone)
        if qtype not in (PTR, ANY):
            return self._records.nodata(zone)
        healthy = [each for each in workloads if any(it.host == meaning for it in of_workload(each))]
        return self._records.pointers(map(_target, healthy), zone)


def _at_port(instance: Instance, port: str) -> Instance:
    return Instance(instance.host, tuple(each for each in instance.ports if each[0] == port), instance.weight)


def _target(workload: headway.Resource[Workload]) -> Target:
    return Target(names.WORKLOAD, workload.id.partition, workload.id.namespace, workload.name)


def _service_ports(service: Service) -> frozenset[str]:
    return port_names(port.target_port for port in service.ports)


def _endpoint_ports(endpoints: ServiceEndpoints) -> frozenset[str]:
    return port_names(port for endpoint in endpoints.endpoints for port in endpoint.ports)
