"""The verbs of one resource: read, write, merge, delete, and write a status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import trio
from starlette.responses import Response

from headway.api import NothingWritten
from headway.base import Steps, chance, in_slices
from headway.documents import Mapping, merged
from headway.errors import AlreadyExists, Conflict, HeadwayError, InvalidArgument, NotFound, PayloadError, WrongUid
from headway.http._answer import answer, long_answer
from headway.http._document import (
    changes_of,
    check_values,
    content_of,
    content_of_node,
    message_of,
    node_of_object,
    resource_steps,
)
from headway.http._offered import Exchange, Target
from headway.http._query import Query
from headway.http._refusal import HttpRefusal, invalid, refusal_of
from headway.manifest import Content
from headway.protobuf import comparing_content, encoding
from headway.resource import AnyMessage, Registry, ResourceId, ResourceType, pb, quoted, type_name
from headway.service import RESOURCE_SERVICE

_TENANCY = ("partition", "namespace", "ns")
_GUARDED = (*_TENANCY, "version", "uid")
_CONDITIONS = ("if-match", "if-none-match", "if-unmodified-since")
# The number of times that a write of what was read is attempted while others change the resource, and the longest wait
# before the second one in seconds. Each further wait may be twice as long.
_ATTEMPTS = 8
_WAIT = 0.01
_MERGES = ("application/merge-patch+json", "application/json", "application/x-www-form-urlencoded", "")
Shown = Callable[[ResourceType[Any], pb.Resource], Steps[dict[str, Any]]]
"""The form in which an answer has a written resource."""


async def get(exchange: Exchange) -> Response:
    """Answer with a resource."""
    # Every read is consistent, so the parameter has no effect.
    target, query = await _target(exchange, (*_TENANCY, "uid", "consistent"))
    query.flag("consistent")
    return await long_answer(resource_steps(target.type, await _read(exchange, target, query.condition("uid"))))


async def put(exchange: Exchange, shown: Shown = resource_steps) -> Response:
    """Write a resource, and answer with it as ``shown`` makes it."""
    target, query = await _change(exchange)

    async def requested() -> pb.WriteRequest:
        async with exchange.body() as body:
            content = await content_of(body, target.type, target.id, exchange.known_types())
        version = _agreed("version", query.condition("version"), content.version)
        return await _write_request(target, content, version, _agreed("uid", query.condition("uid"), content.uid))

    announced = pb.WriteRequest(resource=pb.Resource(id=target.message()))
    return await _written(exchange, target, requested, shown, announced)


async def patch(exchange: Exchange, shown: Shown = resource_steps) -> Response:
    """Merge the body into a resource (RFC 7396), and answer with it as ``shown`` makes it."""
    target, query = await _change(exchange)
    kind = exchange.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _MERGES:
        raise HttpRefusal(
            415, "INVALID_ARGUMENT", f"content-type {quoted(kind)} is not supported: use {_MERGES[0]} (RFC 7396)"
        )
    async with AsyncExitStack() as held:
        merge = _Merge(exchange, target, query, held)

        async def write() -> Response:
            announced = pb.WriteRequest(resource=pb.Resource(id=target.message()))
            return await _written(exchange, target, merge.requested, shown, announced)

        return await _repeated(write, merge.outdated, target)


async def delete(exchange: Exchange) -> Response:
    """Delete a resource, or mark it for deletion. Both are answered without content, as by Consul."""
    target, query = await _change(exchange)

    async def requested() -> pb.DeleteRequest:
        return pb.DeleteRequest(id=target.message(query.condition("uid")), version=query.condition("version"))

    await exchange.call(f"/{RESOURCE_SERVICE}/Delete", requested)
    return answer(204)


async def put_status(exchange: Exchange) -> Response:
    """Write a status of a resource, and answer with the resource."""
    target, query = await _change(exchange)
    uid, version = query.condition("uid"), query.condition("version")
    status: pb.Status | None = None

    async def requested() -> pb.WriteStatusRequest:
        nonlocal status
        if status is None:
            async with exchange.body() as body:
                status = await message_of(body, pb.Status)
        current = uid
        if not current:
            # A status belongs to one incarnation: the current one, if the request names none.
            stored = await _read_within(exchange, pb.ReadRequest(id=target.message()))
            assert stored.id is not None
            current = stored.id.uid
        return pb.WriteStatusRequest(
            id=target.message(current), key=exchange.encoded_part("key"), status=status, version=version
        )

    async def write() -> Response:
        announced = pb.WriteStatusRequest(id=target.message())
        reply = await exchange.call(f"/{RESOURCE_SERVICE}/WriteStatus", requested, announced)
        return await long_answer(resource_steps(target.type, reply.resource))

    def outdated(error: HeadwayError) -> bool:
        # The incarnation that was current has been deleted since.
        return isinstance(error, NotFound) and not uid

    return await _repeated(write, outdated, target)


_READ = f"/{RESOURCE_SERVICE}/Read"


async def _target(exchange: Exchange, known: tuple[str, ...]) -> tuple[Target, Query]:
    """Return the resource that the request names, and its query."""
    type = await exchange.type()
    query = Query(exchange.request.scope["query_string"], known)
    partition, namespace = query.tenancy()
    default_partition, default_namespace = type.default_units
    id = ResourceId(type.name, exchange.part("name"), partition or default_partition, namespace or default_namespace)
    return Target(type, id), query


async def _change(exchange: Exchange) -> tuple[Target, Query]:
    """Return the resource that a request changes, and its query.

    A condition of HTTP is refused: the resource has no entity tag, and the change would be made without the condition.
    """
    for name in _CONDITIONS:
        if name in exchange.request.headers:
            raise invalid(f"the header {name} is not supported: name a version in the query, such as version=12")
    return await _target(exchange, _GUARDED)


async def _read(exchange: Exchange, target: Target, uid: str = "") -> pb.Resource:
    async def requested() -> pb.ReadRequest:
        return pb.ReadRequest(id=target.message(uid))

    read: pb.Resource = (await exchange.call(_READ, requested)).resource
    return read


async def _read_within(
    exchange: Exchange, request: pb.ReadRequest, requested: Callable[[], Awaitable[None]] | None = None
) -> pb.Resource:
    """Return a resource, for a write of the same request. Its refusal is final, and is the answer to the request.

    Args:
        request: the request of the read.
        requested: called before the read, once the caller's right to it has been checked.
    """

    async def ready() -> pb.ReadRequest:
        if requested is not None:
            await requested()
        return request

    try:
        found: pb.Resource = (await exchange.call(_READ, ready, request)).resource
    except HeadwayError as error:
        # Not an error of Headway: `_repeated` would take it for the error of the write.
        raise refusal_of(error) or error from None
    return found


async def _repeated(
    write: Callable[[], Awaitable[Response]], outdated: Callable[[HeadwayError], bool], target: Target
) -> Response:
    """Return the answer to a write of what the server has read, which is repeated while others change the resource.

    Args:
        write: reads and writes.
        outdated: returns True for an error that says only that the resource has changed since it was read. The caller
            must never get it: it names a version or a uid that the caller has not sent.
        target: the resource.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            await trio.sleep(chance.random() * _WAIT * 2**attempt)
        try:
            return await write()
        except HeadwayError as error:
            if not outdated(error):
                raise
    why = f"{target.id} was changed by others in each of {_ATTEMPTS} attempts; nothing was written: try again"
    raise NothingWritten(why)


