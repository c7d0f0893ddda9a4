"""The two sources of a subscription: the changes of some types in the store, and the events of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from headway.api import ProgramFailed
from headway.errors import HistoryCompacted
from headway.resource import Change, Changes, EndOfSnapshot, Position, SnapshotChunk, pb, resource_key
from headway.service import Context, Reader, ask, is_stored_as
from headway.storage import Watch, Within
from headway.subscribing._admission import Part, SubscribePermissions, Type
from headway.subscription import ANY_SUBJECT, CommitMerge, Topic, TopicEvent, TopicPosition

NOWHERE = Position("", "", 0)


class StoreSource:
    """The changes of some parts of some types, in whole commits.

    A snapshot is read part by part. Then come the changes since its first part, up to the revision of its last one
    (`catch_up`), so that all types are complete up to one revision. A change that a later part already contains comes
    again, with the changes after it. The reader applies all of them together. The versions of a kind begin at one
    revision: a resource can move to another version between their parts, and its deletion as the old version would
    otherwise come without its write as the new one.
    """

    def __init__(self, context: Context, wanted: Sequence[tuple[Type, list[Part]]]) -> None:
        self._backend = context.backend
        self._tails = [_Tail(context, type, parts) for type, parts in wanted]
        self._merge = CommitMerge([0])
        # The newest position that a watch has reported, which names the session.
        self._here = NOWHERE
        # Invariant: every change up to this revision was handed out.
        self._handed_out = 0
        # The parts whose snapshots are still to be read.
        self._ahead: list[tuple[_Tail, int]] = []
        self._reading: Watch | None = None

    @property
    def position(self) -> Position:
        """The position up to which every change was handed out."""
        return self.at(self._handed_out)

    def at(self, revision: int) -> Position:
        """Return the position of a revision that was just reached."""
        return self._here._replace(revision=revision)

    def begin_snapshot(self) -> None:
        """Begin to read a snapshot."""
        self.close()
        self._here = NOWHERE
        for tail in self._tails:
            tail.begin_snapshot()
        self._ahead = [(tail, index) for tail in reversed(self._tails) for index in reversed(range(len(tail.parts)))]

    async def next_part(self) -> SnapshotChunk | None:
        """Return some resources of the snapshot, or None at its end. Raises HistoryCompacted."""
        while self._ahead:
            tail, index = self._ahead[-1]
            if self._reading is None:
                self._reading = await self._backend.watch(tail.type.kind, tail.parts[index].within)
            item = await self._reading.next()
            if isinstance(item, SnapshotChunk):
                with trio.CancelScope(shield=True):
                    shown = await tail.shown(item, index)
                if shown.resources:
                    return shown
                continue
            assert isinstance(item, EndOfSnapshot)
            begun = (each.first for each in self._tails if each.type.kind == tail.type.kind)
            tail.first = next(filter(None, begun), item.position)
            self._reach(item.position)
            self._reading.close()
            self._reading = None
            self._ahead.pop()
        return None

    async def catch_up(self) -> list[Change]:
        """Return the changes since the first part of the snapshot, up to its last. The changes after it follow later.

        Raises:
            HistoryCompacted: they are no longer kept. A new snapshot is needed.
        """
        complete = self._here.revision
        for tail in self._tails:
            assert tail.first is not None
            await tail.open(self._backend, tail.first)
        self._merge = CommitMerge([tail.first.revision for tail in self._tails if tail.first is not None])
        while self._merge.frontier < complete:
            await self.advance()
        self._handed_out = complete
        return [change for _, changes in self._merge.take(complete) for change in changes]

    async def resume(self, after: Position) -> None:
        """Continue after a position. Raises HistoryCompacted or StoreMismatch if that is impossible."""
        self.close()
        self._here = after
        for tail in self._tails:
            tail.resume()
            await tail.open(self._backend, after)
        self._merge = CommitMerge([after.revision] * len(self._tails))
        self._handed_out = after.revision

    async def advance(self) -> None:
        """Wait until the source has made progress, which need not be a whole commit. A canceled call has taken nothing.

        Raises:
            HistoryCompacted: the caller has read too slowly.
        """
        index = self._merge.lowest()
        tail = self._tails[index]
        assert tail.watch is not None
        item = await tail.watch.next()
        if isinstance(item, Changes):
            # What has been taken is never lost.
            with trio.CancelScope(shield=True):
                visible = await tail.visible(item)
            self._merge.feed(index, visible, item.changes[-1].revision)
        else:
            assert not isinstance(item, SnapshotChunk)
            self._reach(item.position)
            self._merge.feed(index, (), item.position.revision)

    def take(self) -> list[tuple[int, list[Change]]]:
        """Return the whole commits that were not taken yet."""
        self._handed_out = self._merge.frontier
        return self._merge.take()

    def close(self) -> None:
        """Close the watches. Idempotent."""
        for tail in self._tails:
            tail.close()
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _reach(self, position: Position) -> None:
        if position.revision >= self._here.revision:
            self._here = position


class _Tail:
    """The changes of one type.

    Attributes:
        first: the position of the first part of the snapshot, of any version of the kind.
    """

    def __init__(self, context: Context, type: Type, parts: list[Part]) -> None:
        self.type = type
        self.parts = parts
        self.first: Position | None = None
        self.watch: Watch | None = None
        self._access = context.access
        self._form = context.forms.of(type)
        self._reader = Reader(self._access, self._form.view)
        # True if every change of the kind is sent as it is stored, as long as it is of this version.
        self._whole = parts[0].everything and not context.access.restricted
        self._version = type.name.version

    def begin_snapshot(self) -> None:
        """Begin anew, because the reader gets a snapshot."""
        self.first = None
        self._reader = Reader(self._access, self._form.view)

    def resume(self) -> None:
        """Continue for a reader that has something already."""
        self._reader = Reader(self._access, self._form.view, resumed=True)

    async def open(self, backend: Any, after: Position) -> None:
        """Open the watch of the changes after a position. `close` closes it, also if this raises."""
        within = self.parts[0].within if len(self.parts) == 1 else Within()
        # First, because the store refuses a position of another store, whose revision means nothing here.
        self.watch = await backend.watch(self.type.kind, within, after)
        self.watch = self._form.resumed(self.watch, after._replace(versions=""))

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    async def shown(self, chunk: SnapshotChunk, index: int) -> SnapshotChunk:
        """Return the resources of a part's snapshot that the caller may read and that no earlier part contains."""
        if self._whole and is_stored_as(chunk, self._version):
            return chunk
        part, earlier = self.parts[index], self.parts[:index]
        found: list[pb.Resource] = []
        for resource in chunk.resources:
            if not part.everything:
                key = resource_key(resource)
                if not part.matches(key) or any(each.matches(key) for each in earlier):
                    continue
            await self._ready(resource)
            seen = self._reader.seen(resource)
            if seen is not None:
                found.append(seen)
        return SnapshotChunk(found)

    async def visible(self, item: Changes) -> Sequence[Change]:
        """Return the changes that are selected and that the caller may read."""
        if self._whole and is_stored_as(item, self._version):
            return item.changes
        selected = [each for each in item.changes if self._selects(each)]
        for each in selected:
            await self._ready(each.resource)
        return self._reader.changes(selected)

    async def _ready(self, resource: pb.Resource) -> None:
        if self._form.ready is not None:
            await self._form.ready(resource)

    def _selects(self, change: Change) -> bool:
        key = resource_key(change.resource)
        return any(part.matches(key) for part in self.parts)


