"""The AggregatedDiscoveryService: for each stream a few tasks around the core.

A `Source` has the snapshot of each proxy. `authenticate` decides whether a caller may be a proxy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from headway.api import Api, Call, Cardinality, Duplex, Interrupted, method
from headway.errors import HeadwayError, InvalidArgument, RateLimited
from headway.rpc import Encoded
from mesh.xds.messages import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Node,
)
from mesh.xds.protocol import DeltaStream, Rejection, WholeStream
from mesh.xds.resources import Kind, Snapshot

Authenticate = Callable[[Call, Node], Awaitable[None]]
"""Raises Unauthenticated or PermissionDenied unless the caller of a stream may be this node."""


@dataclass(frozen=True)
class Limits:
    """The limits of an `AdsService`.

    Attributes:
        streams: the maximum number of open streams. Beyond it a proxy is told to try again.
        opening: how many streams are authenticated and get their first snapshot at once. The others wait.
        first_request: the seconds within which a stream must send its first request.
        recheck: the seconds after which an open stream is authenticated again.
    """

    streams: int = 5_000
    opening: int = 64
    first_request: float = 15.0
    recheck: float = 300.0


class Answers(Protocol):
    """What a proxy has answered until now."""

    @property
    def rejected(self) -> Mapping[Kind, Mapping[str, str]]:
        """The versions that it has rejected, by type and name."""
        ...

    def accepted(self, kind: Kind, name: str) -> str | None:
        """Return the version of a resource that it has accepted last; None if it does not ask for it."""
        ...


Publish = Callable[[Snapshot | HeadwayError], None]
"""Gives a stream its next snapshot, or the error with which it ends."""


@dataclass(frozen=True)
class Feedback:
    """The callbacks of a source about one stream.

    Attributes:
        rejected: called with each response that the proxy has rejected.
        synced: called with its answers when the proxy has accepted or rejected all that it asks for. It may be called
            again without a change, and the proxy may ask for more later.
    """

    rejected: Callable[[Rejection], None] = lambda _: None
    synced: Callable[[Answers], None] = lambda _: None


class Source(Protocol):
    """A source of the snapshots of proxies."""

    def open(self, node: Node, publish: Publish) -> AbstractAsyncContextManager[Feedback]:
        """Call ``publish`` with each snapshot of a node, within a block that lasts as long as its stream.

        An error in place of a snapshot ends the stream.

        A node may have two streams for a while: a proxy may connect anew before the end of its last stream is known.
        Nothing is sent to a proxy without a snapshot, so that it keeps what it has.
        """
        ...


class Snapshots:
    """A source in memory.

    Attributes:
        rejections: the last rejection of each node.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Snapshot] = {}
        self._streams: dict[str, list[Publish]] = {}
        self.rejections: dict[str, Rejection] = {}

    def __setitem__(self, node: str, snapshot: Snapshot) -> None:
        """Give a node its next snapshot."""
        self._latest[node] = snapshot
        for publish in self._streams.get(node, ()):
            publish(snapshot)

    def streams(self, node: str) -> int:
        """Return how many streams a node has open."""
        return len(self._streams.get(node, ()))

    @asynccontextmanager
    async def open(self, node: Node, publish: Publish) -> AsyncIterator[Feedback]:
        """Publish the snapshots of a node to one stream."""
        streams = self._streams.setdefault(node.id, [])
        streams.append(publish)
        try:
            if node.id in self._latest:
                publish(self._latest[node.id])
            yield Feedback(rejected=lambda rejection: self.rejections.__setitem__(node.id, rejection))
        finally:
            # Only this stream's entry: a newer stream of the node may have its own.
            streams.remove(publish)
            if not streams:
                self._streams.pop(node.id, None)


class Admission:
    """The open streams of a server.

    Attributes:
        limits: the limits.
        opening: limits the streams that begin at once.
        open_streams: the number of open streams.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.opening = trio.CapacityLimiter(limits.opening)
        self.open_streams = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a stream while the block runs. Raise RateLimited if there are too many."""
        if self.open_streams >= self.limits.streams:
            raise RateLimited(f"{self.open_streams} streams are open, and no more are allowed: try another server", 5.0)
        self.open_streams += 1
        try:
            yield
        finally:
            self.open_streams -= 1


