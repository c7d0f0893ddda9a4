"""Reading many resources: a list of one revision over a network, built without blocking the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import trio

from headway.api import (
    FAILED,
    Call,
    Channel,
    Code,
    Interrupted,
    LimitedWaits,
    ResourceApi,
    code_of,
    metadata_terms,
    timeout_of,
)
from headway.base import in_order
from headway.client._refusals import client_error
from headway.client._writes import Allow
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied, RateLimited
from headway.resource import (
    EndOfSnapshot,
    Position,
    Registry,
    Resource,
    ResourceId,
    ResourceType,
    SnapshotChunk,
    pb,
    resource_id,
    resource_key,
    selector_problem,
)

T = TypeVar("T")
R = TypeVar("R")
Get = Callable[[ResourceType[Any], ResourceId], Awaitable[Resource[Any] | None]]

TURN = 1000
"""The number of results to make between two checkpoints, which takes a millisecond or two."""

# The caller may list but not watch, the server has no watches, or the channel can't decode them.
_NO_WATCH = (Code.PERMISSION_DENIED, Code.UNIMPLEMENTED)


class Snapshot(NamedTuple):
    """The resources that existed at ``position``, sorted by key."""

    resources: list[pb.Resource]
    position: Position


async def read_snapshot(
    channel: Channel, request: pb.ListRequest, metadata: Mapping[str, str] | None, allow: Allow | None = None
) -> Snapshot | None:
    """Return the reply of an unpaged List, or None if the caller has to call List.

    That is so within a process, where a list needs no stream, and if the caller can't watch.

    A large list may take as long as it needs, but not without any data for the channel's timeout. If a limit of the
    server refuses it, it is repeated until that timeout.

    Raises:
        HeadwayError: the call failed, or ``allow`` forbids it.
    """
    if channel.knows_outcomes:
        return None
    if allow is not None:
        allow(request)
    waits = LimitedWaits(timeout_of(channel))
    while True:
        try:
            try:
                return await _read_once(channel, request, metadata)
            except RateLimited as refused:
                await waits.wait(refused)
        except HeadwayError as error:
            if code_of(error) in _NO_WATCH:
                return None
            if isinstance(error, FAILED):
                raise client_error(error) from error
            error.failed_call = None
            raise


async def _read_once(channel: Channel, request: pb.ListRequest, metadata: Mapping[str, str] | None) -> Snapshot:
    terms, seconds = metadata_terms(request.metadata_filter), timeout_of(channel)
    watch = pb.WatchListRequest(
        type=request.type, tenancy=request.tenancy, name_prefix=request.name_prefix, snapshot_only=True
    )
    if selector_problem("filter", request.metadata_filter) is None:
        # A server that knows the field sends less. The terms are compared in any case.
        watch.metadata_filter = request.metadata_filter
    resources: list[pb.Resource] = []
    async with ResourceApi.over(channel).watch_list(Call(metadata), watch) as items:
        while True:
            item: object = None
            with trio.move_on_after(seconds) as scope:
                item = await anext(items, None)
            if scope.cancelled_caught:
                raise Interrupted(Code.DEADLINE_EXCEEDED, f"WatchList timed out: no data of the list for {seconds} s")
            if isinstance(item, SnapshotChunk):
                resources += [each for each in item.resources if all(term(each.metadata) for term in terms)]
            elif isinstance(item, EndOfSnapshot):
                break
            elif item is None:
                raise Interrupted(Code.UNAVAILABLE, "WatchList ended before the whole list had arrived")
    return Snapshot(await in_order(resources, resource_key), item.position)


async def in_turns(make: Callable[[T], R], of: list[T]) -> list[R]:
    """Replace each element of the list by ``make(each)``, with a checkpoint after every ``TURN``, and return the list.

    A new list would be quicker to make. But the old one would then be freed at once, which for a long list blocks the
    loop for many turns.
    """
    made: list[Any] = of
    for begin in range(0, len(of), TURN):
        if begin:
            await trio.lowlevel.checkpoint()
        made[begin : begin + TURN] = map(make, of[begin : begin + TURN])
    return made


async def in_registered_versions(get: Get, registry: Registry, messages: Sequence[pb.Resource]) -> list[Resource[Any]]:
    """Return the resources as registered types, without those that can't be converted. ``get`` reads one anew."""
    found: list[Resource[Any]] = []
    for number, message in enumerate(messages, 1):
        made = await _in_registered_version(get, registry, message)
        if made is not None:
            found.append(made)
        if number % TURN == 0:
            await trio.lowlevel.checkpoint()
    return found


async def _in_registered_version(get: Get, registry: Registry, message: pb.Resource) -> Resource[Any] | None:
    """Return the resource as a registered type, or None if it can't be converted. It may take another call."""
    id = resource_id(message.id)
    if id.type in registry:
        return registry.resolve(id.type).view(message)
    for type in registry:
        if type.kind == id.type.unversioned:
            try:
                return await get(type, id._replace(type=type.name))
            except (InvalidArgument, PermissionDenied):
                # The server can't convert to that version, or the caller may not read it.
                continue
    return None
