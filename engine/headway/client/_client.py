"""The resource client: typed calls over any channel."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import trio
from grpclib import GRPCError

from headway._trio import check_trio
from headway.client._arguments import (
    check_conditions,
    check_position,
    check_resource,
    check_type,
    id_of,
    milliseconds,
    tenancy_within,
)
from headway.client._create import create
from headway.client._in_turns import in_turns
from headway.client._lease import LeaseClient
from headway.client._refusals import client_error
from headway.client._registered import in_registered_versions
from headway.client._same_content import stored_already
from headway.client._snapshot import Snapshot, read_snapshot
from headway.client._watch import WatchStream
from headway.client._writes import Acknowledged, Allow, PlainWrites, Writes
from headway.errors import Conflict, Fenced, HeadwayError, InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    Payload,
    Position,
    Registry,
    Resource,
    ResourceId,
    ResourceType,
    copy_message,
    is_marked,
    pb,
    position,
    resource_key,
)
from headway.rpc import Channel

T = TypeVar("T", bound=Payload)
Reply = TypeVar("Reply")

_SERVICE = "/headway.resource.v1.ResourceService/"
_APPLY_ATTEMPTS = 8


class Client:
    """Reads and writes resources.

    What it returns is yours to change; what you give it is copied. Every call raises a `HeadwayError`:
    InvalidArgument, NotFound, Conflict, FailedPrecondition, PermissionDenied, Fenced when it had no effect and
    never will have; OutcomeUnknown for a write that may or may not have happened; Unavailable when it may be tried
    again.
    """

    def __init__(
        self,
        channel: Channel,
        registry: Registry,
        writes: Writes | None = None,
        *,
        token: str = "",
        allow: Allow | None = None,
    ) -> None:
        self._channel = channel
        self._allow = allow
        self._metadata = {"x-consul-token": token} if token else None
        self._registry = registry
        self._writes: Writes = writes or PlainWrites()

    @property
    def leases(self) -> LeaseClient:
        """Leases, by the same channel and as the same caller: see `hold_lease`."""
        return LeaseClient(self._channel, metadata=self._metadata)

    async def get(
        self,
        type: ResourceType[T],
        id: str | ResourceId,
        *,
        partition: str = "",
        namespace: str = "",
        min_revision: int = 0,
    ) -> Resource[T] | None:
        """The resource as the store has it now, or None. ``id`` is a name, or an id (with a uid only that one).

        ``min_revision`` is as for `read`.
        """
        try:
            return await self.read(type, id, partition=partition, namespace=namespace, min_revision=min_revision)
        except NotFound:
            return None

    async def read(
        self,
        type: ResourceType[T],
        id: str | ResourceId,
        *,
        partition: str = "",
        namespace: str = "",
        min_revision: int = 0,
    ) -> Resource[T]:
        """The resource as the store has it now. Raises NotFound when there is none.

        A server that stands below ``min_revision`` doesn't answer from what it has: that is Unavailable.
        """
        wanted = id_of(type, id, partition, namespace)
        request = pb.ReadRequest(id=wanted.message(), min_revision=min_revision)
        reply = await self._call("Read", request, pb.ReadResponse)
        check_position(reply.position, min_revision)
        if reply.resource is None:
            raise NotFound(f"{wanted} is not there")
        return type.view(reply.resource)

    async def list(
        self,
        type: ResourceType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
        min_revision: int = 0,
    ) -> builtins.list[Resource[T]]:
        """All resources of a type, in order of partition, namespace and name; ``*`` is any.

        ``filter`` is of the metadata: ``"colour=red, size!=big, urgent, !done"`` lets through what meets all terms.
        ``min_revision`` is as for `read`. The list is of one revision. Over a network it comes in pieces, as the
        beginning of a watch does; a caller who may list and not watch gets it as one reply, of at most 64 MiB, and
        reads a larger one by `pages`.
        """
        check_type(type)
        request = pb.ListRequest(
            type=type.name.message(),
            tenancy=tenancy_within(type, partition, namespace),
            name_prefix=name_prefix,
            metadata_filter=filter,
            min_revision=min_revision,
        )
        if not self._channel.knows_outcomes and (found := await self._snapshot(request)) is not None:
            check_position(found.position.message(), min_revision)
            return await in_turns(type.view, found.resources)
        reply = await self._call("List", request, pb.ListResponse)
        check_position(reply.position, min_revision)
        return await in_turns(type.view, reply.resources)

    async def _snapshot(self, request: pb.ListRequest) -> Snapshot | None:
        if self._allow is not None:
            self._allow("List", request)
        try:
            return await read_snapshot(self._channel, request, self._metadata)
        except GRPCError as error:
            raise client_error(error) from error

    async def pages(
        self,
        type: ResourceType[T],
        *,
        size: int = 500,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
    ) -> AsyncIterator[builtins.list[Resource[T]]]:
        """``async for page in client.pages(TEAM): ...``: as `list`, in lists of up to ``size``, each read when it is
        wanted. What is there all the while comes exactly once; what comes or goes meanwhile may come or not.
        """
        check_type(type)
        request = pb.ListRequest(
            type=type.name.message(),
            tenancy=tenancy_within(type, partition, namespace),
            name_prefix=name_prefix,
            metadata_filter=filter,
            page_size=size,
        )
        while True:
            reply = await self._call("List", copy_message(request), pb.ListResponse)
            yield [type.view(resource) for resource in reply.resources]
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    async def list_by_owner(self, owner: Resource[Any] | ResourceId) -> builtins.list[Resource[Any]]:
        """Everything that this incarnation owns, of every registered type. The id must have a uid.

        What is stored as a version that is not registered here is read as one that is, if the server can convert it.
        """
        id = owner.id if isinstance(owner, Resource) else owner
        reply = await self._call("ListByOwner", pb.ListByOwnerRequest(owner=id.message()), pb.ListByOwnerResponse)
        return await in_registered_versions(self, self._registry, reply.resources)

    async def write(self, resource: Resource[T]) -> Resource[T]:
        """Store the resource and return it as stored.

        One that has been read carries its version and is stored only if that is still the stored one (Conflict
        otherwise). A new one is created, or replaces what bears its name.
        """
        check_resource(resource)
        return await self._write(resource.type, resource.message())

    async def create(self, resource: Resource[T]) -> Resource[T]:
        """Store a new resource and return it as stored. Raises AlreadyExists when its name is taken.

        Of several callers who create one name, one succeeds. A creation whose outcome is unknown is sent again, up to
        three times within some seconds, and recognized; a controller's client leaves that to its run.
        """
        check_resource(resource)

        def send(token: str) -> Awaitable[Resource[T]]:
            return self._write(resource.type, resource.message(), token)

        return await create(resource, send, repeats=isinstance(self._writes, PlainWrites))

    async def apply(self, resource: Resource[T]) -> Resource[T]:
        """Make the stored resource have this data and metadata (and, if new, this owner); write only if it differs.

        What the type's mutate hook fills in is no difference: of such a type the server is asked first.
        Finalizers and the deletion mark are left alone unless the given metadata has them.
        """
        check_resource(resource)
        type, wanted = resource.type, resource.message()
        wanted.version = ""
        for _ in range(_APPLY_ATTEMPTS):
            current = await self.get(type, resource.id)
            try:
                return await self.apply_over(current, type.view(wanted))
            except Conflict:
                continue
        raise Conflict(f"{resource.id} kept being changed by others while it was applied")

    async def apply_over(self, current: Resource[T] | None, wanted: Resource[T]) -> Resource[T]:
        """As `apply`, against a ``current`` state the caller has just read; Conflict when it isn't any more."""
        type, message = wanted.type, wanted.message()
        # What the wanted resource was read with is no part of what is wanted.
        message.version, message.status = "", {}
        if current is None:
            return await self._write(type, message)
        current = current.original()
        stored = current.message()
        for reserved in (FINALIZERS, DELETION_TIMESTAMP):
            if reserved in stored.metadata:
                message.metadata.setdefault(reserved, stored.metadata[reserved])
        if message.owner is None:
            message.owner = stored.owner
        if await stored_already(self.validate, type, stored, message):
            return current
        message.version = stored.version
        return await self._write(type, message)

    async def validate(self, resource: Resource[T]) -> Resource[T]:
        """The resource as `write` would store it, with the server's defaults. Nothing is stored.

        Raises what `write` would, as far as that can be said without its place in the store: whether another
        version is there, or who owns it, only writing can tell.
        """
        check_resource(resource)
        request = pb.MutateAndValidateRequest(resource=resource.message())
        reply = await self._call("MutateAndValidate", request, pb.MutateAndValidateResponse)
        if reply.resource is None:
            raise Unavailable("a server answered without the resource that it was asked about")
        return resource.type.view(reply.resource)

    async def write_status(
        self, resource: Resource[T], key: str, conditions: builtins.list[pb.Condition], *, observed_generation: str = ""
    ) -> Resource[T]:
        """Replace the status under ``key`` (by custom the controller's name), and return the resource as stored.

        What is stored already makes no commit and wakes nobody. ``observed_generation`` is that of ``resource``
        unless given. Other writers of the resource don't matter; NotFound when this incarnation is gone.
        """
        check_resource(resource)
        check_conditions(conditions)
        # Whether it differs is for the server to say: what `resource` was read with may be overwritten by now.
        status = pb.Status(
            observed_generation=observed_generation or resource.generation,
            conditions=[copy_message(condition) for condition in conditions],
        )
        request = pb.WriteStatusRequest(
            id=resource.id.message(), key=key, status=status, fence=self._writes.fence, store_id=self._writes.store_id
        )
        reply = await self._call("WriteStatus", request, pb.WriteStatusResponse, write=True)
        return await self._stored(resource.type, reply.resource, reply.position, status_key=key)

    async def delete(self, resource: Resource[Any] | ResourceId, *, version: str = "") -> Resource[Any] | None:
        """Delete. What isn't there is deleted already; with a uid only that incarnation is deleted.

        Returns None when it is gone, or the resource, marked for deletion, when finalizers hold it. With a
        ``version`` only that one is deleted (Conflict otherwise).
        """
        given = resource.id if isinstance(resource, Resource) else resource
        if not isinstance(given, ResourceId):
            raise InvalidArgument(
                f"a client deletes resources, or what an id says, not {resource!r:.120}: give it an id"
            )
        type = resource.type if isinstance(resource, Resource) else self._registry.resolve(given.type)
        # Whole, as the server makes it: what is told of the write is told under this key.
        id = type.id(given.name, partition=given.partition, namespace=given.namespace, uid=given.uid)
        request = pb.DeleteRequest(
            id=id.message(), version=version, fence=self._writes.fence, store_id=self._writes.store_id
        )
        reply = await self._call("Delete", request, pb.DeleteResponse, write=True)
        left = reply.resource
        at = self._acknowledged_at(reply.position)
        self._writes.acknowledged(Acknowledged(type, id.key, left, at, deleted=True))
        await self._writes.wait_shown(type, at.revision)
        if left is None or left.id is None or (id.uid and left.id.uid != id.uid) or not is_marked(left.metadata):
            return None
        return type.view(left)

    def watch(
        self,
        type: ResourceType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        resume_after: Position | None = None,
        progress_interval: float | None = None,
    ) -> WatchStream[T]:
        """``async with client.watch(TEAM) as events: async for event in events: ...``

        What is there, a SnapshotEnd, then every change in order. With ``resume_after`` only the changes after it.
        How far the store stands while nothing of this type changes is told as Progress, at most every
        ``progress_interval`` seconds; unless given, over a network every second, in the process at once.
        """
        if progress_interval is None:
            progress_interval = 0.0 if self._channel.knows_outcomes else 1.0
        check_type(type)
        request = pb.WatchListRequest(
            type=type.name.message(),
            tenancy=tenancy_within(type, partition, namespace),
            name_prefix=name_prefix,
            resume_after=None if resume_after is None else resume_after.message(),
            bookmark_interval_ms=milliseconds(progress_interval),
            bookmarks=True,
        )
        if self._allow is not None:
            self._allow("WatchList", request)
        return WatchStream(type, self._channel.stream(f"{_SERVICE}WatchList", request, metadata=self._metadata))

    async def _write(self, type: ResourceType[T], message: pb.Resource, create_token: str = "") -> Resource[T]:
        request = pb.WriteRequest(resource=message, fence=self._writes.fence, store_id=self._writes.store_id)
        if create_token:
            request.create_only, request.create_token = True, create_token
        reply = await self._call("Write", request, pb.WriteResponse, write=True)
        return await self._stored(type, reply.resource, reply.position)

    async def _stored(
        self, type: ResourceType[T], stored: pb.Resource | None, at: pb.Position | None, *, status_key: str = ""
    ) -> Resource[T]:
        if stored is None or stored.id is None:
            raise self._unknown(OutcomeUnknown("a write was answered without the resource"))
        at_position = self._acknowledged_at(at)
        self._writes.acknowledged(Acknowledged(type, resource_key(stored), stored, at_position, status_key))
        await self._writes.wait_shown(type, at_position.revision)
        return type.view(stored)

    def _acknowledged_at(self, message: pb.Position | None) -> Position:
        at = position(message)
        if at is None:
            text = "a write was answered without a position, so nobody can tell what is newer: not a Headway server"
            raise self._unknown(OutcomeUnknown(text))
        return at

    def _unknown(self, error: OutcomeUnknown) -> OutcomeUnknown:
        self._writes.unknown(error)
        return error

    async def _call(self, method: str, request: object, reply_type: type[Reply], *, write: bool = False) -> Reply:
        check_trio("a client of Headway")
        if self._allow is not None:
            self._allow(method, request)
        try:
            return await self._channel.unary(_SERVICE + method, request, reply_type, metadata=self._metadata)
        except GRPCError as error:
            settles = self._channel.knows_outcomes
            translated: HeadwayError = client_error(error, write=write, knows_outcomes=settles)
            if isinstance(translated, OutcomeUnknown):
                self._unknown(translated)
            elif isinstance(translated, Fenced):
                self._writes.refused(getattr(request, "fence", None))
            raise translated from error
        except trio.Cancelled:
            if write and not self._channel.knows_outcomes:
                self._writes.unknown(None)
            raise
        except BaseException:
            # A channel promises nothing but GRPCErrors: after anything else nobody knows.
            if write:
                self._writes.unknown(None)
            raise
