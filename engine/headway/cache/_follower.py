"""Keep one stream of a type going: open, resume, reconnect, and leave a server that lags."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.cache._stream import FalseBookmark, StreamBroken, StreamMachine
from headway.errors import StoreChanged, StoreRolledBack, Unavailable
from headway.events import BookmarkRefused, Report, StreamEnded, StreamLagging, StreamOpened
from headway.resource import Position, ResourceType, Scope, SnapshotChunk, StreamItem, pb
from headway.rpc import Channel, Lagging

WATCH_LIST = "/headway.resource.v1.ResourceService/WatchList"
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
_BOOKMARK_INTERVAL_MS = 50
"""A change waits until the controller's other types are told as far (C4), so this is what a reconcile may come later
under a stream of changes. The first bookmark after a quiet time isn't held back.
"""


class Sink(Protocol):
    """Where a stream's items go, and where it must go on."""

    @property
    def store_id(self) -> str:
        """The store that the held data is of; empty: none yet."""
        ...

    @property
    def resume_after(self) -> Position | None:
        """Where the next stream should go on; None: it must begin with a snapshot."""
        ...

    @property
    def known(self) -> Position | None:
        """The newest position that what is held rests on, or None: a store that was never there went back."""
        ...

    @property
    def distrusted(self) -> bool:
        """Whether what has been told may be incomplete: only a snapshot that the sink applies mends it."""
        ...

    @property
    def frontier(self) -> int:
        """The revision up to which the sink is complete."""
        ...

    def restart(self) -> None:
        """A new stream has been opened: forget what a snapshot that never ended had brought."""
        ...

    def distrust(self) -> None:
        """What has been told may be incomplete: don't resume, take a snapshot."""
        ...

    def feed(self, item: StreamItem) -> None:
        """Apply an item."""
        ...

    def interrupted(self, why: str, *, denied: bool = False) -> None:
        """A stream has ended, and another one is opened; or (empty) one brings items again.

        ``denied``: the server has refused the stream, because the caller lacks a right.
        """
        ...


def watch_request(
    type: ResourceType[Any],
    resume_after: Position | None = None,
    bookmark_interval_ms: int = 0,
    known: Position | None = None,
) -> pb.WatchListRequest:
    """The request for everything of a type.

    Args:
        bookmark_interval_ms: 0: a bookmark whenever there is one to tell.
        known: a position which the store must have stood at.
    """
    return pb.WatchListRequest(
        type=type.name.message(),
        tenancy=pb.Tenancy(
            partition="" if type.scope is Scope.CLUSTER else "*",
            namespace="*" if type.scope in (Scope.NAMESPACE, Scope.UNDEFINED) else "",
        ),
        resume_after=None if resume_after is None else resume_after.message(),
        bookmark_interval_ms=bookmark_interval_ms,
        bookmarks=True,
        known=None if known is None or known == resume_after else known.message(),
    )


