"""The recorder of a process's events, from before its controllers start until they have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.client import Client
from headway.events import Report
from headway.resource import Registry
from headway.rpc import Channel
from headway.run import EventRecorder


@asynccontextmanager
async def recorded_events(channel: Channel, registry: Registry, report: Report) -> AsyncIterator[EventRecorder]:
    """Yield the recorder. When the block ends, write what is left, for at most two seconds.

    The caller starts `EventRecorder.run` in its nursery. Its client has no fence: an event may be written late, by a
    run that has been superseded, and is still true.
    """
    recorder = EventRecorder(Client(channel, registry), registry, report)
    try:
        yield recorder
    finally:
        await recorder.finish()
