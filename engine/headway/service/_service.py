"""The resource service: it maps each verb to its file and holds what the verbs share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from grpclib.const import Cardinality, Handler

from headway.resource import Registry, pb
from headway.service import _delete, _list, _mutate_and_validate, _read, _watch_list, _write, _write_status
from headway.service._access import Access, Authorizer
from headway.service._handlers import unary_handlers
from headway.service._pages import MAX_REPLY, Kept
from headway.service._versions import Versions
from headway.storage import Backend

RESOURCE_SERVICE = "headway.resource.v1.ResourceService"
WATCH_LIST = f"/{RESOURCE_SERVICE}/WatchList"

PAGES = "ask for pages (page_size), or for less by name_prefix (--prefix); or watch the type, which comes in pieces"
BY_TYPE = "list or watch the types that it owns, and look for its uid in their owners"


class ResourceService:
    """The eight verbs over a store, for the types of a registry. Its methods are grpclib handlers.

    Every refusal is a ``GRPCError`` whose message names the field and says what would be right.

    Args:
        authorizer: decides what each caller may do; without one, every caller may do everything.
        recreates: a Write that names the uid of a deleted incarnation creates a new one, as in Consul.
        versions: converts between versions of a kind; shared by all services over a store. None creates a new one.
        as_sent: returns the form of a stored resource that lists send; None sends resources as stored.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        authorizer: Authorizer | None = None,
        *,
        recreates: bool = False,
        versions: Versions | None = None,
        as_sent: Callable[[pb.Resource], pb.Resource] | None = None,
    ) -> None:
        self._backend = backend
        self._registry = registry
        self._access = Access(authorizer, registry)
        self._versions = versions or Versions(registry)
        self._recreates = recreates
        self._as_sent = as_sent

    async def read(self, message: pb.ReadRequest) -> pb.ReadResponse:
        """Return one resource by its id."""
        return await _read.read(self._backend, self._registry, self._access, self._versions, message)

    def write(self, message: pb.WriteRequest) -> Coroutine[Any, Any, pb.WriteResponse]:
        """Create or update a resource and return it as stored."""
        return _write.write(
            self._backend, self._registry, self._access, self._versions, message, recreates=self._recreates
        )

    async def write_status(self, message: pb.WriteStatusRequest) -> pb.WriteStatusResponse:
        """Replace one status of a resource."""
        return await _write_status.write_status(self._backend, self._registry, self._access, self._versions, message)

    async def list(self, message: pb.ListRequest) -> pb.ListResponse:
        """Return the resources of a type, without a bound on the size of the reply (for in-process callers)."""
        return await self._list(message, Kept(None, PAGES, self._as_sent))

    def _list(self, message: pb.ListRequest, kept: Kept) -> Coroutine[Any, Any, pb.ListResponse]:
        return _list.list_type(self._backend, self._registry, self._access, self._versions, message, kept)

    def _list_by_owner(self, message: pb.ListByOwnerRequest, kept: Kept) -> Coroutine[Any, Any, pb.ListByOwnerResponse]:
        return _list.list_by_owner(self._backend, self._registry, self._access, self._versions, message, kept)

    async def list_by_owner(self, message: pb.ListByOwnerRequest) -> pb.ListByOwnerResponse:
        """Return the resources that one owner owns, without a bound on the size of the reply."""
        return await self._list_by_owner(message, Kept(None, BY_TYPE, self._as_sent))

    async def delete(self, message: pb.DeleteRequest) -> pb.DeleteResponse:
        """Remove a resource, or mark it for deletion while it has finalizers."""
        return await _delete.delete(self._backend, self._registry, self._access, self._versions, message)

    async def mutate_and_validate(self, message: pb.MutateAndValidateRequest) -> pb.MutateAndValidateResponse:
        """Run the hooks on a resource and return the result without storing it."""
        return await _mutate_and_validate.mutate_and_validate(
            self._backend, self._registry, self._access, self._versions, message
        )

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers by path. WatchList needs its own: it sends `StreamItem`s, each of which holds many
        events.
        """
        mapping = unary_handlers(
            RESOURCE_SERVICE,
            Read=(self.read, pb.ReadRequest, pb.ReadResponse),
            Write=(self.write, pb.WriteRequest, pb.WriteResponse),
            WriteStatus=(self.write_status, pb.WriteStatusRequest, pb.WriteStatusResponse),
            Delete=(self.delete, pb.DeleteRequest, pb.DeleteResponse),
            MutateAndValidate=(self.mutate_and_validate, pb.MutateAndValidateRequest, pb.MutateAndValidateResponse),
        )
        # A list whose reply is encoded is bounded in size, and encoded in slices.
        mapping[f"/{RESOURCE_SERVICE}/List"] = Handler(
            self._listing(self._list, PAGES), Cardinality.UNARY_UNARY, pb.ListRequest, pb.ListResponse
        )
        mapping[f"/{RESOURCE_SERVICE}/ListByOwner"] = Handler(
            self._listing(self._list_by_owner, BY_TYPE),
            Cardinality.UNARY_UNARY,
            pb.ListByOwnerRequest,
            pb.ListByOwnerResponse,
        )
        mapping[WATCH_LIST] = Handler(self._watch_list, Cardinality.UNARY_STREAM, pb.WatchListRequest, pb.WatchEvent)
        return mapping

    def _watch_list(self, stream: Any) -> Coroutine[Any, Any, None]:
        return _watch_list.watch_list(self._backend, self._registry, self._access, self._versions, stream)

    def _listing(
        self, answer: Callable[[Any, Kept], Coroutine[Any, Any, Any]], instead: str
    ) -> Callable[[Any], Coroutine[Any, Any, None]]:
        """Return a handler for a list. ``instead`` tells the caller what to request if the reply would be too large."""

        async def serve(stream: Any) -> None:
            kept = Kept(MAX_REPLY if getattr(stream, "encodes", False) else None, instead, self._as_sent)
            reply = await answer(await stream.recv_message(), kept)
            if kept.is_large:
                reply = await kept.encoded(reply, stream.hold)
            await stream.send_message(reply)

        return serve
