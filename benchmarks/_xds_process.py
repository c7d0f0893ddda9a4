"""``python -m benchmarks._xds_process ADDRESS NODE...``: the process of the proxies in the benchmarks of xDS.

Each node has a connection of its own, subscribes as an Envoy does, and accepts all that it gets. The process prints a
line when all nodes have everything. From then on, it prints the name of all endpoints that arrive and the time, by the
monotonic clock that all processes share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import trio

from benchmarks._process import READY
from headway.protobuf import decode
from headway.rpc import open_channel
from mesh.xds import Kind, Resource
from mesh.xds import messages as m

PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
_MESSAGES: dict[Kind, Any] = {Kind.CLUSTER: m.Cluster, Kind.LISTENER: m.Listener}
# A server has a limit for the connections of one peer that are in their handshakes.
_AT_ONCE = 50


class Proxies:
    """The proxies of this process.

    Attributes:
        ready: set when each of them has everything.
    """

    def __init__(self, number: int) -> None:
        self.ready = trio.Event()
        self._opening = trio.Semaphore(_AT_ONCE)
        self._number = number

    async def run(self, address: str, node: str) -> None:
        """Be one proxy, until canceled."""
        async with AsyncExitStack() as stack:
            async with self._opening:
                opening = open_channel(address, insecure=True, decoders={PATH: lambda: _responses})
                channel = await stack.enter_async_context(opening)
                first = m.DeltaDiscoveryRequest(node=m.Node(id=node), type_url=Kind.CLUSTER.value)
                call = await stack.enter_async_context(channel.duplex(PATH, first))
                await call.send(m.DeltaDiscoveryRequest(type_url=Kind.LISTENER.value))
            await self._follow(call)

    async def _follow(self, call: Any) -> None:
        missing: set[tuple[Kind, str]] = set()
        seen = set[Kind]()
        asked = set[tuple[Kind, str]]()
        is_ready = False
        async for response in call:
            kind = Kind(response.type_url)
            seen.add(kind)
            missing -= {(kind, each.name) for each in response.resources}
            if self.ready.is_set() and kind is Kind.ENDPOINTS:
                arrived = time.monotonic()
                for each in response.resources:
                    print(each.name, arrived)
            answer = m.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
            await call.send(answer)
            if kind in _MESSAGES:
                needs = {need for each in response.resources for need in _needs(kind, each)} - asked
                asked |= needs
                missing |= needs
                for of in {of for of, _ in needs}:
                    names = sorted(name for each, name in needs if each is of)
                    await call.send(m.DeltaDiscoveryRequest(type_url=of.value, resource_names_subscribe=names))
            if not is_ready and not missing and seen >= {Kind.CLUSTER, Kind.LISTENER}:
                is_ready = True
                self._number -= 1
                if not self._number:
                    self.ready.set()


def _responses(bodies: Sequence[Any]) -> list[m.DeltaDiscoveryResponse]:
    return [decode(m.DeltaDiscoveryResponse, bytes(each)) for each in bodies]


def _needs(kind: Kind, resource: m.Resource) -> frozenset[tuple[Kind, str]]:
    assert resource.resource is not None
    return Resource.of(decode(_MESSAGES[kind], resource.resource.value)).needs


async def main(address: str, nodes: Sequence[str]) -> None:
    """Run the proxies."""
    proxies = Proxies(len(nodes))
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(proxies.run, address, node)
        await proxies.ready.wait()
        print(READY, flush=True)
        while True:
            # A line for each arrival, but not a write for each.
            await trio.sleep(0.05)
            sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2:])
