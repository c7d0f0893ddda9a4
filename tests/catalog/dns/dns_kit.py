"""A catalog in this process, and a DNS server that answers from it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

import dns.message
import dns.rcode
import dns.rdatatype
import trio

import headway
from catalog import app
from catalog.dns import Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.messages import (
    DNSPolicy,
    Endpoint,
    Health,
    HealthStatus,
    Protocol,
    Service,
    ServiceEndpoints,
    ServicePort,
    Weights,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import HEALTH_STATUS, SERVICE, SERVICE_ENDPOINTS, WORKLOAD

PATIENCE = 30.0
PASSING, WARNING, CRITICAL = Health.HEALTH_PASSING, Health.HEALTH_WARNING, Health.HEALTH_CRITICAL
TCP = Protocol.PROTOCOL_TCP


def query(name: str, type: str = "A", *, edns: int | None = None) -> bytes:
    """Return a query."""
    options: dict[str, Any] = {} if edns is None else {"use_edns": 0, "payload": edns}
    return dns.message.make_query(name, type, **options).to_wire()


def address(host: str, *ports: str, external: bool = False) -> WorkloadAddress:
    """Return an address, which serves all ports if none are given."""
    return WorkloadAddress(host=host, ports=list(ports), external=external)


def ports(numbers: Mapping[str, int]) -> dict[str, WorkloadPort]:
    """Return TCP ports."""
    return {name: WorkloadPort(port=number, protocol=TCP) for name, number in numbers.items()}


def weights(passing: int, warning: int = 1) -> DNSPolicy:
    """Return a DNS policy."""
    return DNSPolicy(weights=Weights(passing=passing, warning=warning))


def endpoint(
    *hosts: str | WorkloadAddress,
    health: Health = PASSING,
    dns: DNSPolicy | None = None,
    numbers: Mapping[str, int] | None = None,
) -> Endpoint:
    """Return an endpoint without a workload."""
    addresses = [address(each) if isinstance(each, str) else each for each in hosts]
    return Endpoint(addresses=addresses, ports=ports(numbers or {"http": 80}), health_status=health, dns=dns)


class Catalog:
    """A client that writes to a catalog, and a DNS server that answers from it."""

    def __init__(self, client: headway.Client, cache: headway.notify.PrimedCache, source: Source) -> None:
        self.client = client
        self.cache = cache
        self.source = source
        self.responder = Responder(source.zone, random.Random(1))

    async def endpoints(
        self, name: str, *endpoints: Endpoint, partition: str = "", namespace: str = ""
    ) -> headway.Resource[Service]:
        """Write a service without a selector, and its endpoints by hand."""
        data = Service(ports=[ServicePort(target_port="http", protocol=TCP)])
        service = await self.client.apply(SERVICE.new(name, data, partition=partition, namespace=namespace))
        data_of_endpoints = ServiceEndpoints(endpoints=list(endpoints))
        found = SERVICE_ENDPOINTS.new(
            name, data_of_endpoints, owner=service.id, partition=partition, namespace=namespace
        )
        await self.seen(await self.client.apply(found))
        return service

    async def select(self, name: str, *prefixes: str, port: str = "http") -> None:
        """Write a service that selects workloads."""
        data = Service(
            workloads=WorkloadSelector(prefixes=list(prefixes)), ports=[ServicePort(target_port=port, protocol=TCP)]
        )
        await self.client.apply(SERVICE.new(name, data))

    async def workload(
        self, name: str, *hosts: str | WorkloadAddress, dns: DNSPolicy | None = None
    ) -> headway.Resource[Workload]:
        """Write a workload."""
        addresses = [address(each) if isinstance(each, str) else each for each in hosts]
        data = Workload(addresses=addresses, ports=ports({"http": 80}), dns=dns)
        return await self.client.apply(WORKLOAD.new(name, data))

    async def check(self, workload: headway.Resource[Workload], health: Health) -> None:
        """Write the result of a check of a workload."""
        data = HealthStatus(type="test", status=health)
        await self.client.apply(HEALTH_STATUS.new(f"{workload.name}-check", data, owner=workload.id))

    async def seen(self, resource: headway.Resource[Any]) -> None:
        """Wait until the DNS server has a resource."""
        await self.cache.wait_for(resource)

    def ask(self, name: str, type: str = "A", *, edns: int | None = None, tcp: bool = False) -> dns.message.Message:
        """Return the answer to a question."""
        packet = self.responder.answer(query(name, type, edns=edns), tcp=tcp)
        assert packet is not None
        return dns.message.from_wire(packet)

    async def until(self, name: str, wanted: Iterable[str], type: str = "A") -> None:
        """Ask until the answer has these records, in any order."""
        expected = sorted(wanted)
        await poll(lambda: texts(self.ask(name, type)) == expected)

    async def until_outcome(self, name: str, wanted: str) -> None:
        """Ask until the answer has this outcome."""
        await poll(lambda: outcome(self.ask(name)) == wanted)


@asynccontextmanager
async def open_catalog(*, ttl: int = 0, domain: str = "consul") -> AsyncIterator[Catalog]:
    """Run a catalog in memory, and a DNS server for the domain."""
    source = Source(domain, ttl=ttl)
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        engine = await stack.enter_async_context(headway.open_engine("memory:", app))
        cache = await stack.enter_async_context(engine.open_cache(watches=WATCHES, indexes=INDEXES))
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(source.follow, nullcontext(cache), lambda: engine.client.get(SERVICE, "none"))
        await poll(lambda: source.zone() is not None)
        yield Catalog(engine.client, cache, source)
        nursery.cancel_scope.cancel()


async def poll(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110  # whatever it is about
        await trio.sleep(0.005)


def texts(message: dns.message.Message) -> list[str]:
    """Return the data of the records of an answer, sorted."""
    return sorted(str(each) for group in message.answer for each in group)


def outcome(message: dns.message.Message) -> str:
    """Return NODATA for an answer without a record, and else the name of the result."""
    name = dns.rcode.to_text(message.rcode())
    return "NODATA" if name == "NOERROR" and not message.answer else name
