"""No resource that the mesh accepts from a user becomes a configuration that a real Envoy refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import catalog
import headway
import mesh
from catalog.messages import (
    Protocol,
    Service,
    ServicePort,
    Workload,
    WorkloadAddress,
    WorkloadPort,
    WorkloadSelector,
)
from catalog.types import SERVICE, WORKLOAD
from headway.errors import InvalidArgument
from mesh.certificates import in_memory
from mesh.control import proxies
from mesh.control.conditions import ANSWERED, KEY
from mesh.messages import Destination, Destinations, IPPortAddress
from mesh.types import DESTINATIONS, PROXY_STATE_TEMPLATE
from tests.mesh.xds.odd import Odd
from tests.mesh.xds.real_envoy import NO_ENVOY, find_envoy, free_port, running

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)]
PORTS = {
    "http": Protocol.PROTOCOL_HTTP,
    "tcp": Protocol.PROTOCOL_TCP,
    "grpc": Protocol.PROTOCOL_GRPC,
    "mesh": Protocol.PROTOCOL_MESH,
}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[headway.Engine]:
    """Run a mesh and the proxy of ``web-1``, which reaches two ports of ``api``."""
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    extensions = [proxies(in_memory())]
    opened = headway.open_engine("memory:", catalog.app, mesh.app, network=network, extensions=extensions)
    async with opened as engine:
        for name in ("api", "other", "web"):
            ports = [ServicePort(target_port=port, protocol=protocol) for port, protocol in PORTS.items()]
            selector = WorkloadSelector(prefixes=[f"{name}-"])
            await engine.client.apply(SERVICE.new(name, Service(workloads=selector, ports=ports)))
            workload = Workload(
                addresses=[WorkloadAddress(host="127.0.0.1")],
                ports={port: WorkloadPort(port=free_port(), protocol=protocol) for port, protocol in PORTS.items()},
                identity=name,
            )
            await engine.client.apply(WORKLOAD.new(f"{name}-1", workload))
        reached = [
            Destination(
                destination_ref=SERVICE.id("api").reference(),
                destination_port=port,
                ip_port=IPPortAddress(ip="127.0.0.1", port=free_port()),
            )
            for port in ("http", "tcp")
        ]
        data = Destinations(workloads=WorkloadSelector(names=["web-1"]), destinations=reached)
        await engine.client.apply(DESTINATIONS.new("web", data))
        async with running(folder, engine.addresses[0], "web-1"):
            assert await answer(engine) == ""
            yield engine


async def answer(engine: headway.Engine) -> str:
    """Wait until the proxy has answered. Return its words about what it has rejected."""
    with trio.fail_after(20):
        while True:
            await engine.wait_idle()
            template = await engine.client.read(PROXY_STATE_TEMPLATE, "web-1")
            status = template.status.get(KEY)
            for each in status.conditions if status is not None else ():
                is_current = status is not None and status.observed_generation == template.generation
                if is_current and each.type == ANSWERED and each.state.name != "UNKNOWN":
                    return "" if each.state.name == "TRUE" else each.message
            await trio.sleep(0.005)


async def test_whatever_users_may_store_is_accepted_by_the_proxy(tmp_path: Path) -> None:
    """Patterns, headers, times, sizes and names at and beyond their bounds. Wrong ones are refused before."""
    odd, stored = Odd(20), 0
    async with served(tmp_path) as engine:
        for _ in range(600):
            resource = odd.resource()
            try:
                await engine.client.apply(resource)
            except InvalidArgument:
                continue
            stored += 1
            assert await answer(engine) == "", resource.data
    assert stored > 100


async def test_destination_without_a_workload_is_a_cluster_that_trusts_nobody(tmp_path: Path) -> None:
    """The proxy takes it: if not, it would go on with the cluster before, and its identities."""
    async with served(tmp_path) as engine:
        await engine.client.delete(WORKLOAD.id("api-1"))
        assert await answer(engine) == ""
        template = await engine.client.read(PROXY_STATE_TEMPLATE, "web-1")
        assert template.data.proxy_state is not None
        assert "spiffe_ids=['" not in repr(template.data.proxy_state.clusters)
