"""The resource service under the name of Consul's public API: `ResourceService` with Consul's deviations.

Three things differ, so that a client made for Consul works unchanged:

1. A Write without a version that names the uid of a deleted incarnation creates a new one.
2. A tombstone's payload has the type URL of Consul's message, which Consul's clients can decode.
3. A refusal for a failed comparison of versions, a wrong uid or a missing resource ends with Consul's own sentence.
Consul's clients recognize the error by it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from typing_extensions import override

from headway.api import Call, ResourceApi, row_of, stream
from headway.errors import Conflict, HeadwayError, NotFound, WrongUid
from headway.resource import TOMBSTONE, AnyMessage, pb, with_payload
from headway.rpc import Encoded, StreamEncoder
from headway.service._context import Context
from headway.service._delete import delete
from headway.service._encodings import ResourceEncodings
from headway.service._list import list_by_owner, list_type
from headway.service._mutate_and_validate import mutate_and_validate
from headway.service._read import read
from headway.service._service import WATCH_LIST
from headway.service._watch_list import Watched, watch_list
from headway.service._watch_wire import WatchEncoder
from headway.service._write import write
from headway.service._write_status import write_status

CONSUL_SERVICE = "hashicorp.consul.resource.ResourceService"
CONSUL_WATCH_LIST = f"/{CONSUL_SERVICE}/WatchList"

TOMBSTONE_URL = "type.googleapis.com/hashicorp.consul.resource.Tombstone"
"""The type URL of a tombstone's payload in Consul."""

CAS_FAILED = "CAS operation failed because the given version doesn't match what is stored"
WRONG_UID = "write failed because the given uid doesn't match what is stored"
NOT_FOUND = "resource not found"

_SENTENCES: dict[type[HeadwayError], str] = {WrongUid: WRONG_UID, Conflict: CAS_FAILED, NotFound: NOT_FOUND}


@contextmanager
def _in_consuls_words() -> Iterator[None]:
    try:
        yield
    except HeadwayError as error:
        row = row_of(error)
        if row is None or row.error not in _SENTENCES:
            raise
        raise row.error(f"{error} ({_SENTENCES[row.error]})") from error


R = TypeVar("R", pb.ReadResponse, pb.WriteStatusResponse, pb.DeleteResponse)


def _shown(reply: R) -> R:
    """Convert a tombstone in a reply to Consul's form. It is copied, because stored resources are shared."""
    if reply.resource is not None:
        reply.resource = _listed(reply.resource)
    return reply


def _listed(stored: pb.Resource) -> pb.Resource:
    return _tombstone(stored) if _is_tombstone(stored) else stored


def _is_tombstone(resource: pb.Resource) -> bool:
    return resource.id is not None and resource.id.type == TOMBSTONE.message


def _tombstone(stored: pb.Resource) -> pb.Resource:
    data = stored.data
    return with_payload(stored, None if data is None else AnyMessage(type_url=TOMBSTONE_URL, value=data.value))


class ConsulService(Context, ResourceApi, service=CONSUL_SERVICE):
    """The eight verbs as Consul's clients expect them. It takes the arguments of `Context`."""

    recreates = True
    as_listed = staticmethod(_listed)

    @override
    async def read(self, call: Call, request: pb.ReadRequest) -> pb.ReadResponse:
        with _in_consuls_words():
            return _shown(await read(self, call, request))

    @override
    async def write(self, call: Call, request: pb.WriteRequest) -> pb.WriteResponse:
        with _in_consuls_words():
            return await write(self, call, request)

    @override
    async def write_status(self, call: Call, request: pb.WriteStatusRequest) -> pb.WriteStatusResponse:
        with _in_consuls_words():
            return _shown(await write_status(self, call, request))

    @override
    async def delete(self, call: Call, request: pb.DeleteRequest) -> pb.DeleteResponse:
        with _in_consuls_words():
            return _shown(await delete(self, call, request))

    @override
    async def mutate_and_validate(
        self, call: Call, request: pb.MutateAndValidateRequest
    ) -> pb.MutateAndValidateResponse:
        with _in_consuls_words():
            return await mutate_and_validate(self, call, request)

    @override
    async def list(self, call: Call, request: pb.ListRequest) -> pb.ListResponse | Encoded:
        with _in_consuls_words():
            return await list_type(self, call, request)

    @override
    async def list_by_owner(self, call: Call, request: pb.ListByOwnerRequest) -> pb.ListByOwnerResponse | Encoded:
        with _in_consuls_words():
            return await list_by_owner(self, call, request)

    @override
    @stream
    async def watch_list(self, call: Call, request: pb.WatchListRequest) -> AsyncGenerator[Watched, None]:
        with _in_consuls_words():
            async with watch_list(self, call, request) as items:
                async for item in items:
                    yield item


def watch_encoders(encodings: ResourceEncodings | None = None) -> dict[str, StreamEncoder]:
    """Return the encoders of WatchList by path, under both names of the service."""
    encodings = encodings or ResourceEncodings()
    encoder = WatchEncoder(encodings)
    return {WATCH_LIST: encoder, CONSUL_WATCH_LIST: encoder}
