"""The controller of peer streams: it dials, admits the dialers of other engines, and writes the conditions.

Where several processes share a store, it runs in one of them at a time. Only that one has streams.
"""

from __future__ import annotations

import datetime
from functools import partial
from weakref import WeakKeyDictionary

import trio

from headway._gen.headway.peering import v1 as wire
from headway.base import utc_now
from headway.controller import App, Enqueue
from headway.errors import HeadwayError
from headway.events import PeerNotNotified
from headway.peering._host import PeeringHost
from headway.peering._hub import CLOSED, DELETED, Entry, StreamEnded
from headway.peering._secrets import TERMINATED_FOR
from headway.peering._types import PEERING, STREAM_KEY, TERMINATED, condition_of
from headway.peering.links._conditions import conditions_of
from headway.peering.links._dialer import Dialer
from headway.peering.links._importing import forget_imports, open_importer
from headway.peering.links._leader import publish_leader
from headway.peering.stream import PeerLimits
from headway.queue import Backoff
from headway.reconcile import Request, Runtime
from headway.resource import DELETION_TIMESTAMP, ConditionState, Resource

NAME = "peer-streams"
FINALIZER = STREAM_KEY
TELLING = 5.0
"""The time, in seconds, that notifying the other side of a deletion over the open stream may take."""


class _Streams:
    """The streams of one run."""

    def __init__(self, host: PeeringHost) -> None:
        self.host = host
        self.opened = trio.Event()
        self.nursery: trio.Nursery | None = None
        self.enqueue: Enqueue | None = None
        self.dialers: dict[str, trio.CancelScope] = {}

    async def run(self) -> None:
        """Hold the tasks of the run, until canceled."""
        streams = self.host.streams
        async with trio.open_nursery() as self.nursery:
            streams.lead()
            try:
                self.opened.set()
                await self.host.listening.wait()
                await publish_leader(self.host)
                await trio.sleep_forever()
            finally:
                streams.resign()

    def keep(self, peering: Resource[wire.Peering], limits: PeerLimits) -> Entry:
        """Return the entry of a Peering, with its dialer if it dials."""
        uid, entries = peering.id.uid, self.host.streams.entries
        entry = entries.get(uid)
        if entry is None:
            assert self.enqueue is not None
            entry = entries[uid] = Entry(peering, partial(self.enqueue, peering.id.without_uid()))
            known = condition_of(peering, STREAM_KEY, TERMINATED)
            entry.terminated = known is not None and known.state is ConditionState.TRUE
        entry.update(peering)
        if peering.data.role is wire.Role.DIALS and uid not in self.dialers:
            self.dialers[uid] = trio.CancelScope()
            assert self.nursery is not None
            self.nursery.start_soon(self._dial, entry, limits, name=f"peer dialer of {peering.name}")
        return entry

    async def _dial(self, entry: Entry, limits: PeerLimits) -> None:
        with self.dialers[entry.peering.id.uid]:
            await Dialer(self.host, entry, limits).run()

    async def drop_earlier(self, name: str, uid: str) -> None:
        """End the streams and dialers of earlier peerings of this name, whose finalizers a caller has removed."""
        entries = self.host.streams.entries.items()
        for other in [each for each, entry in entries if entry.peering.name == name and each != uid]:
            await self.drop(other)

    async def leave(self, peering: Resource[wire.Peering], limits: PeerLimits) -> Entry | None:
        """Notify the other side that a Peering is being deleted, and end its stream.

        Returns:
            The entry of a dialing Peering whose other side may not know of it. Its dialer tries again. Otherwise None.
        """
        if peering.data.role is not wire.Role.DIALS:
            # The dialer learns of it when it returns: its secret stays valid for that.
            await self.drop(peering.id.uid)
            return None
        entry = self.keep(peering, limits)
        if entry.connected or not entry.leaving:
            with trio.move_on_after(TELLING):
                await entry.terminate()
        late = utc_now() - datetime.datetime.fromisoformat(peering.metadata[DELETION_TIMESTAMP]) > TERMINATED_FOR
        if late and not (entry.notified or entry.terminated):
            why = str(entry.ended or "no stream could be opened")
            self.host.report(PeerNotNotified, peering=peering.name, why=why)
        elif not (entry.notified or entry.terminated):
            return entry
        await self.drop(peering.id.uid)
        return None

    async def drop(self, uid: str) -> None:
        """End the stream and the dialer of a Peering. If the stream is open, notify the other side first."""
        entry = self.host.streams.entries.pop(uid, None)
        if entry is None:
            return
        with trio.move_on_after(TELLING):
            await entry.terminate()
        if (scope := self.dialers.pop(uid, None)) is not None:
            scope.cancel()
        entry.close(StreamEnded(DELETED, "the peering was deleted"))


def add_peer_streams(app: App, host: PeeringHost, limits: PeerLimits | None = None) -> None:
    """Declare the controller."""
    bounds = limits or PeerLimits()
    runs: WeakKeyDictionary[Runtime, _Streams] = WeakKeyDictionary()

    async def hold(rt: Runtime, enqueue: Enqueue) -> None:
        run = runs.setdefault(rt, _Streams(host))
        run.enqueue = enqueue
        await run.run()

    @app.controller(manages=PEERING, sources={"streams": hold}, concurrency=4, backoff=Backoff(0.05, 30.0), name=NAME)
    async def peer_streams(rt: Runtime, request: Request) -> None:
        peering = rt.cache.get(PEERING, request.id)
        run = runs.setdefault(rt, _Streams(host))
        await run.opened.wait()
        await run.drop_earlier(request.id.name, "" if peering is None else peering.id.uid)
        if peering is None:
            return
        if peering.is_deleting and FINALIZER in peering.finalizers:
            left = await run.leave(peering, bounds)
            await forget_imports(host, peering.id.uid)
            if left is not None:
                # The finalizer stays until the other side knows. A caller may remove it.
                await rt.client.write_status(peering, STREAM_KEY, conditions_of(left))
                return
        async with rt.finalizer(peering, FINALIZER) as guarded:
            pass
        if not guarded.alive:
            await run.drop(peering.id.uid)
            return
        entry = run.keep(guarded.resource, bounds)
        if entry.terminated and not entry.connected:
            await _clear(host, entry, bounds)
        await rt.client.write_status(guarded.resource, STREAM_KEY, conditions_of(entry))


async def _clear(host: PeeringHost, entry: Entry, limits: PeerLimits) -> None:
    """Remove the copies of a peering that the other side has deleted."""
    try:
        importer = await open_importer(host, entry.peering, limits)
    except HeadwayError as error:
        entry.ended = StreamEnded(CLOSED, str(error))
        return
    await importer.clear()
