"""A collection of resources: a list, a page of it, or a watch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from headway.api import MAX_PAGE, Code, Exhausted
from headway.base import Steps
from headway.http._answer import InPieces
from headway.http._call import resources_in
from headway.http._document import json_bytes, json_steps, resource_steps
from headway.http._offered import Exchange
from headway.http._query import Query
from headway.http._refusal import HttpRefusal
from headway.http._watch import Watched, WatchResponse, position_of, position_text
from headway.protobuf import decode
from headway.resource import ResourceType, pb, position
from headway.rpc import Encoded
from headway.service import POSITION, RESOURCE_SERVICE, PositionRequest

_SCOPE = ("partition", "namespace", "ns", "name_prefix", "filter")
_PAGES = ("page_size", "page_token", "consistent")
_WATCH = ("watch", "resume_after")


async def get_collection(exchange: Exchange) -> Response:
    """Answer with the resources of a type, or watch them."""
    type = await exchange.type()
    watches = Query(exchange.request.scope["query_string"], (*_SCOPE, *_PAGES, *_WATCH)).flag("watch")
    query = Query(exchange.request.scope["query_string"], (*_SCOPE, *(_WATCH if watches else (*_PAGES, "watch"))))
    return _watch(exchange, type, query) if watches else await _list(exchange, type, query)


async def _list(exchange: Exchange, type: ResourceType[Any], query: Query) -> Response:
    partition, namespace = query.tenancy()
    consistent, page_size = query.flag("consistent"), query.number("page_size", MAX_PAGE)
    at_least = 0
    if consistent:
        # A snapshot may lag behind the commits of other engines. The position does not.
        async def here() -> PositionRequest:
            return PositionRequest(type=type.name.message())

        at_least = (await exchange.call(POSITION, here)).position.revision

    async def requested() -> pb.ListRequest:
        return pb.ListRequest(
            type=type.name.message(),
            tenancy=pb.Tenancy(partition=partition, namespace=namespace),
            name_prefix=query.text("name_prefix"),
            metadata_filter=query.text("filter"),
            page_size=page_size,
            page_token=query.text("page_token"),
            min_revision=at_least,
        )

    try:
        reply: Encoded = await exchange.call(f"/{RESOURCE_SERVICE}/List", requested)
    except Exhausted as error:
        # Not 429: the same request would be refused again.
        raise HttpRefusal(400, Code.RESOURCE_EXHAUSTED.name, str(error)) from None
    return InPieces(_texts(type, reply), reply.size, exchange.reply)


def _texts(type: ResourceType[Any], reply: Encoded) -> Iterable[Steps[bytes]]:
    before = b'{"resources":['
    for resource in resources_in(reply):
        yield _text(before, type, resource)
        before = b","
    yield _end(b"" if before == b"," else before, reply)


def _text(before: bytes, type: ResourceType[Any], resource: pb.Resource) -> Steps[bytes]:
    return before + (yield from json_steps((yield from resource_steps(type, resource))))


def _end(before: bytes, reply: Encoded) -> Steps[bytes]:
    yield
    last = decode(pb.ListResponse, reply.pieces[-1])
    rest: dict[str, Any] = {}
    if (here := position(last.position)) is not None:
        rest["position"] = position_text(here)
    if last.next_page_token:
        rest["nextPageToken"] = last.next_page_token
    return before + b"]" + (b"," if rest else b"") + json_bytes(rest)[1:] + b"\n"


def _watch(exchange: Exchange, type: ResourceType[Any], query: Query) -> Response:
    partition, namespace = query.tenancy()
    headers = exchange.request.headers
    events = "text/event-stream" in headers.get("accept", "").lower()
    asked, last = query.text("resume_after"), headers.get("last-event-id", "")

    def request(resume: bool) -> pb.WatchListRequest:
        # A parameter outlives the reconnections of a browser; the header says how far it has come since.
        after = (last or asked) if resume else ""
        return pb.WatchListRequest(
            type=type.name.message(),
            tenancy=pb.Tenancy(partition=partition, namespace=namespace),
            name_prefix=query.text("name_prefix"),
            metadata_filter=query.text("filter"),
            resume_after=position_of(after).message() if after else None,
            bookmarks=True,
            bookmark_interval_ms=_BOOKMARKS_MS,
        )

    # A browser reconnects by itself, and would give up at an error: it gets a new snapshot instead. It may have no last
    # id: the position in its address can be too old, or the connection was lost within a snapshot.
    return WatchResponse(exchange, Watched(type, request, events=events, restarts=events and bool(last or asked)))


_BOOKMARKS_MS = 5_000
"""The time between two bookmarks of a watch that skips changes, in milliseconds."""