async def _written(exchange: Exchange, target: Target, requested: Any, shown: Shown, announced: Any = None) -> Response:
    reply = await exchange.call(f"/{RESOURCE_SERVICE}/Write", requested, announced)
    return await long_answer(shown(target.type, reply.resource))


async def _write_request(target: Target, content: Content, version: str, uid: str) -> pb.WriteRequest:
    payload = target.type.payload() if content.data is None else content.data
    try:
        data = AnyMessage(type_url=target.type.type_url, value=await in_slices(encoding(payload)))
    except (PayloadError, InvalidArgument) as error:
        raise invalid(f"data: {error}") from None
    owner = None if content.owner is None else content.owner.message()
    id, metadata = target.message(uid), dict(content.metadata)
    return pb.WriteRequest(resource=pb.Resource(id=id, owner=owner, version=version, metadata=metadata, data=data))


def _agreed(name: str, in_query: str, in_body: str) -> str:
    """Return a value that may be in the query and in the body."""
    if in_query and in_body and in_query != in_body:
        raise invalid(f"{name} is {quoted(in_query)} in the query and {quoted(in_body)} in the body: keep one")
    return in_query or in_body


class _Merge:
    """A merge of the body of a request into the resource that it names.

    The caller's rights to write and to read are checked before the body is received. Then the merges of a resource take
    turns, so that each finds what the one before has written.

    Args:
        held: holds the body and the turn until the end of the request.
    """

    def __init__(self, exchange: Exchange, target: Target, query: Query, held: AsyncExitStack) -> None:
        self._exchange = exchange
        self._target = target
        self._held = held
        self._changes: Mapping | None = None
        # Those that the caller has sent. The body may have them, too.
        self._version, self._uid = query.condition("version"), query.condition("uid")

    async def requested(self) -> pb.WriteRequest:
        """Return the write of the resource as it is now, with the changes."""
        target, most = self._target, self._exchange.offered.limits.values
        stored = await _read_within(
            self._exchange, pb.ReadRequest(id=target.message(self._uid)), None if self._changes else self._receive
        )
        assert self._changes is not None
        assert stored.id is not None
        registry = self._exchange.known_types(None if stored.owner is None else type_name(stored.owner.type))
        document = merged(await _patchable(target, stored, registry, most), self._changes)
        assert isinstance(document, Mapping)
        check_values(document, most)
        content = await content_of_node(document, *target, registry)
        # The stored document has neither, so these are the caller's.
        self._version = _agreed("version", self._version, content.version)
        self._uid = _agreed("uid", self._uid, content.uid)
        return await _write_request(target, content, self._version or stored.version, self._uid or stored.id.uid)

    def outdated(self, error: HeadwayError) -> bool:
        """Return True if a write was refused because the resource has changed since it was read."""
        if isinstance(error, Conflict) and not isinstance(error, AlreadyExists):
            return not self._version
        return isinstance(error, WrongUid) and not self._uid

    async def _receive(self) -> None:
        exchange, target = self._exchange, self._target
        body = await self._held.enter_async_context(exchange.body())
        self._changes = await changes_of(body, target.type)
        turn = exchange.shares.turns.at((target.type.kind, target.id.key), exchange.offered.limits.answer_timeout)
        try:
            await self._held.enter_async_context(turn)
        except trio.TooSlowError:
            why = f"too many others change {target.id}; nothing was written: try again"
            raise NothingWritten(why) from None


