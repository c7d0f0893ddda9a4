"""`dns`, `dns_change`: the DNS server of the catalog (examples/catalog), with a catalog in the same process.

`dns` measures the time of one query over UDP on loopback, for a service with three healthy endpoints of different
weights. A client sends a batch of queries. The time runs from then on, until the client has read all the answers.
Against: the same client and a loop of `recvfrom` and `sendto` with dnslib, which parses the query, finds three records
in a dict, shuffles them, and packs the answer.

`dns_change` measures how long a change of one workload's health takes to reach a DNS answer, from before the write of
its HealthStatus. Of 1,000 workloads in 100 services, 100 change each second. The DNS server has its own cache, over a
Unix socket. The row has the 99th percentile. It includes the write, the controllers of workload health and of
endpoints with their writes, the stream, and at most a millisecond until the question is asked again.
Against: the limit of 20 ms. This row does not compare two programs.
"""

from __future__ import annotations

import random
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import dnslib
import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from catalog import app
from catalog.dns import DNSServer, Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.messages import (
    DNSPolicy,
    Health,
    HealthStatus,
    Protocol,
    Service,
    ServicePort,
    Weights,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import HEALTH_STATUS, SERVICE, WORKLOAD

HOST = "127.0.0.1"
LIMIT = 0.02
"""The seconds that a change may take."""

_NAME = "web.service.consul"
_BATCH = 100
_SERVICES, _PER_SERVICE, _A_SECOND = 100, 10, 100


@asynccontextmanager
async def _catalog(workloads: dict[str, list[str]]) -> AsyncIterator[tuple[headway.Engine, Responder]]:
    """Run a catalog with workloads at these addresses, by service, and a responder with a cache of its own."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = f"unix:{folder}/catalog.sock"
        engine = await stack.enter_async_context(headway.open_engine("memory:", app, listen=[address], insecure=True))
        for name, addresses in workloads.items():
            ports = [ServicePort(target_port="http", protocol=Protocol.PROTOCOL_TCP)]
            service = Service(workloads=WorkloadSelector(prefixes=[f"{name}-"]), ports=ports)
            await engine.client.create(SERVICE.new(name, service))
            for number, each in enumerate(addresses):
                await engine.client.create(WORKLOAD.new(f"{name}-{number}", _workload(each, number + 1)))
        await engine.wait_idle()
        client = await stack.enter_async_context(headway.connect(address, app))
        nursery = await stack.enter_async_context(trio.open_nursery())
        source = Source("consul")
        opening = headway.open_cache(address, app, watches=WATCHES, indexes=INDEXES)
        nursery.start_soon(source.follow, opening, lambda: client.get(SERVICE, "none"))
        while source.zone() is None:  # noqa: ASYNC110  # once
            await trio.sleep(0.01)
        yield engine, Responder(source.zone)
        nursery.cancel_scope.cancel()


def _workload(address: str, weight: int) -> Workload:
    return Workload(
        addresses=[WorkloadAddress(host=address)],
        ports={"http": WorkloadPort(port=80, protocol=Protocol.PROTOCOL_TCP)},
        dns=DNSPolicy(weights=Weights(passing=weight, warning=1)),
    )


# --- queries ---


def _queries() -> list[bytes]:
    packet = bytes(dnslib.DNSRecord.question(_NAME, "A").pack())
    return [number.to_bytes(2, "big") + packet[2:] for number in range(_BATCH)]


def _turns(size: int) -> int:
    """Return the number of batches that are measured."""
    return max(1, size // _BATCH)


def _client() -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.bind((HOST, 0))
    client.setblocking(False)
    return client


def _read(client: socket.socket) -> int:
    """Read the answers that have arrived, and return their number. Each has three records."""
    number = 0
    while True:
        try:
            answer = client.recv(4_096)
        except BlockingIOError:
            return number
        assert answer[6:8] == b"\0\3", answer
        number += 1


async def _ours(size: int) -> float:
    async with (
        _catalog({"web": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}) as (_, responder),
        trio.open_nursery() as nursery,
    ):
        listening = await nursery.start(DNSServer(responder).run, HOST, 0)
        queries, taken = _queries(), 0.0
        with _client() as client:
            for turn in range(_turns(size) + 1):
                for each in queries:
                    client.sendto(each, (HOST, listening.port))
                begin, answered = time.perf_counter(), 0
                while answered < _BATCH:
                    await trio.lowlevel.wait_readable(client)
                    answered += _read(client)
                # The first turn is for what the server learns once.
                taken += time.perf_counter() - begin if turn else 0.0
        nursery.cancel_scope.cancel()
    return taken


def _dnslib(size: int) -> float:
    records = {
        f"{_NAME}.": [dnslib.RR(_NAME, dnslib.QTYPE.A, rdata=dnslib.A(f"10.0.0.{number}")) for number in range(3)]
    }
    queries, taken = _queries(), 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, _client() as client:
        server.bind((HOST, 0))
        for turn in range(_turns(size) + 1):
            for each in queries:
                client.sendto(each, server.getsockname())
            begin = time.perf_counter()
            for _ in range(_BATCH):
                packet, sender = server.recvfrom(65_535)
                query = dnslib.DNSRecord.parse(packet)
                reply = query.reply()
                found = list(records[str(query.q.qname)])
                random.shuffle(found)
                reply.add_answer(*found)
                server.sendto(reply.pack(), sender)
            assert _read(client) == _BATCH
            taken += time.perf_counter() - begin if turn else 0.0
    return taken


def measure_queries(size: int, rounds: int) -> Row:
    """Measure queries."""
    ours, against = interleaved(lambda: trio.run(_ours, size), lambda: _dnslib(size), rounds)
    asked = _turns(size) * _BATCH
    return Row("dns", ours / asked * 1e6, against / asked * 1e6, "us", 1.0)


# --- changes ---


async def _slowest(size: int) -> float:
    """Return the seconds of the change at the 99th percentile."""
    services = {
        f"s{each}": [f"10.{each}.0.{number}" for number in range(1, _PER_SERVICE + 1)]
        for each in range(min(_SERVICES, size))
    }
    taken: list[float] = []
    async with _catalog(services) as (engine, responder), trio.open_nursery() as nursery:
        names = [(service, number) for service in services for number in range(_PER_SERVICE)]
        random.Random(1).shuffle(names)
        begin = trio.current_time() + 0.5
        for turn in range(size):
            await trio.sleep_until(begin + turn / _A_SECOND)
            service, number = names[turn % len(names)]
            healthy = turn // len(names) % 2 == 1
            nursery.start_soon(_change, engine, responder, service, number, healthy, taken)
    return sorted(taken)[int(len(taken) * 0.99)]


async def _change(
    engine: headway.Engine, responder: Responder, service: str, number: int, healthy: bool, taken: list[float]
) -> None:
    packet = bytes(dnslib.DNSRecord.question(f"{service}.service.consul", "A").pack())
    address = socket.inet_aton(f"10.{service[1:]}.0.{number + 1}")
    name = f"{service}-{number}"
    health = Health.HEALTH_PASSING if healthy else Health.HEALTH_CRITICAL
    status = HealthStatus(type="bench", status=health)
    begin = time.perf_counter()
    await engine.client.write(HEALTH_STATUS.new(name, status, owner=WORKLOAD.id(name)))
    while (address in (responder.answer(packet) or b"")) != healthy:  # noqa: ASYNC110  # as a client of DNS does
        await trio.sleep(0.001)
    taken.append(time.perf_counter() - begin)


def measure_changes(size: int, rounds: int) -> Row:
    """Measure changes: the median of the rounds' 99th percentiles."""
    ours, against = interleaved(lambda: trio.run(_slowest, size), lambda: LIMIT, rounds)
    return Row("dns_change", ours * 1e6, against * 1e6, "us", 1.0)


ROWS = (
    Scenario("dns", 1.0, measure_queries, size=50_000, rounds=5, quick=5_000),
    Scenario("dns_change", 1.0, measure_changes, size=2_000, rounds=3, quick=300),
)
