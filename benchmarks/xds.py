"""`xds_memory`, `xds_push`: the xDS server of the mesh (examples/mesh), with proxies in another process.

Each proxy has a connection of its own, 10 clusters with endpoints that other proxies have too, a listener and a route.

`xds_memory` measures the memory that the server takes for each idle proxy: the bytes that Python allocates (by
tracemalloc) from before the proxies connect until all of them have everything.
Against: the limit of 64 KiB. This row does not compare two programs.

`xds_push` measures the processor time of the server for each response to a proxy. The endpoints of one cluster change,
and the proxies that have it, a tenth of all, get them and accept them. Their snapshots are made before.
Against: a service on the same server that encodes the endpoints once for each change, sends them to the same number of
proxies, and reads their answers.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

import headway
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._process import running
from headway.api import Api, Call, Cardinality, Duplex, method
from headway.engine import Extension
from headway.events import ignore
from headway.protobuf import encode
from headway.rpc import Encoded
from mesh.xds import AdsService, Kind, Resource, Snapshot, Snapshots, packed
from mesh.xds import messages as m

LIMIT = 64 << 10
"""The bytes that an idle proxy may take."""

_EACH, _CHANGES = 10, 20


@asynccontextmanager
async def _served(service: Api) -> AsyncIterator[str]:
    """Serve xDS. Yields the address."""
    extension = Extension(open_services=[lambda _: service])
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    app = headway.App("xds")
    async with headway.open_engine("memory:", app, network=network, extensions=[extension], report=ignore) as engine:
        yield engine.addresses[0]


# --- resources ---


def _cluster(number: int) -> Resource:
    config = m.ConfigSource(ads=m.AggregatedConfigSource(), resource_api_version=m.ApiVersion.V3)
    eds = m.ClusterEdsClusterConfig(eds_config=config)
    return Resource.of(m.Cluster(name=f"c{number}", type=m.ClusterDiscoveryType.EDS, eds_cluster_config=eds))


def _assignment(number: int, change: int) -> m.ClusterLoadAssignment:
    """Return 10 endpoints, of which one changes."""
    endpoints = [
        m.LbEndpoint(
            endpoint=m.Endpoint(
                address=m.Address(
                    socket_address=m.SocketAddress(address=f"10.0.{number % 250}.{each}", port_value=20_000)
                )
            ),
            health_status=m.HealthStatus.UNHEALTHY if each == 0 and change % 2 else m.HealthStatus.HEALTHY,
        )
        for each in range(_EACH)
    ]
    return m.ClusterLoadAssignment(cluster_name=f"c{number}", endpoints=[m.LocalityLbEndpoints(lb_endpoints=endpoints)])


def _listener() -> list[Resource]:
    ads = m.ConfigSource(ads=m.AggregatedConfigSource(), resource_api_version=m.ApiVersion.V3)
    manager = m.HttpConnectionManager(stat_prefix="in", rds=m.Rds(config_source=ads, route_config_name="r"))
    chain = m.FilterChain(filters=[m.Filter(name="http", typed_config=packed(manager))])
    return [
        Resource.of(m.Listener(name="in", filter_chains=[chain])),
        Resource.of(m.RouteConfiguration(name="r", virtual_hosts=[m.VirtualHost(name="all", domains=["*"])])),
    ]


class _Fleet:
    """The snapshots of a number of proxies, ten of which share each cluster."""

    def __init__(self, number: int) -> None:
        self.nodes = [f"p{each}" for each in range(number)]
        self._groups = max(1, number // 10)
        self._clusters = [_cluster(each) for each in range(self._groups)]
        self._common = _listener()

    def clusters(self, node: int) -> list[int]:
        """Return the numbers of a proxy's clusters."""
        return [(node + each) % self._groups for each in range(min(_EACH, self._groups))]

    def snapshot(self, node: int, changes: Sequence[int]) -> Snapshot:
        """Return what a proxy has, after a number of changes of each cluster."""
        numbers = self.clusters(node)
        endpoints = [Resource.of(_assignment(each, changes[each])) for each in numbers]
        return Snapshot([*self._common, *(self._clusters[each] for each in numbers), *endpoints])

    @property
    def unchanged(self) -> list[int]:
        """No change of any cluster."""
        return [0] * self._groups


async def _anybody(_: object, __: object) -> None:
    """Let every caller be every node."""


# --- memory ---


