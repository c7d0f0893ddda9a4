"""The verbs of one resource: read, write, merge, delete, and write a status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status
from starlette.responses import Response

from headway.errors import InvalidArgument, PayloadError
from headway.http._answer import answer
from headway.http._document import changes_of, check_values, content_of, merged_content, message_of, resource_object
from headway.http._offered import Exchange, Target
from headway.http._query import Query
from headway.http._refusal import HttpRefusal, invalid
from headway.manifest import Content
from headway.protobuf import encode, same_content
from headway.resource import AnyMessage, Registry, ResourceId, ResourceType, pb, quoted, type_name
from headway.service import RESOURCE_SERVICE

_TENANCY = ("partition", "namespace", "ns")
_GUARDED = (*_TENANCY, "version", "uid")
# The number of times that a merge is attempted while others change the resource.
_ATTEMPTS = 8
_MERGES = ("application/merge-patch+json", "application/json", "application/x-www-form-urlencoded", "")
Shown = Callable[[ResourceType[Any], pb.Resource], dict[str, Any]]
"""The form in which an answer has a written resource."""


async def get(exchange: Exchange) -> Response:
    """Answer with a resource."""
    # Every read is consistent, so the parameter has no effect.
    target, query = await _target(exchange, (*_TENANCY, "uid", "consistent"))
    query.flag("consistent")
    return answer(200, resource_object(target.type, await _read(exchange, target, query.text("uid"))))


async def put(exchange: Exchange, shown: Shown = resource_object) -> Response:
    """Write a resource, and answer with it as ``shown`` makes it."""
    target, query = await _target(exchange, _GUARDED)

    async def requested() -> pb.WriteRequest:
        content = content_of(await exchange.body(), target.type, target.id, exchange.known_types())
        version = _agreed("version", query.text("version"), content.version)
        return _write_request(target, content, version, _agreed("uid", query.text("uid"), content.uid))

    announced = pb.WriteRequest(resource=pb.Resource(id=target.message()))
    return await _written(exchange, target, requested, shown, announced)


async def patch(exchange: Exchange, shown: Shown = resource_object) -> Response:
    """Merge the body into a resource (RFC 7396), and answer with it as ``shown`` makes it."""
    target, query = await _target(exchange, _GUARDED)
    kind = exchange.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _MERGES:
        raise HttpRefusal(
            415, "INVALID_ARGUMENT", f"content-type {quoted(kind)} is not supported: use {_MERGES[0]} (RFC 7396)"
        )
    changes: dict[str, Any] = {}

    async def first() -> pb.ReadRequest:
        changes.update(changes_of(await exchange.body(), target.type))
        return pb.ReadRequest(id=target.message(query.text("uid")))

    most = exchange.offered.limits.values
    stored: pb.Resource = (await exchange.call(_READ, first, pb.ReadRequest(id=target.message()))).resource
    for attempt in range(1, _ATTEMPTS + 1):
        registry = exchange.known_types(None if stored.owner is None else type_name(stored.owner.type))
        document = _merge(_patchable(target, stored, registry, most), changes)
        check_values(document, most)
        merged = merged_content(document, *target, registry)
        # The stored document has neither, so these are the caller's.
        version = _agreed("version", query.text("version"), merged.version)
        uid = _agreed("uid", query.text("uid"), merged.uid)
        assert stored.id is not None
        write = _write_request(target, merged, version or stored.version, uid or stored.id.uid)

        async def requested(write: pb.WriteRequest = write) -> pb.WriteRequest:
            return write

        try:
            return await _written(exchange, target, requested, shown)
        except GRPCError as error:
            if error.status is not Status.ABORTED or version or attempt == _ATTEMPTS:
                raise
        stored = await _read(exchange, target, query.text("uid"))
    raise AssertionError("the last attempt returns or raises")


async def delete(exchange: Exchange) -> Response:
    """Delete a resource, or mark it for deletion. Both are answered without content, as by Consul."""
    target, query = await _target(exchange, _GUARDED)

    async def requested() -> pb.DeleteRequest:
        return pb.DeleteRequest(id=target.message(query.text("uid")), version=query.text("version"))

    await exchange.call(f"/{RESOURCE_SERVICE}/Delete", requested)
    return answer(204)


async def put_status(exchange: Exchange) -> Response:
    """Write a status of a resource, and answer with the resource."""
    target, query = await _target(exchange, _GUARDED)
    uid = query.text("uid")
    if not uid:
        # A status belongs to one incarnation: the current one, if the request names none.
        stored = await _read(exchange, target)
        assert stored.id is not None
        uid = stored.id.uid

    async def requested() -> pb.WriteStatusRequest:
        status = message_of(await exchange.body(), pb.Status)
        return pb.WriteStatusRequest(
            id=target.message(uid), key=exchange.part("key"), status=status, version=query.text("version")
        )

    announced = pb.WriteStatusRequest(id=target.message(uid))
    reply = await exchange.call(f"/{RESOURCE_SERVICE}/WriteStatus", requested, announced)
    return answer(200, resource_object(target.type, reply.resource))


_READ = f"/{RESOURCE_SERVICE}/Read"


async def _target(exchange: Exchange, known: tuple[str, ...]) -> tuple[Target, Query]:
    """Return the resource that the request names, and its query."""
    type = await exchange.type()
    query = Query(exchange.request.scope["query_string"], known)
    partition, namespace = query.tenancy()
    default_partition, default_namespace = type.default_units
    id = ResourceId(type.name, exchange.part("name"), partition or default_partition, namespace or default_namespace)
    return Target(type, id), query


async def _read(exchange: Exchange, target: Target, uid: str = "") -> pb.Resource:
    async def requested() -> pb.ReadRequest:
        return pb.ReadRequest(id=target.message(uid))

    read: pb.Resource = (await exchange.call(_READ, requested)).resource
    return read


async def _written(exchange: Exchange, target: Target, requested: Any, shown: Shown, announced: Any = None) -> Response:
    reply = await exchange.call(f"/{RESOURCE_SERVICE}/Write", requested, announced)
    return answer(200, shown(target.type, reply.resource))


def _write_request(target: Target, content: Content, version: str, uid: str) -> pb.WriteRequest:
    payload = target.type.payload() if content.data is None else content.data
    try:
        data = AnyMessage(type_url=target.type.type_url, value=encode(payload))
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


def _patchable(target: Target, stored: pb.Resource, registry: Registry, most_values: int) -> dict[str, Any]:
    """Return a stored resource as JSON for a merge.

    Raises:
        HttpRefusal: it has more values than ``most_values``; or JSON cannot hold all of the payload, such as a field
            that this program doesn't know, or nanoseconds. Writing the merged form back would lose the rest.
    """
    whole = resource_object(target.type, stored)
    current: dict[str, Any] = {name: whole[name] for name in ("owner", "metadata", "data") if name in whole}
    value = b"" if stored.data is None else stored.data.value
    check_values(current, most_values)
    if "data" in current:
        # Decoding may drop a part of what is stored, such as unknown fields, so the bytes are compared.
        with suppress(HttpRefusal):
            held = merged_content({"data": current["data"]}, *target, registry).data
            if held is not None and same_content(target.type.payload, encode(held), value):
                return current
    raise HttpRefusal(
        409,
        "FAILED_PRECONDITION",
        f"{target.id} cannot be merged: JSON cannot hold all of its stored payload, such as fields that this server "
        "doesn't know, or a time of more digits than microseconds; write the whole resource with PUT, or use gRPC",
    )


def _merge(stored: Any, changes: Any) -> Any:
    """Return a value with the changes of a merge patch: null removes a member, and objects are merged."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(stored) if isinstance(stored, dict) else {}
    for name, change in changes.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), change)
    return merged
