"""The start of a run's caches: the wait for each type, and the deletions that the run has missed (C1, C6).

A deletion that happened while no run was active is in no cache. It is read from the store's history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._bounded_report import BoundedReport
from headway.cache import WATCH_LIST, Applied, Informer, OnFailure, StreamMachine, watch_request
from headway.client import client_error
from headway.errors import PrimingStalled, Unavailable
from headway.events import DeletionsUnknown, IndexFailed, Report
from headway.resource import ANY_VERSIONS, Bookmark, Changes, Key, Position, ResourceType, TypeName, resource_key
from headway.rpc import Channel

_SILENCE = 30.0
"""The time, in seconds, after which a stream that has sent nothing counts as failed."""

Deletions = dict[TypeName, list[Applied]]
"""Deletions by type, in order of revision."""


async def deletions_since(
    channel: Channel, type: ResourceType[Any], since: Position, until: int, report: Report, controller: str
) -> list[Applied] | None:
    """Return the deletions of a type after ``since`` and up to ``until``, each with the last state of the resource.

    If the store's history does not reach back that far, report it and return None. In that case only a finalizer keeps
    deletions from being missed. Raises Unavailable if the stream fails or is silent for `_SILENCE` seconds. That ends
    the run, and the next one reads the deletions again.
    """
    machine = StreamMachine(since.store_id, since)
    deleted: list[Applied] = []
    # Deletions count regardless of the versions that the previous run used.
    since = since._replace(versions=ANY_VERSIONS)
    try:
        async with channel.stream(WATCH_LIST, watch_request(type, since)) as items:
            while (item := await _next(items, type)) is not None:
                checked = machine.feed(item)
                if isinstance(checked, Changes):
                    deleted += [
                        Applied(resource_key(change.resource), change.resource, None, change.revision)
                        for change in checked.changes
                        if change.deleted and change.revision <= until
                    ]
                elif checked is not None and not isinstance(checked, Bookmark):
                    report(DeletionsUnknown(controller, type.name, since.revision, "the server can't resume"))
                    return None
                if machine.told >= until:
                    return deleted
    except GRPCError as error:
        if error.status not in (Status.OUT_OF_RANGE, Status.DATA_LOSS):
            raise client_error(error) from error
        report(DeletionsUnknown(controller, type.name, since.revision, error.message or error.status.name))
        return None
    raise Unavailable(f"the server ended the stream of {type.name} at {machine.told}, before revision {until}")


async def _next(items: AsyncIterator[Any], type: ResourceType[Any]) -> Any:
    """Return the next item of a stream, or None at its end."""
    with trio.move_on_after(_SILENCE):
        return await anext(items, None)
    raise Unavailable(f"the stream of {type.name} sent nothing of its history for {_SILENCE:g} s")


async def wait_primed(shared: Informer, revision: int, stall_limit: float) -> None:
    """Wait until a type is primed up to a revision.

    A large type may take as long as it needs. Raises PrimingStalled only if nothing arrives for ``stall_limit``
    seconds.
    """
    while True:
        heard = shared.heard
        with trio.move_on_after(stall_limit):
            await shared.wait_complete(revision)
            return
        if shared.heard == heard:
            why = f"; {shared.cut_off[0]}" if shared.cut_off else ""
            raise PrimingStalled(
                f"priming {shared.type.name} stalled: nothing was received for {stall_limit} s; "
                f"{shared.resources} resources have arrived, and its revision is {shared.frontier} of {revision}{why}"
            )


def report_indexes(bounded: BoundedReport, controller: str, type: TypeName) -> OnFailure:
    """Return a function that reports failures of a controller's indexes on a type."""

    def report(index: str, key: Key, error: BaseException) -> None:
        bounded(IndexFailed, of=(type, index), controller=controller, index=index, type=type, key=key, error=error)

    return report
