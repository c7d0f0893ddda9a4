"""What was deleted while no run was there, from the store's history (C6, across runs)."""

from __future__ import annotations

from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

from headway.cache import Applied
from headway.client import client_error
from headway.errors import Unavailable
from headway.events import DeletionsUnknown, Report
from headway.resource import Bookmark, Changes, Position, ResourceType, resource_key
from headway.rpc import Channel
from headway.watch import WATCH_LIST, StreamMachine, watch_request


async def deletions_since(
    channel: Channel, type: ResourceType[Any], since: Position, until: int, report: Report, controller: str
) -> list[Applied]:
    """The deletions of a type after ``since`` and up to ``until``, each with the resource as it last was.

    Where the store's history doesn't reach back that far they can't be known; that is reported, and the answer is
    empty: then only a finalizer keeps a deletion from being missed. Raises Unavailable when the stream fails.
    """
    machine = StreamMachine(since.store_id, since)
    deleted: list[Applied] = []
    try:
        async with channel.stream(WATCH_LIST, watch_request(type, since)) as items:
            async for item in items:
                checked = machine.feed(item)
                if isinstance(checked, Changes):
                    deleted += [
                        Applied(resource_key(change.resource), change.resource, None, change.revision)
                        for change in checked.changes
                        if change.deleted and change.revision <= until
                    ]
                elif checked is not None and not isinstance(checked, Bookmark):
                    report(DeletionsUnknown(controller, type.name, since.revision, "the server can't resume"))
                    return []
                if machine.told >= until:
                    return deleted
    except GRPCError as error:
        if error.status not in (Status.OUT_OF_RANGE, Status.DATA_LOSS):
            raise client_error(error) from error
        report(DeletionsUnknown(controller, type.name, since.revision, error.message or error.status.name))
        return []
    raise Unavailable(f"the server has ended the stream of {type.name} at {machine.told}, before revision {until}")
