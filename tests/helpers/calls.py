"""A caller of the service that sends raw messages, in process or over the network."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import pytest
from grpclib.const import Status

from headway._gen.headway.lease import v1 as lease_pb
from headway.api import Reason
from headway.errors import HeadwayError
from headway.resource import (
    NAMESPACE,
    PARTITION,
    Bookmark,
    Key,
    Kind,
    Position,
    Registry,
    ResourceType,
    StreamItem,
    pb,
    position,
)
from headway.rpc import Channel, InProcessChannel, Services, open_channel, open_server
from headway.service import (
    ConsulService,
    LeaseService,
    Permissions,
    ResourceEncodings,
    ResourceService,
    StoreService,
    WatchDecoder,
    watch_encoders,
)
from headway.storage import Acquired, Backend, CurrentLease, Fence, Operation, Raised, Watch, Within
from headway.versions import Versions
from tests.helpers.declared import a_type, an_id, uid_of
from tests.helpers.service_errors import reason_of, status_of

RESOURCES = "/headway.resource.v1.ResourceService/"
CONSUL_RESOURCES = "/hashicorp.consul.resource.ResourceService/"
LEASES = "/headway.lease.v1.LeaseService/"


class Calls:
    """A caller of the service over a store. ``unexpected`` holds the exceptions of handlers that are not statuses."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        permissions: Permissions | None = None,
        *,
        channel: Channel | None = None,
    ) -> None:
        self.backend = backend
        self.unexpected: list[BaseException] = []
        forms = Versions(registry)
        self.channel: Channel = channel or InProcessChannel(
            ResourceService(backend, registry, permissions, forms=forms),
            ConsulService(backend, registry, permissions, forms=forms),
            LeaseService(backend),
            StoreService(backend, registry),
            report=lambda _, error: self.unexpected.append(error),
        )
        self.metadata: dict[str, str] = {}
        self.service = RESOURCES

    def as_consul(self) -> Calls:
        """Return the same caller, which uses the service name of Consul's API."""
        other = copy.copy(self)
        other.service = CONSUL_RESOURCES
        return other

    async def read(self, id: pb.Id | None, **rest: Any) -> pb.ReadResponse:
        request = pb.ReadRequest(id=id, **rest)
        return await self.channel.unary(f"{self.service}Read", request, pb.ReadResponse, metadata=self.metadata)

    async def write(self, resource: pb.Resource | None, **rest: Any) -> pb.WriteResponse:
        request = pb.WriteRequest(resource=resource, **rest)
        return await self.channel.unary(f"{self.service}Write", request, pb.WriteResponse)

    async def stored(self, resource: pb.Resource, **rest: Any) -> pb.Resource:
        """Write a resource and return it as stored."""
        reply = await self.write(resource, **rest)
        assert reply.resource is not None
        return reply.resource

    async def write_status(
        self, id: pb.Id | None, status: pb.Status | None, *, key: str = "mine", **rest: Any
    ) -> pb.WriteStatusResponse:
        request = pb.WriteStatusRequest(id=id, key=key, status=status, **rest)
        return await self.channel.unary(f"{self.service}WriteStatus", request, pb.WriteStatusResponse)

    async def list_type(
        self, type: pb.Type | None, tenancy: pb.Tenancy | None = None, name_prefix: str = "", **rest: Any
    ) -> pb.ListResponse:
        request = pb.ListRequest(type=type, tenancy=tenancy, name_prefix=name_prefix, **rest)
        return await self.channel.unary(f"{self.service}List", request, pb.ListResponse, metadata=self.metadata)

    async def list_by_owner(self, owner: pb.Id | None, known: Position | None = None) -> pb.ListByOwnerResponse:
        request = pb.ListByOwnerRequest(owner=owner, known=None if known is None else known.message())
        return await self.channel.unary(f"{self.service}ListByOwner", request, pb.ListByOwnerResponse)

    async def delete(self, id: pb.Id | None, **rest: Any) -> pb.DeleteResponse:
        return await self.channel.unary(f"{self.service}Delete", pb.DeleteRequest(id=id, **rest), pb.DeleteResponse)

    async def mutate_and_validate(self, resource: pb.Resource | None) -> pb.MutateAndValidateResponse:
        request = pb.MutateAndValidateRequest(resource=resource)
        return await self.channel.unary(f"{self.service}MutateAndValidate", request, pb.MutateAndValidateResponse)

    def watch(
        self, type: pb.Type | None, tenancy: pb.Tenancy | None = None, name_prefix: str = "", **rest: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        # Headway's own clients send these fields.
        rest.setdefault("bookmarks", True)
        request = pb.WatchListRequest(type=type, tenancy=tenancy, name_prefix=name_prefix, **rest)
        return self.channel.stream(f"{self.service}WatchList", request)

    async def raise_fence(
        self, controller: str = "painter", member: str = "", *, term: int = 0, number: int = 0
    ) -> lease_pb.RaiseResponse:
        request = lease_pb.RaiseRequest(controller=controller, member=member, term=term, number=number)
        return await self.channel.unary(f"{LEASES}Raise", request, lease_pb.RaiseResponse)

    async def record_checkpoint(self, fence: pb.Fence | None, revision: int, known: pb.Position | None = None) -> None:
        request = lease_pb.RecordSettledRequest(fence=fence, revision=revision, known=known)
        await self.channel.unary(f"{LEASES}RecordSettled", request, lease_pb.RecordSettledResponse)

    async def make_room(self, *places: tuple[str, str]) -> None:
        """Create the partitions and namespaces of these places. An empty namespace is skipped."""
        for partition in sorted({each for each, _ in places} - {"default"}):
            await self.write(pb.Resource(id=an_id(partition, PARTITION)))
        for partition, namespace in sorted(set(places)):
            if namespace not in ("", "default"):
                await self.write(pb.Resource(id=an_id(namespace, NAMESPACE, partition=partition)))

    async def uid(self, name: str, type: ResourceType[Any]) -> str:
        return uid_of((await self.read(an_id(name, type))).resource)

    async def names(self, type: ResourceType[Any]) -> list[str]:
        """Return the names of all resources of a type, by List with wildcard tenancy."""
        reply = await self.list_type(a_type(type), pb.Tenancy(partition="*", namespace="*"))
        return [each.id.name for each in reply.resources if each.id is not None]

    @property
    def revision(self) -> int:
        return self.backend.position.revision


PLACES = [
    pytest.param("memory", "network", id="memory, network"),
    pytest.param("sqlite", "in process", id="sqlite, in process"),
    pytest.param("memory", "in process", id="memory, in process", marks=pytest.mark.wide),
    pytest.param("sqlite", "network", id="sqlite, network", marks=pytest.mark.wide),
]
"""A function that opens a store and a caller of a service on it. The default run uses each store and transport once."""


@asynccontextmanager
async def over_the_network(
    backend: Backend, registry: Registry, permissions: Permissions | None = None
) -> AsyncIterator[Calls]:
    """Serve a store by gRPC on a port of its own, and yield a caller of it."""
    unexpected: list[BaseException] = []

    def report(_: str, error: BaseException) -> None:
        unexpected.append(error)

    encodings, forms = ResourceEncodings(), Versions(registry)
    services = Services(
        ResourceService(backend, registry, permissions, forms=forms, encodings=encodings),
        ConsulService(backend, registry, permissions, forms=forms, encodings=encodings),
        LeaseService(backend),
        StoreService(backend, registry),
        encoders=watch_encoders(encodings),
    )
    decoders = {f"{service}WatchList": WatchDecoder for service in (RESOURCES, CONSUL_RESOURCES)}
    async with (
        open_server(services, ["127.0.0.1:0"], report=report) as server,
        open_channel(server.addresses[0], decoders=decoders, report=report) as channel,
    ):
        calls = Calls(backend, registry, channel=channel)
        calls.unexpected = unexpected
        yield calls


async def refused(call: Awaitable[object], status: Status, *said: str, reason: Reason | None = None) -> str:
    """Check that a call fails with this status and reason, and a message that contains all of ``said``.

    Return the message.
    """
    with pytest.raises(HeadwayError) as caught:
        await call
    assert status_of(caught.value) is status, caught.value
    message = str(caught.value)
    for part in said:
        assert part in message, message
    assert reason_of(caught.value) is reason
    return message


def at(message: pb.Position | None) -> Position:
    """Return the position of an answer. Fail if it has none."""
    here = position(message)
    assert here is not None
    return here


async def take(items: AsyncIterator[StreamItem], count: int) -> list[StreamItem]:
    """Return the next ``count`` items of a stream. Skip bookmarks, except the one that confirms a resumption."""
    taken: list[StreamItem] = []
    while len(taken) < count:
        item = await anext(items)
        if not isinstance(item, Bookmark) or item.resumed:
            taken.append(item)
    return taken


class Interrupted:
    """A store that calls ``before_commit`` between the read and the commit of a verb, one entry per commit."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.before_commit: list[Callable[[], Awaitable[object]]] = []
        self.commits = 0

    @property
    def position(self) -> Position:
        return self._inner.position

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        return await self._inner.read(kind, key)

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        return await self._inner.list(kind, within, after=after, limit=limit)

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        return await self._inner.list_by_owner(owner_uid)

    async def kinds(self) -> Sequence[Kind]:
        return await self._inner.kinds()

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        self.commits += 1
        if self.before_commit:
            await self.before_commit.pop(0)()
        return await self._inner.commit(operations, fence)

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Watch:
        return await self._inner.watch(kind, within, resume_after)

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        return await self._inner.raise_fence(controller, member, term, number)

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        await self._inner.record_checkpoint(fence, revision)

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        return await self._inner.acquire_lease(name, holder, ttl, attempt)

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        await self._inner.keep_lease(name, holder, term)

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        await self._inner.release_lease(name, holder, term)

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        return await self._inner.list_leases(name_prefix)

    async def wait_lease_ended(self, name: str, term: int) -> None:
        await self._inner.wait_lease_ended(name, term)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


def _meets_the_protocol(inner: Backend) -> Backend:
    return Interrupted(inner)
