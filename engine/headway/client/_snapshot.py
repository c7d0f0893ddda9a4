"""Listing over a network, by the snapshot of a watch. It is of one revision, and is not one large message."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.resource import EndOfSnapshot, Position, SnapshotChunk, pb, resource_key
from headway.rpc import Channel
from headway.service import WATCH_LIST, metadata_terms
from headway.storage import in_order

# The caller may list but not watch, the server has no watches, or the channel can't decode them.
_NO_WATCH = (Status.PERMISSION_DENIED, Status.UNIMPLEMENTED)


class Snapshot(NamedTuple):
    """The resources that existed at ``position``, sorted by key."""

    resources: list[pb.Resource]
    position: Position


async def read_snapshot(
    channel: Channel, request: pb.ListRequest, metadata: Mapping[str, str] | None
) -> Snapshot | None:
    """Return the reply of an unpaged List, or None if the caller can't watch and has to call List.

    A large list may take as long as it needs.

    Raises:
        GRPCError: the call failed. The status is DEADLINE_EXCEEDED if nothing arrived for the channel's timeout.
    """
    terms = metadata_terms(request.metadata_filter)
    patience: float = getattr(channel, "timeout", math.inf)
    watch = pb.WatchListRequest(
        type=request.type, tenancy=request.tenancy, name_prefix=request.name_prefix, snapshot_only=True
    )
    resources: list[pb.Resource] = []
    try:
        async with channel.stream(WATCH_LIST, watch, metadata=metadata) as items:
            while True:
                item: object = None
                with trio.move_on_after(patience) as scope:
                    item = await anext(items, None)
                if scope.cancelled_caught:
                    raise GRPCError(
                        Status.DEADLINE_EXCEEDED, f"{WATCH_LIST} timed out: no data of the list for {patience} s"
                    )
                if isinstance(item, SnapshotChunk):
                    resources += [each for each in item.resources if all(term(each.metadata) for term in terms)]
                elif isinstance(item, EndOfSnapshot):
                    break
                elif item is None:
                    raise GRPCError(Status.UNAVAILABLE, f"{WATCH_LIST} ended before the whole list had arrived")
    except GRPCError as error:
        if error.status in _NO_WATCH:
            return None
        raise
    return Snapshot(await in_order(resources, resource_key), item.position)
