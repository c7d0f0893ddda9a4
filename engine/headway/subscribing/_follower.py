"""A subscription: the task that keeps its stream open, the checks of what arrives, and the batches to read.

Rules:
1. A snapshot is handed over as one batch, when it is complete. So a program's state is never half a snapshot, and
   never empty between two snapshots.
2. A snapshot or commit below what was handed over is refused: the server lags, and another stream is opened.
3. A stream that ends is opened again after the last position, with growing delays, unless the error says that another
   attempt is useless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.api import Call, Channel, Code, Lagging, Metadata, code_of, described, spread
from headway.base import AsyncStream, check_trio, current_run, repr_text, retry_delay
from headway.client import LASTING, Deleted, Subject, Upserted, client_error, second_reader
from headway.errors import Closed, HeadwayError, PayloadError, RateLimited, StoreChanged, Unavailable
from headway.resource import Change, Resource, ResourceType, SnapshotChunk, TypeName, resource_id, type_name
from headway.subscribing._service import SubscribeService
from headway.subscription import (
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionEvent,
    SubscriptionPosition,
    Topic,
)

_LONGEST_WAIT = 60.0

BEGIN_ANEW = "subscribe without resume_after="
"""The advice for a program whose subscription is of another store than the server's."""


@dataclass(frozen=True, slots=True)
class Published:
    """An event of a topic: the current one of its subject in a snapshot, and otherwise one that was published."""

    topic: Topic[Any]
    subject: str
    data: Any


@dataclass(frozen=True, slots=True)
class SubscriptionBatch:
    """The changes of one commit, or of one call of `Topic.publish`, in the subjects; or a snapshot of all of them.

    Attributes:
        events: `Upserted`, `Deleted` and `Published` events. Apply them together.
        position: the position after them.
        snapshot: True if the events are everything that exists at the position. They replace what came before.
    """

    events: list[Upserted[Any] | Deleted[Any] | Published]
    position: SubscriptionPosition
    snapshot: bool


class _Handed(NamedTuple):
    """A batch on its way from the task to the program. Without events, only the position has advanced."""

    events: list[SubscriptionEvent] | None
    position: SubscriptionPosition
    snapshot: bool = False


class Follower:
    """The task of a subscription. It opens one stream after the other, and hands over what they deliver.

    Attributes:
        problem: the reason why the stream was interrupted, until it is complete again; None otherwise.
    """

    def __init__(
        self,
        channel: Channel,
        request: subscribe_pb.SubscribeRequest,
        metadata: Metadata | None,
        resume_after: SubscriptionPosition | None,
    ) -> None:
        self._channel = channel
        self._request = request
        self._metadata = metadata
        # The position of the last batch. Before the first one, the position that the program resumes after.
        self._reached = resume_after
        self._failures = 0
        # The seconds to wait, because a limit of the server has refused the last stream.
        self._limited = 0.0
        # True once the open stream has delivered something.
        self._delivered = False
        self.problem: str | None = None
        self.error: HeadwayError | None = None
        # A slow program stops the stream, because nothing is kept in between.
        self._send, self.batches = trio.open_memory_channel[_Handed](0)

    async def run(self) -> None:
        """Follow until canceled, or until an error that lasts, which the reader gets."""
        with self._send:
            while True:
                self._limited, self._delivered = 0.0, False
                try:
                    self.problem = await self._one_stream()
                except HeadwayError as error:
                    self.error = error
                    return
                await trio.sleep(max(retry_delay(self._failures, _LONGEST_WAIT), self._limited))
                self._failures += 1

    async def _one_stream(self) -> str:
        """Hand over one stream until it ends, and return the reason for its end. Raises HeadwayError if that lasts."""
        reached = self._reached
        self._request.resume_after = None if reached is None else reached.message()
        try:
            async with SubscribeService.over(self._channel).subscribe(Call(self._metadata), self._request) as items:
                await self._handed_over(items)
        except HeadwayError as error:
            code = code_of(error)
            if code is None:
                raise
            if isinstance(error, RateLimited):
                self._limited = spread(error.retry_after, self._failures) or 0.0
            translated = client_error(error)
            passing = isinstance(translated, Unavailable) or code is Code.ABORTED
            # A stream ends with its token. Whether that has been renewed shows when the next one is opened.
            outlived = self._delivered and code is Code.UNAUTHENTICATED
            if isinstance(translated, StoreChanged):
                raise StoreChanged(f"{translated}; to accept that store, {BEGIN_ANEW}") from error
            if not outlived and (code in LASTING or not passing):
                if translated is error:
                    error.failed_call = None
                    raise
                raise translated from error
            return described(error)
        except Lagging as error:
            return str(error)
        return "the server ended the stream"

    async def _handed_over(self, items: Any) -> None:
        # The events of the snapshot by what they are about; None after it.
        gathered: dict[object, SubscriptionEvent] | None = {} if self._reached is None else None
        async for item in items:
            self._delivered = True
            if not isinstance(item, NewSnapshot | SnapshotChunk | SnapshotPart):
                # Until a snapshot is complete, the reader has the old state.
                self.problem = None
            if isinstance(item, NewSnapshot):
                gathered = {}
            elif isinstance(item, SnapshotChunk | SnapshotPart):
                if gathered is None:
                    raise Lagging("a snapshot came that was not announced")
                for event in _events(item):
                    _gather(gathered, event)
            elif isinstance(item, SnapshotComplete):
                if gathered is None:
                    raise Lagging("the end of a snapshot came that was not announced")
                self._check(item.position, "a snapshot")
                await self._hand_over(_Handed([*gathered.values()], item.position, snapshot=True))
                gathered = None
            elif gathered is not None:
                raise Lagging("a change came before the end of the snapshot")
            elif isinstance(item, Commits):
                for commit in item.commits:
                    self._check(commit.position, "a commit", beyond=True)
                    await self._hand_over(_Handed(commit.events, commit.position))
            elif isinstance(item, Reached):
                self._check(item.position, "a report of progress")
                await self._hand_over(_Handed(None, item.position))

    async def _hand_over(self, handed: _Handed) -> None:
        await self._send.send(handed)
        self._reached = handed.position
        self._failures = 0

    def _check(self, position: SubscriptionPosition, what: str, *, beyond: bool = False) -> None:
        """Raise Lagging for a position below what was handed over, and StoreChanged for one in another store."""
        reached = self._reached
        if reached is None:
            return
        here, there = reached.store, position.store
        if here is not None and there is not None:
            if here.store_id != there.store_id:
                raise StoreChanged(
                    f"the subscription is of store {here.store_id}, and {what} of {there.store_id}; to accept that "
                    f"store, {BEGIN_ANEW}"
                )
            if there.revision < here.revision:
                raise Lagging(f"{what} is at revision {there.revision}, below {here.revision}")
        numbers = {(each.topic, each.incarnation): each.number for each in reached.topics}
        for topic, incarnation, number in position.topics:
            if number < numbers.get((topic, incarnation), 0):
                raise Lagging(f"{what} is at {number} of topic {topic}, which was at {numbers[topic, incarnation]}")
        if beyond and (here, reached.topics) == (there, position.topics):
            raise Lagging(f"{what} was sent twice")


