"""The resource service: the eight verbs over a store. The file of a verb has its function."""

from __future__ import annotations

from typing_extensions import override

from headway.api import Call, ResourceApi, Stream
from headway.base import CallerTurns, KeyTurns
from headway.journal import WriteJournal
from headway.resource import Registry, pb
from headway.rpc import Encoded
from headway.service._access import AccessChecks, Permissions
from headway.service._context import Context
from headway.service._delete import delete
from headway.service._encodings import ResourceEncodings
from headway.service._list import list_by_owner, list_type
from headway.service._mutate_and_validate import mutate_and_validate
from headway.service._read import read
from headway.service._versions import Versions
from headway.service._watch_list import Watched, watch_list
from headway.service._write import write
from headway.service._write_status import write_status
from headway.storage import Backend

RESOURCE_SERVICE = "headway.resource.v1.ResourceService"
WATCH_LIST = f"/{RESOURCE_SERVICE}/WatchList"


class ResourceService(ResourceApi):
    """The eight verbs over a store, for the types of a registry.

    Every refusal is a `HeadwayError` whose message names the field and says what would be right.

    Args:
        permissions: what each caller may do; without them, every caller may do everything.
        versions: converts between versions of a kind; shared by all services over a store. None creates a new one.
        writes_copies: True for the peerings and Headway's own controllers, which write to partitions with copies.
        journal: records the committed writes with their writers.
        encodings: as in `watch_encoders`; lists use the bytes that it keeps.
        reads: shared by all services over a store; see `Context`.
        turns: shared by all services over a store, too.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        permissions: Permissions | None = None,
        *,
        versions: Versions | None = None,
        writes_copies: bool = False,
        journal: WriteJournal | None = None,
        encodings: ResourceEncodings | None = None,
        reads: CallerTurns | None = None,
        turns: KeyTurns | None = None,
    ) -> None:
        access = AccessChecks(permissions, registry, writes_copies=writes_copies)
        versions, turns = versions or Versions(registry), turns or KeyTurns()
        self._context = Context(backend, access, versions, turns, journal=journal, encodings=encodings, reads=reads)

    @override
    async def read(self, call: Call, request: pb.ReadRequest) -> pb.ReadResponse:
        return await read(self._context, request)

    @override
    async def write(self, call: Call, request: pb.WriteRequest) -> pb.WriteResponse:
        return await write(self._context, request)

    @override
    async def write_status(self, call: Call, request: pb.WriteStatusRequest) -> pb.WriteStatusResponse:
        return await write_status(self._context, request)

    @override
    async def delete(self, call: Call, request: pb.DeleteRequest) -> pb.DeleteResponse:
        return await delete(self._context, request)

    @override
    async def mutate_and_validate(
        self, call: Call, request: pb.MutateAndValidateRequest
    ) -> pb.MutateAndValidateResponse:
        return await mutate_and_validate(self._context, request)

    @override
    async def list(self, call: Call, request: pb.ListRequest) -> pb.ListResponse | Encoded:
        return await list_type(self._context, call, request)

    @override
    async def list_by_owner(self, call: Call, request: pb.ListByOwnerRequest) -> pb.ListByOwnerResponse | Encoded:
        return await list_by_owner(self._context, call, request)

    @override
    def watch_list(self, call: Call, request: pb.WatchListRequest) -> Stream[Watched]:
        return watch_list(self._context, call, request)