class AdsService(Api, service="envoy.service.discovery.v3.AggregatedDiscoveryService"):
    """The service that Envoy and gRPC clients call for their configuration.

    Args:
        source: the snapshots of proxies.
        authenticate: decides whether a caller may be a node. It is asked at the beginning of a stream and every
            ``limits.recheck`` seconds.
        limits: the limits, or what counts against them, if a server makes a service for each caller.
    """

    def __init__(self, source: Source, authenticate: Authenticate, limits: Limits | Admission | None = None) -> None:
        self._source = source
        self._authenticate = authenticate
        self._admission = limits if isinstance(limits, Admission) else Admission(limits or Limits())

    @property
    def limits(self) -> Limits:
        """The limits."""
        return self._admission.limits

    @property
    def open_streams(self) -> int:
        """The number of open streams."""
        return self._admission.open_streams

    @method("DeltaAggregatedResources", DeltaDiscoveryRequest, DeltaDiscoveryResponse, Cardinality.STREAM_STREAM)
    async def delta(self, call: Call, stream: Duplex) -> None:
        """Serve a proxy that gets differences."""
        await self._serve(call, stream, DeltaStream())

    @method("StreamAggregatedResources", DiscoveryRequest, DiscoveryResponse, Cardinality.STREAM_STREAM)
    async def whole(self, call: Call, stream: Duplex) -> None:
        """Serve a proxy that gets the state of the world."""
        await self._serve(call, stream, WholeStream())

    async def _serve(self, call: Call, stream: Duplex, state: DeltaStream | WholeStream) -> None:
        with self._admission.one():
            first: Any = None
            with trio.move_on_after(self.limits.first_request):
                first = await stream.recv_message()
            if first is None or first.node is None or not first.node.id:
                raise InvalidArgument(
                    f"node.id: missing: the first request must name the node, within {self.limits.first_request:g} s"
                )
            # The rest of it may take 30 KB, and a stream may be open for months.
            node = Node(id=first.node.id, cluster=first.node.cluster, metadata=first.node.metadata)
            await _Served(self, call, stream, state, node).run(first)

    async def enter(self, stack: AsyncExitStack, call: Call, node: Node, publish: Publish) -> Feedback:
        """Authenticate a node and open its snapshots. Few streams do so at once when thousands connect anew."""
        async with self._admission.opening:
            await self._authenticate(call, node)
            return await stack.enter_async_context(self._source.open(node, publish))

    async def check(self, call: Call, node: Node) -> None:
        """Authenticate a node again."""
        await self._authenticate(call, node)


class _Served:
    """One stream: a task that reads, one that sends what the core has to send, and one that authenticates again."""

    __slots__ = ("_call", "_due", "_end", "_feedback", "_node", "_service", "_state", "_stream")

    def __init__(
        self, service: AdsService, call: Call, stream: Duplex, state: DeltaStream | WholeStream, node: Node
    ) -> None:
        self._service = service
        self._call = call
        self._stream = stream
        self._state = state
        self._node = node
        self._due = trio.Event()
        self._end: HeadwayError | None = None
        self._feedback = Feedback()

    async def run(self, first: Any) -> None:
        """Serve the stream until the proxy ends it, or an error."""
        failed: list[Exception] = []
        async with AsyncExitStack() as stack:
            self._feedback = await self._service.enter(stack, self._call, self._node, self._publish)
            self._take(first)
            del first
            async with trio.open_nursery() as nursery:

                async def until_end(part: Callable[[], Awaitable[None]]) -> None:
                    # The first error ends the call, and not a group of them.
                    try:
                        await part()
                    except Exception as error:  # noqa: BLE001  # raised below
                        failed.append(error)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(until_end, self._receive)
                nursery.start_soon(until_end, self._check)
                await until_end(self._send)
        # A proxy that goes away is no error.
        if failed and not isinstance(failed[0], Interrupted):
            raise failed[0]

    def _publish(self, given: Snapshot | HeadwayError) -> None:
        if isinstance(given, Snapshot):
            self._state.publish(given)
        else:
            self._end = given
        self._due.set()

    async def _receive(self) -> None:
        while (request := await self._stream.recv_message()) is not None:
            self._take(request)
            self._due.set()

    async def _send(self) -> None:
        while True:
            self._due = trio.Event()
            if self._end is not None:
                raise self._end
            while (response := self._state.take()) is not None:
                await self._stream.send_message(Encoded(response.pieces))
            # Only here: an answer or a snapshot may make something due, until `take` finds that there is nothing.
            if self._state.synced:
                self._feedback.synced(self._state)
            await self._due.wait()

    async def _check(self) -> None:
        # Apart from the sending, which may wait for a proxy that never reads.
        while True:
            await trio.sleep(self._service.limits.recheck)
            await self._service.check(self._call, self._node)

    def _take(self, request: Any) -> None:
        # The two variants differ in their requests, and each stream has one of them.
        rejection = self._state.request(request)
        if rejection is not None:
            self._feedback.rejected(rejection)
