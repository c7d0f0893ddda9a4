"""The source of a sender: a subscription to the exports in this process, for each feed."""

from __future__ import annotations

from collections.abc import Callable

import trio

from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway._gen.headway.peering.v1 import PeerPosition
from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.api import Call, Code, Interrupted, ResourceApi, call_of, code_of
from headway.errors import HeadwayError, InvalidArgument, NotFound
from headway.peering._host import PeeringHost
from headway.peering._types import PEERING
from headway.peering.stream import Exported, Feed, Sender, doubling
from headway.resource import Position, ResourceId, pb
from headway.subscribing import SubscribeService
from headway.subscription import NewSnapshot, Reached, SnapshotComplete, SubscriptionItem, SubscriptionPosition

READ = "/headway.resource.v1.ResourceService/Read"
LASTED = 60.0
"""A subscription that fails after this many seconds is opened again after the shortest delay."""

_NONE = "none"
"""A selection that no subscription has. The position must be in the history of the store, and a snapshot follows."""

PROGRESS_MS = 5000
"""The interval, in milliseconds, of the positions that are sent while nothing exported changes."""


class Exporter:
    """The source of one sender.

    Args:
        fed: called after the sender was fed.

    Attributes:
        problem: why the exports cannot be read; empty if they can.
    """

    def __init__(self, host: PeeringHost, sender: Sender, fed: Callable[[], None]) -> None:
        self._host = host
        self._sender = sender
        self._fed = fed
        self._scope = trio.CancelScope()
        self._number = 0
        self._woken = trio.Event()
        self.problem = ""

    def look(self) -> None:
        """Follow the sender, which may want another feed or the next item of this one."""
        wanted = self._sender.wanted
        if self._number and (wanted is None or wanted.number != self._number):
            self._scope.cancel()
        self._woken.set()

    async def run(self) -> None:
        """Feed the sender until canceled."""
        failures = 0
        while True:
            wanted = self._sender.wanted
            if wanted is None:
                await self._wait()
                continue
            began = trio.current_time()
            with trio.CancelScope() as self._scope:
                self._number = wanted.number
                try:
                    await self._feed(wanted)
                except HeadwayError as error:
                    call = call_of(error)
                    if call is None:
                        raise
                    self.problem = call.message
                    now = trio.current_time()
                    failures = 0 if now - began >= LASTED else failures
                    self._sender.interrupt(wanted.number, now + doubling(failures))
                    failures += 1
                    self._fed()
            self._number = 0

    async def read(self, id: ResourceId) -> pb.Resource | None:
        """Return the current state of an exported resource, or None."""
        try:
            reply = await ResourceApi.over(self._host.channel).read(Call(), pb.ReadRequest(id=id.message()))
        except (NotFound, InvalidArgument):
            return None
        return reply.resource

    async def _wait(self) -> None:
        self._woken = trio.Event()
        await self._woken.wait()

    async def _feed(self, feed: Feed) -> None:
        _, here = await self._host.backend.read(PEERING.kind, ("", "", ""))
        if not feed.exports:
            self._sender.begin(feed.number, Cause.FIRST, here, "")
            await self._add(feed, SnapshotComplete(SubscriptionPosition(here)))
            await trio.sleep_forever()
        after = feed.resume_after
        try:
            await self._follow(feed, after, here, lost=False)
        except Interrupted as error:
            if after is None or code_of(error) is not Code.DATA_LOSS:
                raise
            await self._follow(feed, None, here, lost=True, reason=str(error))

    async def _follow(
        self, feed: Feed, after: PeerPosition | None, here: Position, *, lost: bool, reason: str = ""
    ) -> None:
        request = subscribe_pb.SubscribeRequest(
            subjects=subjects_of(feed.exports),
            resume_after=None if after is None else _position(after),
            progress_interval_ms=PROGRESS_MS,
        )
        begun = after is None
        if begun:
            self._sender.begin(feed.number, Cause.LOST if lost else Cause.FIRST, here, "", reason)
        async with SubscribeService.over(self._host.channel).subscribe(Call(), request) as items:
            async for item in items:
                self.problem = ""
                if isinstance(item, NewSnapshot):
                    _, here = await self._host.backend.read(PEERING.kind, ("", "", ""))
                    self._sender.begin(feed.number, Cause.COMPACTED, here, "", item.reason)
                    begun = True
                    continue
                if not begun:
                    assert isinstance(item, Reached)
                    self._sender.begin(feed.number, Cause.RESUMED, here, "")
                    begun = True
                await self._add(feed, item)
        raise Interrupted(Code.UNAVAILABLE, "the subscription to the exports has ended")

    async def _add(self, feed: Feed, item: SubscriptionItem) -> None:
        self._sender.feed(feed.number, item)
        self._fed()
        while not self._sender.hungry:
            await self._wait()


def subjects_of(exports: tuple[Exported, ...]) -> list[subscribe_pb.Subject]:
    """Return the subjects of a subscription to exports."""
    return [
        subscribe_pb.Subject(
            type=each.type.message(),
            within=subscribe_pb.Within(tenancy=pb.Tenancy(partition=each.partition, namespace=each.namespace)),
        )
        for each in exports
    ]


def _position(after: PeerPosition) -> subscribe_pb.Position:
    store = pb.Position(store_id=after.store_id, incarnation=after.session, revision=after.revision)
    return subscribe_pb.Position(store=store, selection=after.selection or _NONE)