class Follower:
    """Feeds a sink from WatchList streams, one after the other, for ever.

    A stream that lags is left by `rpc.Lagging`, so that the channel opens the next one at another server.

    Args:
        channel: where the streams come from; each new stream may come from another server.
        report: hears of streams that open, end and lag.
        linearizable: reads the position at which the store really stands; raises Unavailable when it can't, and
            StoreRolledBack when it has never stood at the one that it is given, if it is given any.
        lag_limit: seconds that a stream may stand below the sink's frontier, or say nothing while the store goes on,
            before it is closed.
    """

    def __init__(
        self,
        type: ResourceType[Any],
        channel: Channel,
        sink: Sink,
        report: Report,
        linearizable: Callable[[Position | None], Awaitable[Position]],
        lag_limit: float,
    ) -> None:
        self._type = type
        self._channel = channel
        self._sink = sink
        self._report = report
        self._linearizable = linearizable
        self._lag_limit = lag_limit
        self._failures = 0
        self._interrupted = False
        # Whether the last stream was refused for want of a right.
        self._denied = False
        self._heard = 0
        # Whether the server has refused to resume: the next stream begins with a snapshot.
        self._refused = False

    async def run(self) -> None:
        """Follow until cancelled. Raises StoreChanged or StoreRolledBack, after which the sink's data is void."""
        while True:
            self._denied = False
            why = await self._one_stream()
            self._report(StreamEnded(self._type.name, why, self._failures))
            self._interrupted = True
            self._sink.interrupted(why, denied=self._denied)
            # Full jitter, so that many followers of a server that has come back don't all come at once.
            ceiling = min(_FIRST_WAIT * 2.0 ** min(self._failures, 16), _LONGEST_WAIT)
            self._failures += 1
            await trio.sleep(random.uniform(ceiling / 2, ceiling))

    async def _one_stream(self) -> str:
        """Open a stream and feed it to the sink until it ends; returns why it did."""
        sink = self._sink
        resume_after = None if self._refused else sink.resume_after
        self._refused = False
        machine = StreamMachine(sink.store_id, resume_after)
        sink.restart()
        try:
            # In the process a bookmark costs next to nothing, and nobody has to wait for it.
            interval = 0 if self._channel.knows_outcomes else _BOOKMARK_INTERVAL_MS
            # A snapshot, too, is taken only of a store that has all that is held in its history.
            request = watch_request(self._type, resume_after, interval, sink.known)
            async with self._channel.stream(WATCH_LIST, request) as items:
                self._report(StreamOpened(self._type.name, resume_after))
                async with self._patrolled(machine) as patience:
                    return await self._feed(machine, items, patience)
        except GRPCError as error:
            if error.status is Status.OUT_OF_RANGE:
                # Nothing against what is held: the stream only can't go on from there.
                self._refused = True
            elif error.status is Status.DATA_LOSS:
                # The position isn't one of that store's, which may be a copy from before it.
                sink.distrust()
                await self._check_not_gone_back(refused=True)
            self._denied = error.status in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED)
            return f"{error.status.name}: {error.message}"
        except Lagging as error:
            self._report(StreamLagging(self._type.name, machine.told, sink.frontier))
            await self._check_not_gone_back()
            return str(error)
        except FalseBookmark as error:
            self._report(BookmarkRefused(self._type.name, str(error)))
            sink.distrust()
            return str(error)
        except StreamBroken as error:
            sink.distrust()
            return str(error)

    @asynccontextmanager
    async def _patrolled(self, machine: StreamMachine) -> AsyncIterator[trio.CancelScope]:
        """A scope that is cancelled when the stream has said nothing for long although the store has gone on.

        What the sink holds can't tell that of the first stream, nor of one that everything else lags with. In the
        process no stream lags.
        """
        patience = trio.CancelScope()
        if self._channel.knows_outcomes:
            yield patience
            return
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._patrol, machine, patience, name=f"patrolling the stream of {self._type.name}")
            try:
                yield patience
            except Exception as error:  # noqa: BLE001  # it goes on outwards as it is, not in the nursery's group
                raised = error
            nursery.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _patrol(self, machine: StreamMachine, patience: trio.CancelScope) -> None:
        while True:
            heard = self._heard
            await trio.sleep(self._lag_limit / 2)
            if self._heard > heard:
                continue
            known = 0
            with trio.move_on_after(self._lag_limit), contextlib.suppress(Unavailable):
                known = (await self._linearizable(None)).revision
            # A bookmark may be on its way.
            await trio.sleep(self._lag_limit / 2)
            if self._heard == heard and machine.told < known:
                patience.cancel()

    async def _feed(self, machine: StreamMachine, items: AsyncIterator[Any], patience: trio.CancelScope) -> str:
        """Feed the sink until the stream ends or is of no more use; returns why. Raises Lagging."""
        sink = self._sink
        with patience:
            while True:
                # A stream lags from the moment that it stands below what is known, until it has caught up.
                if machine.told >= sink.frontier:
                    patience.deadline = math.inf
                elif patience.deadline == math.inf:
                    patience.deadline = trio.current_time() + self._lag_limit
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return "the server ended the stream"
                checked = machine.feed(item)
                self._heard += 1
                self._failures = 0
                if self._interrupted:
                    self._interrupted = False
                    sink.interrupted("")
                if checked is not None:
                    sink.feed(checked)
                if isinstance(item, SnapshotChunk):
                    # A snapshot on its way isn't lag, however long it takes.
                    patience.deadline = math.inf
                elif machine.told >= sink.frontier and sink.distrusted:
                    return "the stream began below the frontier, so its snapshot could mend nothing"
        raise Lagging(f"the stream stood at revision {machine.told}, below what is known, for {self._lag_limit} s")

    async def _check_not_gone_back(self, *, refused: bool = False) -> None:
        """Tell a server that lags from a store that has lost what it had acknowledged.

        ``refused``: a server has answered that its store has never stood where it is known to have been. It may be a
        copy, beside others; so the store itself is asked, which may have grown past that place.
        """
        sink = self._sink
        known = sink.known
        if known is None:
            # Nothing was ever held that the store could have lost.
            return
        try:
            with trio.move_on_after(self._lag_limit):
                here = await self._linearizable(None)
                if here.store_id != known.store_id:
                    raise StoreChanged(f"the store is {here.store_id}, not {known.store_id} any more")
                if here.revision < known.revision:
                    raise StoreRolledBack(
                        f"store {here.store_id} stands at revision {here.revision}, "
                        f"and has told changes up to {known.revision} before"
                    )
                if refused:
                    await self._linearizable(known)
        except Unavailable as error:
            self._report(StreamEnded(self._type.name, str(error), self._failures))
