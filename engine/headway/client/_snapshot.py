"""A list over a network: the snapshot of a watch, which is of one revision and never one large message."""

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

# A caller who may list and not watch, a server that has no watches, and a channel that can't decode them.
_NO_WATCH = (Status.PERMISSION_DENIED, Status.UNIMPLEMENTED)


class Snapshot(NamedTuple):
    """What was there at ``position``, in order of key."""

    resources: list[pb.Resource]
    position: Position


async def read_snapshot(
    channel: Channel, request: pb.ListRequest, metadata: Mapping[str, str] | None
) -> Snapshot | None:
    """Return what an unpaged List would answer with, or None where the caller can't watch: then List has to do.

    It may take as long as it needs. Raises GRPCError of status DEADLINE_EXCEEDED when nothing has come for the
    channel's timeout.
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
                        Status.DEADLINE_EXCEEDED, f"{WATCH_LIST}: nothing more of the list has come in {patience} s"
                    )
                if isinstance(item, SnapshotChunk):
                    resources += [each for each in item.resources if all(term(each.metadata) for term in terms)]
                elif isinstance(item, EndOfSnapshot):
                    break
                elif item is None:
                    raise GRPCError(Status.UNAVAILABLE, f"{WATCH_LIST} has ended before all of the list had come")
    except GRPCError as error:
        if error.status in _NO_WATCH:
            return None
        raise
    return Snapshot(await in_order(resources, resource_key), item.position)
