"""The resource client: typed calls over any channel."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeVar

from headway.api import FAILED, MAX_PAGE, Call, Channel, ResourceApi, Token, token_metadata
from headway.base import Range, checked
from headway.client._arguments import (
    Number,
    check_position,
    check_revision,
    check_status,
    deleted_id,
    id_of,
    list_request,
)
from headway.client._create_apply import create
from headway.client._lease import LeaseClient
from headway.client._lists import in_registered_versions, in_turns, read_snapshot
from headway.client._refusals import client_error, in_doubt
from headway.client._unchanged import Applying, Cached, Unchanged
from headway.client._watching import Watching, checked_read
from headway.client._writes import Acknowledged, Allow, Writes, stored_in
from headway.errors import Fenced, HeadwayError, InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from headway.protobuf import Payload, copy_message
from headway.resource import (
    Key,
    Registry,
    Resource,
    ResourceId,
    ResourceType,
    ScopedType,
    check_resource,
    is_marked,
    pb,
    position,
    request_id,
    resource_key,
)

T = TypeVar("T", bound=Payload)
Request = TypeVar("Request", bound=Any)
Reply = TypeVar("Reply")
Listed = TypeVar("Listed", pb.ListResponse, pb.ListByOwnerResponse)


class Client(Watching, Applying):
    """A client that reads and writes resources.

    Arguments and results are copies, so you may modify both. A failed call raises a `HeadwayError`:

    * InvalidArgument, NotFound, Conflict, FailedPrecondition, PermissionDenied or Fenced if it had no effect;
    * Unavailable if it had no effect and you can try again, or RateLimited if a limit of the server refuses it;
    * OutcomeUnknown if it was a write, and it is unknown whether it was stored.
    """

    def __init__(
        self,
        channel: Channel,
        registry: Registry,
        writes: Writes | None = None,
        *,
        token: Token = "",
        allow: Allow | None = None,
        cached: Cached | None = None,
    ) -> None:
        self._channel = channel
        self._resources = ResourceApi.over(channel)
        self._allow = allow
        self._metadata = token_metadata(token)
        # What travels beside each request.
        self._beside = Call(self._metadata)
        self._registry = registry
        # None if the client has no controller. Its writes then have no fence, and the caller gets all errors.
        self._writes = writes
        self._unchanged = None if cached is None else Unchanged(cached)

    @property
    def leases(self) -> LeaseClient:
        """A client for leases on the same channel, with the same token. See `hold_lease`."""
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
        """Return the stored resource, or None if it is not found. Like `read`, but without the exception."""
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
        """Return the stored resource, or raise NotFound. Pass a name or an id. If the id has a uid, it must match.

        Use ``min_revision`` to raise Unavailable if the server's store has not reached that revision.
        """
        wanted = id_of(type, id, partition, namespace)
        if min_revision != 0:
            check_revision(min_revision)
        request = pb.ReadRequest(id=wanted.message(), min_revision=min_revision)
        known = self._unchanged
        failures = 0 if known is None else known.failures
        reply = await self._call(self._resources.read, request)
        check_position(reply.position, min_revision)
        if reply.resource is None:
            raise NotFound(f"{wanted} not found")
        if known is not None:
            known.read(reply.resource, reply.position, failures)
        return Resource(type, reply.resource)

    @checked_read
    async def list(
        self,
        type: ResourceType[T] | ScopedType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
        min_revision: Number = 0,
    ) -> builtins.list[Resource[T]]:
        """Return all resources of a type at one revision, sorted by partition, namespace and name (``*`` for any).

        Use ``filter`` to select by metadata, as in ``"color=red, size!=big, urgent, !done"``. A resource must match
        every term. ``min_revision`` works as in `read`. Over a network, the list is streamed like the snapshot of a
        watch. If you don't have permission to watch, however, it must fit in one reply of at most 64 MiB, so use
        `pages` for larger lists.
        """
        request = list_request(type, partition, namespace, name_prefix, filter)
        request.min_revision = min_revision
        known = self._unchanged
        failures = 0 if known is None else known.failures
        found = await read_snapshot(self._channel, request, self._metadata, self._allow)
        if found is not None:
            check_position(found.position.message(), min_revision)
            if known is not None:
                known.read(None, found.position.message(), failures)
            return await in_turns(type.view, found.resources)
        reply = await self._list(self._resources.list, request)
        check_position(reply.position, min_revision)
        return await in_turns(type.view, reply.resources)

    @checked_read
    async def pages(
        self,
        type: ResourceType[T] | ScopedType[T],
        *,
        size: Annotated[int, Range(1, MAX_PAGE)] = 500,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        filter: str = "",
    ) -> AsyncIterator[builtins.list[Resource[T]]]:
        """Iterate over all resources in pages of up to ``size``: ``async for page in client.pages(TEAM): ...``

        Each page is read on demand. A resource that exists throughout appears exactly once, but a resource that is
        created or deleted during the iteration may be missing.
        """
        request = list_request(type, partition, namespace, name_prefix, filter)
        request.page_size = size
        while True:
            reply = await self._list(self._resources.list, copy_message(request))
            yield [type.view(resource) for resource in reply.resources]
            if not reply.next_page_token:
                return
            request.page_token = reply.next_page_token

    @checked(InvalidArgument, owner="team, or team.id with its uid")
    async def list_by_owner(self, owner: Resource[Any] | ResourceId) -> builtins.list[Resource[Any]]:
        """Return the resources of all registered types that this incarnation owns. The id must have a uid.

        A resource in an unregistered version is read in a registered one, if the server can convert it.
        """
        id = owner.id if isinstance(owner, Resource) else owner
        request = pb.ListByOwnerRequest(owner=id.message())
        reply = await self._list(self._resources.list_by_owner, request)
        return await in_registered_versions(self.get, self._registry, reply.resources)

    async def write(self, resource: Resource[T]) -> Resource[T]:
        """Store the resource and return it as stored.

        A resource that you have read has a version. If the stored version has changed since, `write` raises Conflict.
        A resource from ``TYPE.new()`` has no version, so it replaces any existing resource of the same name.
        """
        check_resource(resource)
        return await self._write(resource.type, resource.message())

    async def create(self, resource: Resource[T]) -> Resource[T]:
        """Store a new resource and return it as stored. Raise AlreadyExists if its name is taken.

        If several callers create the same name, only one succeeds. If the outcome is unknown, the call is repeated up
        to three times within a few seconds, which is safe. A controller's client leaves that to the controller's run.
        """
        check_resource(resource)

        def send(token: str) -> Awaitable[Resource[T]]:
            return self._write(resource.type, resource.message(), token)

        return await create(resource, send, repeats=self._writes is None and not resource.type.foreign)

    async def validate(self, resource: Resource[T]) -> Resource[T]:
        """Return the resource as `write` would store it, with the server's defaults, but store nothing.

        It raises the same errors as `write`, except for those that depend on the stored resource, such as Conflict.
        """
        check_resource(resource)
        request = pb.MutateAndValidateRequest(resource=resource.message())
        reply = await self._call(self._resources.mutate_and_validate, request)
        if reply.resource is None:
            raise Unavailable("the server's reply to a validation has no resource")
        return Resource(resource.type, reply.resource)

    async def write_status(
        self, resource: Resource[T], key: str, conditions: builtins.list[pb.Condition], *, observed_generation: str = ""
    ) -> Resource[T]:
        """Replace the status under ``key`` (usually the controller's name), and return the resource as stored.

        Nothing is committed if the stored status is already equal. Concurrent writes don't cause a Conflict, but if
        this incarnation has been deleted, NotFound is raised. ``observed_generation`` defaults to ``resource``'s.
        """
        check_resource(resource)
        check_status(key, conditions, observed_generation)
        # Only the server can compare: the status in `resource` may be outdated.
        status = pb.Status(
            observed_generation=observed_generation or resource.generation,
            conditions=[*conditions],  # the server stores copies
        )
        request = pb.WriteStatusRequest(id=request_id(resource), key=key, status=status)
        reply = await self._call(self._resources.write_status, request, write=True)
        stored = self._stored(reply)
        if self._writes is not None or reply.position is None:
            await self._acknowledge(resource.type, resource_key(stored), reply, key)
        return Resource(resource.type, stored)

    async def delete(self, resource: Resource[Any] | ResourceId, *, version: str = "*") -> Resource[Any] | None:
        """Delete a resource, if it exists. If you pass a uid, only that incarnation is deleted.

        A resource with finalizers is only marked for deletion and returned. Otherwise the result is None. If you pass
        a ``version``, Conflict is raised unless it is the stored version (``*`` for any).
        """
        given = deleted_id(resource, version)
        type = resource.type if isinstance(resource, Resource) else self._registry.resolve(given.type)
        # Fill in the defaults as the server does: the write is acknowledged under this key.
        id = type.id(given.name, partition=given.partition, namespace=given.namespace, uid=given.uid)
        request = pb.DeleteRequest(id=id.message(), version="" if version == "*" else version)
        reply = await self._call(self._resources.delete, request, write=True)
        left = reply.resource
        await self._acknowledge(type, id.key, reply, deleted=True)
        if left is None or left.id is None or (id.uid and left.id.uid != id.uid) or not is_marked(left.metadata):
            return None
        return Resource(type, left)

    async def _write(
        self, type: ResourceType[T], message: pb.Resource, create_token: str = "", *, create_only: bool = False
    ) -> Resource[T]:
        request = pb.WriteRequest(resource=message)
        if create_only or create_token:
            request.create_only, request.create_token = True, create_token
        reply = await self._call(self._resources.write, request, write=True)
        stored = self._stored(reply)
        if self._writes is not None or reply.position is None:
            await self._acknowledge(type, resource_key(stored), reply)
        return Resource(type, stored)

    def _stored(self, reply: pb.WriteResponse | pb.WriteStatusResponse) -> pb.Resource:
        if reply.resource is None or reply.resource.id is None:
            text = "the call may have taken effect, but the reply to a write has no resource"
            raise self._unknown(OutcomeUnknown(text))
        return reply.resource

    async def _acknowledge(
        self, type: ResourceType[Any], key: Key, reply: Any, status_key: str = "", *, deleted: bool = False
    ) -> None:
        if reply.position is None:
            text = (
                "the call may have taken effect, but the reply to a write has no position: it is not a Headway server"
            )
            raise self._unknown(OutcomeUnknown(text))
        if self._writes is not None and (at := position(reply.position)) is not None:
            unchanged = not deleted and reply.unchanged
            self._writes.acknowledged(Acknowledged(type, key, stored_in(reply), at, status_key, deleted, unchanged))
            await self._writes.wait_cached(type, at.revision)

    def _unknown(self, error: OutcomeUnknown) -> OutcomeUnknown:
        if self._writes is not None:
            self._writes.unknown(error)
        return error

    async def _list(self, method: Callable[[Call, Request], Awaitable[Listed]], request: Request) -> Listed:
        known = self._unchanged
        failures = 0 if known is None else known.failures
        reply = await self._call(method, request)
        if known is not None:
            known.read(None, reply.position, failures)
        return reply

    async def _call(
        self, method: Callable[[Call, Request], Awaitable[Reply]], request: Request, *, write: bool = False
    ) -> Reply:
        writes = self._writes if write else None
        if self._allow is not None:
            self._allow(request)
        if writes is not None:
            if writes.governor is not None:
                await writes.governor.wait()
            request.fence, request.store_id = writes.fence, writes.store_id
        try:
            return await method(self._beside, request)
        except FAILED as error:
            self._failed()
            raise self._translated(error, request, write=write) from error
        except HeadwayError as error:
            error.failed_call = None
            self._failed()
            if writes is not None and isinstance(error, Fenced):
                writes.fenced(request.fence)
            raise
        except BaseException as error:
            self._failed()
            if writes is not None and in_doubt(error, knows_outcomes=self._channel.knows_outcomes):
                writes.unknown(None, request)
            raise

    def _failed(self) -> None:
        if self._unchanged is not None:
            self._unchanged.failed()

    def _translated(self, error: HeadwayError, request: Any, *, write: bool) -> HeadwayError:
        # In `_call`, a variable with this error would be a cycle with its traceback, which keeps the call's connection.
        translated = client_error(error, write=write, knows_outcomes=self._channel.knows_outcomes)
        if write and self._writes is not None and isinstance(translated, OutcomeUnknown):
            self._writes.unknown(translated, request)
        return translated
