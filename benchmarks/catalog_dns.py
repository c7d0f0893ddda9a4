"""`dns`, `dns_change`: the DNS server of the catalog (examples/catalog), with a catalog.

`dns` measures the time of one query over UDP on loopback, for a service with three healthy endpoints. A client sends a
batch of queries. The time runs from then on, until the client has read all the answers.
Against: the same client and a loop of `recvfrom` and `sendto` with dnslib, which parses the query, finds three records
in a dict, shuffles them, and packs the answer.

`dns_change` measures how long the change of one workload's health takes to reach a DNS answer, from before the write of
its HealthStatus. 100 workloads change each second, each of another service with 10 workloads. The DNS server is another
process, with its cache over a Unix socket. The row has the 99th percentile. It includes the write, the controllers of
workload health and of endpoints with their writes, the stream, and up to a millisecond until the question is asked
again.
Against: the limit of 20 ms. This row does not compare two programs.
"""

from __future__ import annotations

import random
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

import dnslib
import trio

import headway
from benchmarks._catalog import check, filled, percentile, service_name, workload_name
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._process import running
from catalog import app
from catalog.dns import DNSServer, Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.messages import Health
from headway.events import ignore

HOST = "127.0.0.1"
LIMIT = 0.02
"""The seconds that a change may take."""

_BATCH = 100
_EACH, _INTERVAL, _CHANGES = 10, 0.01, 500


@asynccontextmanager
async def _catalog(services: int, workloads: int) -> AsyncIterator[tuple[headway.Engine, str]]:
    """Run a catalog whose endpoints are current. Yields it and its address."""
    backend = await filled(services, workloads)
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/catalog.sock"
        # As `headway serve` does by default.
        opened = headway.open_engine(backend, app, network=headway.Network([address], insecure=True), report=ignore)
        async with opened as engine:
            await engine.wait_idle()
            yield engine, address


def _query(service: int) -> bytes:
    return bytes(dnslib.DNSRecord.question(f"{service_name(service)}.service.consul", "A").pack())


# --- queries ---


def _queries() -> list[bytes]:
    packet = _query(0)
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
    async with AsyncExitStack() as stack:
        _, address = await stack.enter_async_context(_catalog(1, 3))
        opening = headway.open_cache(address, app, watches=WATCHES, indexes=INDEXES, report=ignore)
        cache = await stack.enter_async_context(opening)
        nursery = await stack.enter_async_context(trio.open_nursery())
        source = Source("consul")
        nursery.start_soon(source.follow, nullcontext(cache), trio.lowlevel.checkpoint)
        while source.zone() is None:  # noqa: ASYNC110  # once
            await trio.sleep(0.001)
        listening = await nursery.start(DNSServer(Responder(source.zone)).run, HOST, 0)
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
    name = f"{service_name(0)}.service.consul."
    records = {name: [dnslib.RR(name, dnslib.QTYPE.A, rdata=dnslib.A(f"10.0.0.{number}")) for number in range(3)]}
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


def measure_changes(size: int, rounds: int) -> Row:
    """Change the health of some of ``size`` workloads."""
    ours = collected(lambda: trio.run(_changes, max(1, size // _EACH)))
    seconds, _ = interleaved(ours, lambda: 0.0, rounds)
    return Row("dns_change", seconds * 1e6, LIMIT * 1e6, "us", 1.0)


async def _changes(services: int) -> float:
    """Return the time of the change at the 99th percentile."""
    number = min(_CHANGES, services)
    begun: dict[int, float] = {}
    taken: list[float] = []
    async with (
        _catalog(services, _EACH) as (engine, address),
        running("_dns_process", address, str(number)) as arrivals,
    ):
        async with trio.open_nursery() as nursery:
            first = trio.current_time()
            for change in range(number):
                await trio.sleep_until(first + change * _INTERVAL)
                begun[change] = time.monotonic()
                broken = check(workload_name(change, 0), Health.HEALTH_CRITICAL)
                nursery.start_soon(engine.client.apply, broken)
        async for line in arrivals:
            service, arrived = line.split()
            taken.append(float(arrived) - begun[int(service)])
    assert len(taken) == number
    return percentile(taken, 99)


ROWS = (
    Scenario("dns", 1.0, measure_queries, size=50_000, rounds=5, quick=5_000),
    # Not in quick runs: the limit is one of wall time, and on a machine that others slow down it reads 0.96 to 1.66.
    Scenario("dns_change", 1.0, measure_changes, size=5_000, rounds=3),
)