def measure_memory(size: int, rounds: int) -> Row:
    """Connect ``size`` proxies."""
    trio.run(_memory, 10)  # allocates whatever a process allocates once
    held, _ = interleaved(lambda: trio.run(_memory, size), lambda: 0.0, rounds)
    return Row("xds_memory", held / size, LIMIT, "bytes", 1.0)


async def _memory(size: int) -> float:
    fleet = _Fleet(size)
    source = Snapshots()
    for node, name in enumerate(fleet.nodes):
        source[name] = fleet.snapshot(node, fleet.unchanged)
    async with _served(AdsService(source, _anybody)) as address:
        gc.collect()
        tracemalloc.start()
        try:
            async with running("_xds_process", address, *fleet.nodes):
                gc.collect()
                return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


# --- pushes ---


def measure_pushes(size: int, rounds: int) -> Row:
    """Change the endpoints of clusters, with ``size`` proxies."""
    ours = collected(lambda: trio.run(_pushes, size))
    against = collected(lambda: trio.run(_sent, size))
    seconds, bare = interleaved(ours, against, rounds)
    return Row("xds_push", seconds * 1e6, bare * 1e6, "us", 2.0)


async def _pushes(size: int) -> float:
    """Return the processor time of the server for each response."""
    fleet = _Fleet(size)
    source = Snapshots()
    changes = fleet.unchanged
    for node, name in enumerate(fleet.nodes):
        source[name] = fleet.snapshot(node, changes)
    of_change: list[list[tuple[str, Snapshot]]] = []
    for change in range(_CHANGES):
        changes[change % len(changes)] += 1
        concerned = [node for node in range(size) if change % len(changes) in fleet.clusters(node)]
        of_change.append([(fleet.nodes[node], fleet.snapshot(node, changes)) for node in concerned])
    number = sum(map(len, of_change))
    async with _served(AdsService(source, _anybody)) as address, running("_xds_process", address, *fleet.nodes) as got:
        before = time.process_time()
        for each in of_change:
            for name, snapshot in each:
                source[name] = snapshot
            await _arrived(got, len(each))
        return (time.process_time() - before) / number


async def _arrived(arrivals: AsyncIterator[str], number: int) -> None:
    """Wait until so many endpoints have arrived."""
    for _ in range(number):
        await anext(arrivals)


class _Bare(Api, service="envoy.service.discovery.v3.AggregatedDiscoveryService"):
    """A service that sends what it is told to send."""

    def __init__(self, first: Sequence[Snapshot]) -> None:
        self._first = list(first)
        self.streams: list[Duplex] = []

    @method("DeltaAggregatedResources", m.DeltaDiscoveryRequest, m.DeltaDiscoveryResponse, Cardinality.STREAM_STREAM)
    async def delta(self, _: Call, stream: Duplex) -> None:
        """Send the first snapshot, and read answers."""
        snapshot = self._first.pop()
        self.streams.append(stream)
        for kind in Kind:
            entries = [each.delta for each in snapshot[kind].values()]
            await self.send(stream, kind, *entries)
        while await stream.recv_message() is not None:
            pass

    async def send(self, stream: Duplex, kind: Kind, *entries: bytes) -> None:
        """Send resources to one proxy."""
        head = encode(m.DeltaDiscoveryResponse(type_url=kind.value, nonce="1"))
        await stream.send_message(Encoded((head, *entries)))


async def _sent(size: int) -> float:
    """Return the processor time of a bare service for each response."""
    fleet = _Fleet(size)
    bare = _Bare([fleet.snapshot(node, fleet.unchanged) for node in range(size)])
    each = max(1, min(_EACH * size // max(1, size // 10), size))
    async with _served(bare) as address, running("_xds_process", address, *fleet.nodes) as got:
        before = time.process_time()
        for change in range(_CHANGES):
            assignment = _assignment(change, change + 1)
            entry = m.Resource(name=assignment.cluster_name, version="1", resource=packed(assignment))
            encoded = encode(m.DeltaDiscoveryResponse(resources=[entry]))
            begin = change * each % size
            chosen = (bare.streams * 2)[begin : begin + each]
            for stream in chosen:
                await bare.send(stream, Kind.ENDPOINTS, encoded)
            await _arrived(got, len(chosen))
        return (time.process_time() - before) / (_CHANGES * each)


ROWS = (
    Scenario("xds_memory", 1.0, measure_memory, size=1_000, rounds=1, quick=400),
    Scenario("xds_push", 2.0, measure_pushes, size=1_000, rounds=3, quick=200),
)
