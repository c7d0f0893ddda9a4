"""A proxy in memory: it subscribes, takes what it gets, and rejects what it is told to reject."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio

from headway.api import Call
from headway.protobuf import decode
from mesh.xds import Kind
from mesh.xds import messages as m

TYPES: dict[Kind, Any] = {
    Kind.SECRET: m.Secret,
    Kind.CLUSTER: m.Cluster,
    Kind.ENDPOINTS: m.ClusterLoadAssignment,
    Kind.LISTENER: m.Listener,
    Kind.ROUTE: m.RouteConfiguration,
}


class Service(Protocol):
    """A service, or what stands around it."""

    async def delta(self, call: Call, stream: Any, /) -> None: ...


class Sidecar:
    """One stream of a proxy that subscribes everything, or some types. It is its own stream, as the service sees it.

    Attributes:
        has: the resources that it has, decoded, by type and name.
        responses: how many responses it got.
        rejects: the types and names to reject, with the words.
        error: what has ended the stream.
    """

    def __init__(self, node: str, asks: Iterable[Kind] = Kind) -> None:
        self._out, self._requests = trio.open_memory_channel[m.DeltaDiscoveryRequest](1000)
        self._changed = trio.Event()
        self._node = node
        self.has: dict[Kind, dict[str, Any]] = {kind: {} for kind in Kind}
        self.responses = 0
        self.rejects: dict[tuple[Kind, str], str] = {}
        self.error: Exception | None = None
        self.ended = trio.Event()
        for kind in asks:
            self.ask(kind)

    def ask(self, kind: Kind) -> None:
        """Subscribe all resources of a type."""
        node = m.Node(id=self._node)
        self._out.send_nowait(m.DeltaDiscoveryRequest(node=node, type_url=kind.value, resource_names_subscribe=["*"]))

    async def recv_message(self) -> m.DeltaDiscoveryRequest | None:
        try:
            return await self._requests.receive()
        except trio.EndOfChannel:
            return None

    async def send_message(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        # The first piece is the frame of gRPC.
        response = decode(m.DeltaDiscoveryResponse, b"".join(message.pieces[1:]))
        kind = Kind(response.type_url)
        bad = [each.name for each in response.resources if (kind, each.name) in self.rejects]
        answer = m.DeltaDiscoveryRequest(type_url=kind.value, response_nonce=response.nonce)
        if bad:
            answer.error_detail = m.Status(code=3, message=self.rejects[kind, bad[0]])
        for each in response.resources:
            if each.name not in bad and each.resource is not None:
                self.has[kind][each.name] = decode(TYPES[kind], each.resource.value)
        for name in response.removed_resources:
            self.has[kind].pop(name, None)
        self.responses += 1
        self._out.send_nowait(answer)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what it has is as expected."""
        with trio.fail_after(10):
            while not condition():
                self._changed = trio.Event()
                await self._changed.wait()

    def close(self) -> None:
        """End the stream from the proxy's side."""
        self._out.close()

    @classmethod
    @asynccontextmanager
    async def connected(
        cls, service: Service, node: str, call: Call | None = None, asks: Iterable[Kind] = Kind
    ) -> AsyncIterator[Sidecar]:
        """Open a stream for the block."""
        one = cls(node, asks)

        async def serve() -> None:
            try:
                await service.delta(call or Call(), one)
            except Exception as error:  # noqa: BLE001  # looked at by the test
                one.error = error
            one.ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield one
            one.close()
            await one.ended.wait()
