"""`xds_change`: how long the change of one workload's health takes to reach the proxies of a mesh (examples/mesh).

From before the write of its HealthStatus until the proxies that have its service as a destination have the endpoints.
100 workloads change each second, each of another service with 10 workloads. A tenth of the workloads have a connected
proxy, with 10 destinations each, so 10 proxies get each change. All proxies are in another process, each with a
connection of its own. The row has the 99th percentile of all arrivals. It includes the write, the controllers of
workload health and of endpoints with their writes, and the response to each proxy.
Against: the limit of 50 ms. This row does not compare two programs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

import catalog
import headway
import mesh
from benchmarks._catalog import AT_ONCE, check, filled, percentile, put, service_name, workload_name
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._process import running
from catalog.messages import Health, WorkloadSelector
from catalog.types import SERVICE
from headway.events import ignore
from headway.protobuf import encode
from mesh.certificates import in_memory
from mesh.control import proxies
from mesh.messages import Destination, Destinations, IPPortAddress
from mesh.types import DESTINATIONS

LIMIT = 0.05
"""The seconds that a change may take."""

_EACH, _INTERVAL, _CHANGES = 10, 0.01, 500
"""The workloads of each service and the destinations of each proxy, the seconds between changes, and their number."""


@asynccontextmanager
async def _mesh(services: int) -> AsyncIterator[headway.Engine]:
    """Run a mesh whose templates are current. Yields its engine."""
    backend = await filled(services, _EACH)
    made = []
    for service in range(services):
        destinations = [
            Destination(
                destination_ref=SERVICE.id(service_name((service + each) % services)).reference(),
                destination_port="http",
                ip_port=IPPortAddress(ip="127.0.0.1", port=9_000 + each),
            )
            for each in range(1, 1 + min(_EACH, services))
        ]
        data = Destinations(workloads=WorkloadSelector(names=[workload_name(service, 0)]), destinations=destinations)
        made.append(put(DESTINATIONS, service_name(service), encode(data), services * (_EACH + 1) + service))
    for begin in range(0, len(made), AT_ONCE):
        await backend.commit(made[begin : begin + AT_ONCE])
    opened = headway.open_engine(
        backend,
        catalog.app,
        mesh.app,
        network=headway.Network(["127.0.0.1:0"], insecure=True),
        extensions=[proxies(in_memory())],
        report=ignore,
    )
    async with opened as engine:
        await engine.wait_idle()
        yield engine


def measure(size: int, rounds: int) -> Row:
    """Change the health of some of ``size`` workloads."""
    ours = collected(lambda: trio.run(_changes, max(1, size // _EACH)))
    seconds, _ = interleaved(ours, lambda: 0.0, rounds)
    return Row("xds_change", seconds * 1e6, LIMIT * 1e6, "us", 1.0)


async def _changes(services: int) -> float:
    """Return the time of the arrival at the 99th percentile."""
    number = min(_CHANGES, services)
    begun: dict[str, float] = {}
    taken: list[float] = []
    nodes = [workload_name(service, 0) for service in range(services)]
    left = Counter({service_name(change): min(_EACH, services) for change in range(number)})

    async def note(arrivals: AsyncIterator[str]) -> None:
        while left.total():
            cluster, arrived = (await anext(arrivals)).split()
            service = cluster.split(".")[1]
            left[service] -= 1
            taken.append(float(arrived) - begun[service])

    async with (
        _mesh(services) as engine,
        running("_xds_process", engine.addresses[0], *nodes) as arrivals,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(note, arrivals)
        first = trio.current_time()
        for change in range(number):
            await trio.sleep_until(first + change * _INTERVAL)
            begun[service_name(change)] = time.monotonic()
            broken = check(workload_name(change, 1), Health.HEALTH_CRITICAL)
            nursery.start_soon(engine.client.apply, broken)
    return percentile(taken, 99)


# Not in quick runs: the limit is one of wall time.
ROWS = (Scenario("xds_change", 1.0, measure, size=10_000, rounds=1),)