def _events(part: SnapshotChunk | SnapshotPart) -> Sequence[SubscriptionEvent]:
    if isinstance(part, SnapshotPart):
        return part.events
    return [Change(int(each.version), each, False, False) for each in part.resources]


def _gather(gathered: dict[object, SubscriptionEvent], event: SubscriptionEvent) -> None:
    """Add an event of a snapshot, which may change what an earlier one was about."""
    if not isinstance(event, Change):
        gathered[event.topic, event.subject] = event
        return
    id = resource_id(event.resource.id)._replace(uid="")
    if event.deleted:
        gathered.pop(id, None)
    else:
        gathered[id] = event


class Subscription(AsyncStream):
    """The batches of a subscription, in order. You get one from `Client.subscribe`, and iterate over it.

    It connects again by itself. Reading raises a HeadwayError only when that is useless: PermissionDenied,
    InvalidArgument, StoreChanged if the store was replaced, or PayloadError for an event that this program cannot
    decode. After an error, every further read raises it again. After the end of the block, reading raises Closed.
    Only one task may read at a time: another one that reads while it waits gets FailedPrecondition. Between two
    batches, another task may go on reading.

    Attributes:
        position: the position of what was read last, or what has been reached since. None before the first.
    """

    _reads, _usage = "a subscription", "async for batch in batches"

    def __init__(self, follower: Follower, subjects: Sequence[Subject]) -> None:
        self._follower = follower
        self._batches = follower.batches
        self._types: dict[TypeName, ResourceType[Any]] = {}
        self._topics: dict[str, Topic[Any]] = {}
        for subject in subjects:
            if isinstance(subject.source, Topic):
                self._topics[subject.source.name] = subject.source
            else:
                self._types[subject.source.name] = subject.source
        self.position: SubscriptionPosition | None = None
        self._undecodable: PayloadError | None = None
        self._home = current_run()
        self._reading = False

    @property
    def problem(self) -> str | None:
        """The reason why the stream was interrupted, until it is complete again, or None."""
        return self._follower.problem

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> SubscriptionBatch:
        check_trio("a subscription", self._home)
        if self._reading:
            raise second_reader("subscription", "client.subscribe([TEAM]) as batches")
        self._reading = True
        try:
            return await self._next()
        finally:
            self._reading = False

    async def _next(self) -> SubscriptionBatch:
        while True:
            if self._undecodable is not None:
                raise self._undecodable
            try:
                events, position, snapshot = await self._batches.receive()
            except trio.EndOfChannel:
                raise self._follower.error or Closed(
                    "the subscription's block has ended: read inside `async with client.subscribe(...) as batches:`"
                ) from None
            batch = None
            if events is not None:
                try:
                    batch = SubscriptionBatch([self._typed(each) for each in events], position, snapshot)
                except PayloadError as error:
                    # A later batch would be applied to a state that lacks these events.
                    self._undecodable = error
                    raise
            self.position = position
            if batch is not None:
                return batch

    def _typed(self, event: SubscriptionEvent) -> Upserted[Any] | Deleted[Any] | Published:
        if isinstance(event, Change):
            found = self._types.get(type_name(event.resource.id.type if event.resource.id else None))
            if found is None:
                raise PayloadError(f"the server sent {repr_text(event.resource.id)}, which is of no subscribed type")
            kind: Callable[[Resource[Any], int], Upserted[Any] | Deleted[Any]] = Deleted if event.deleted else Upserted
            return kind(found.view(event.resource), event.revision)
        topic = self._topics.get(event.topic)
        if topic is None:
            raise PayloadError(f"the server sent an event of topic {repr_text(event.topic)}, which is not subscribed")
        return Published(topic, event.subject, topic.decoded(event.data))