async def _patchable(target: Target, stored: pb.Resource, registry: Registry, most_values: int) -> Mapping:
    """Return a stored resource as a document for a merge.

    Raises:
        HttpRefusal: it has more values than ``most_values``; or JSON cannot hold all of the payload, such as a field
            that this program doesn't know, or nanoseconds. Writing the merged form back would lose the rest.
    """
    whole = await in_slices(resource_steps(target.type, stored))
    current = await node_of_object({name: whole[name] for name in ("owner", "metadata", "data") if name in whole})
    value = b"" if stored.data is None else stored.data.value
    if current is not None and "data" in whole:
        check_values(current, most_values)
        data = replace(current, entries=tuple(entry for entry in current.entries if entry[0].text == "data"))
        # Decoding may drop a part of what is stored, such as unknown fields, so the bytes are compared.
        with suppress(HttpRefusal):
            held = (await content_of_node(data, *target, registry)).data
            if held is not None:
                encoded = await in_slices(encoding(held))
                if await in_slices(comparing_content(target.type.payload, encoded, value)):
                    return current
    raise HttpRefusal(
        409,
        "FAILED_PRECONDITION",
        f"{target.id} cannot be merged: JSON cannot hold all of its stored payload, such as fields that this server "
        "doesn't know, or a time of more digits than microseconds; write the whole resource with PUT, or use gRPC",
    )