class TopicSource:
    """The events of some subjects of a topic."""

    def __init__(self, topic: Topic[Any], subjects: frozenset[str], permissions: SubscribePermissions | None) -> None:
        self.topic = topic
        self.subjects = subjects
        self.position = topic.position
        self._permissions = permissions
        self._selected = None if ANY_SUBJECT in subjects else subjects

    def snapshot(self) -> list[TopicEvent]:
        """Return the current events, and continue after them. Contains no checkpoint."""
        # In this order: what the program's function publishes itself is repeated after the snapshot, and not lost.
        self.position = self.topic.position
        try:
            found = [event for subject in sorted(self.subjects) for event in self.topic.snapshot(subject)]
        except Exception as error:
            raise ProgramFailed(f"the snapshot of topic {self.topic.name} failed", error) from error
        return [event for event in found if self._shows(event)]

    def resume(self, after: TopicPosition) -> None:
        """Continue after a position. Raises HistoryCompacted if that is impossible."""
        self.position = after
        self._check()

    async def advance(self) -> None:
        """Wait until something has been published."""
        await self.topic.wait(self.position)

    def take(self) -> list[tuple[TopicPosition, list[TopicEvent]]]:
        """Return what each call has published since then, and continue after it.

        Raises:
            HistoryCompacted: the topic was reset, or the caller has read too slowly.
        """
        self._check()
        calls, reached = self.topic.log.take(self.position.number, self._selected)
        here, self.position = self.position, self.position._replace(number=reached)
        shown = [
            (here._replace(number=number), [each for each in events if self._shows(each)]) for number, events in calls
        ]
        return [(at, events) for at, events in shown if events]

    def _check(self) -> None:
        if self.position.incarnation != self.topic.position.incarnation:
            raise HistoryCompacted(f"topic {self.topic.name} was reset, or its process was restarted")
        self.topic.log.check(self.position.number)

    def _shows(self, event: TopicEvent) -> bool:
        return self._permissions is None or ask(self._permissions.may_see, event.topic, event.subject)
