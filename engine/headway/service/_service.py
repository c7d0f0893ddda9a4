"""The resource service: the verbs of each path. The file of a verb has its handler.

`headway.resource.v1.ResourceService` and Consul's name for it (`_consul.py`) have the same verbs in another context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from headway.api import Cardinality, Handler
from headway.base import CallerTurns, KeyTurns
from headway.journal import WriteJournal
from headway.resource import Registry, pb
from headway.service._access import AccessChecks, Permissions
from headway.service._delete import delete
from headway.service._encodings import ResourceEncodings
from headway.service._handlers import Context, Handlers, unary_handler
from headway.service._list import list_by_owner, list_type
from headway.service._mutate_and_validate import mutate_and_validate
from headway.service._read import read
from headway.service._versions import Versions
from headway.service._watch_list import watch_list
from headway.service._write import write
from headway.service._write_status import write_status
from headway.storage import Backend

RESOURCE_SERVICE = "headway.resource.v1.ResourceService"
WATCH_LIST = f"/{RESOURCE_SERVICE}/WatchList"


class ResourceService:
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
        versions = versions or Versions(registry)
        turns = turns or KeyTurns()
        self._context = Context(backend, access, versions, turns, journal=journal, encodings=encodings, reads=reads)

    def __mapping__(self) -> Handlers:
        """Return the handlers by path."""
        return Handlers(_BY_PATH, self._context)


def _unary(
    serve: Callable[..., Awaitable[Any]], request: type[Any], response: type[Any]
) -> Callable[[Context], Handler]:
    return lambda context: unary_handler(partial(serve, context), request, response)


def _sending(
    serve: Callable[..., Awaitable[None]], cardinality: Cardinality, request: type[Any], response: type[Any]
) -> Callable[[Context], Handler]:
    return lambda context: Handler(partial(serve, context), cardinality, request, response)


_VERBS: dict[str, Callable[[Context], Handler]] = {
    "Read": _unary(read, pb.ReadRequest, pb.ReadResponse),
    "Write": _unary(write, pb.WriteRequest, pb.WriteResponse),
    "WriteStatus": _unary(write_status, pb.WriteStatusRequest, pb.WriteStatusResponse),
    "Delete": _unary(delete, pb.DeleteRequest, pb.DeleteResponse),
    "MutateAndValidate": _unary(mutate_and_validate, pb.MutateAndValidateRequest, pb.MutateAndValidateResponse),
    # These send by themselves: a large list in pieces, and a watch as `StreamItem`s, which can hold many events each.
    "List": _sending(list_type, Cardinality.UNARY_UNARY, pb.ListRequest, pb.ListResponse),
    "ListByOwner": _sending(list_by_owner, Cardinality.UNARY_UNARY, pb.ListByOwnerRequest, pb.ListByOwnerResponse),
    "WatchList": _sending(watch_list, Cardinality.UNARY_STREAM, pb.WatchListRequest, pb.WatchEvent),
}


def verbs(service: str) -> dict[str, Callable[[Context], Handler]]:
    """Return, by path, the functions that make the handlers of the eight verbs for a context."""
    return {f"/{service}/{verb}": make for verb, make in _VERBS.items()}


_BY_PATH = verbs(RESOURCE_SERVICE)
