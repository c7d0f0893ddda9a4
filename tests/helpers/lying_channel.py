"""A channel whose watches each break one promise, to test the checker of watch histories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from typing_extensions import override

from headway.protobuf import copy_message
from headway.resource import Bookmark, Change, Changes, EndOfSnapshot, ScopeConfirmed, SnapshotChunk, StreamItem, pb
from headway.rpc import Channel, PassingChannel
from headway.service import WATCH_LIST
from tests.helpers.items import taking


class Lie:
    """A change to one watch: to its request, and to each of its items. This base class changes nothing."""

    def request(self, request: pb.WatchListRequest) -> pb.WatchListRequest:
        """Return the request that replaces the reader's."""
        return request

    def confirmation(self) -> list[Any]:
        """Return the items to deliver before the first one."""
        return []

    def replace(self, item: StreamItem) -> list[StreamItem]:
        """Return the items to deliver in place of an item. An empty list drops it."""
        return [item] if not isinstance(item, Changes) else _item(self.changes(item.changes))

    def changes(self, changes: list[Change]) -> list[Change]:
        """Return the changes to deliver in place of these."""
        return changes


def _item(changes: list[Change]) -> list[StreamItem]:
    return [Changes(changes)] if changes else []


class SkipsACommit(Lie):
    def changes(self, changes: list[Change]) -> list[Change]:
        return [each for each in changes if each.revision % 5]


class RepeatsACommit(Lie):
    def changes(self, changes: list[Change]) -> list[Change]:
        return [*changes, *changes]


class RepeatsTheCommitBefore(Lie):
    def __init__(self) -> None:
        self._before: list[Change] = []

    def changes(self, changes: list[Change]) -> list[Change]:
        before, self._before = self._before, changes
        return [*before, *changes]


class ReversesCommits(Lie):
    """Reverses the order of the commits in an item."""

    def changes(self, changes: list[Change]) -> list[Change]:
        return sorted(changes, key=lambda change: -change.revision)


class SplitsACommit(Lie):
    def changes(self, changes: list[Change]) -> list[Change]:
        return [each._replace(more=False) for each in changes]


class DropsPartOfACommit(Lie):
    def changes(self, changes: list[Change]) -> list[Change]:
        return [each for each in changes if not each.more]


class ResumesOneTooLate(Lie):
    def __init__(self) -> None:
        self._resumed = False

    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, Bookmark) and item.resumed:
            self._resumed = True
        elif isinstance(item, Changes) and self._resumed:
            self._resumed = False
            first = item.changes[0].revision
            return _item([each for each in item.changes if each.revision != first])
        return [item]


class ResumesOneTooEarly(Lie):
    def request(self, request: pb.WatchListRequest) -> pb.WatchListRequest:
        after = request.resume_after
        self._after = after.revision if after is not None else 0
        if after is None or not after.revision:
            return request
        earlier = pb.Position(
            store_id=after.store_id, incarnation=after.incarnation, revision=max(0, after.revision - 1)
        )
        return pb.WatchListRequest(
            type=request.type,
            tenancy=request.tenancy,
            name_prefix=request.name_prefix,
            metadata_filter=request.metadata_filter,
            resume_after=earlier,
        )

    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, Bookmark) and item.resumed:
            return [Bookmark(item.position._replace(revision=self._after), resumed=True)]
        return [item]


class ResumesElsewhere(Lie):
    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, Bookmark) and item.resumed:
            return [Bookmark(item.position._replace(revision=item.position.revision + 1), resumed=True)]
        return [item]


class EndsItsSnapshotEarly(Lie):
    """Drops every chunk of the snapshot after the first."""

    def __init__(self) -> None:
        self._chunks = 0

    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, SnapshotChunk):
            self._chunks += 1
            return [item] if self._chunks == 1 else []
        return [item]


class MisdatesItsSnapshot(Lie):
    """Ends its snapshot at a revision one above its content."""

    def __init__(self) -> None:
        self._begun = False

    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, EndOfSnapshot):
            return [EndOfSnapshot(item.position._replace(revision=item.position.revision + 1))]
        return [item]


class LeavesAGapAfterItsSnapshot(Lie):
    def __init__(self) -> None:
        self._gap = False

    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, EndOfSnapshot):
            self._gap = True
        elif isinstance(item, Changes) and self._gap:
            self._gap = False
            first = item.changes[0].revision
            return _item([each for each in item.changes if each.revision != first])
        return [item]


class BookmarksTooFar(Lie):
    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, Bookmark) and not item.resumed:
            return [Bookmark(item.position._replace(revision=item.position.revision + 3))]
        return [item]


class ChangesPayloads(Lie):
    def changes(self, changes: list[Change]) -> list[Change]:
        return [each._replace(resource=_emptied(each.resource)) for each in changes]


def _emptied(resource: pb.Resource) -> pb.Resource:
    emptied = copy_message(resource)
    emptied.data = None
    return emptied


class ComesFromAnotherStore(Lie):
    def replace(self, item: StreamItem) -> list[StreamItem]:
        if isinstance(item, EndOfSnapshot):
            return [EndOfSnapshot(item.position._replace(store_id="another"))]
        return [item]


class KeepsWhatLeaves(Lie):
    """Does not deliver that a resource leaves what a watch by metadata selects, but advances over it."""

    def request(self, request: pb.WatchListRequest) -> pb.WatchListRequest:
        self._selects = bool(request.metadata_filter)
        return request

    def changes(self, changes: list[Change]) -> list[Change]:
        return [each for each in changes if not (self._selects and each.deleted)]


class IgnoresTheMetadata(Lie):
    """Delivers everything to a watch by metadata, as if it had been selected."""

    def request(self, request: pb.WatchListRequest) -> pb.WatchListRequest:
        self._selector = request.metadata_filter
        wider = copy_message(request)
        wider.metadata_filter = ""
        return wider

    def confirmation(self) -> list[Any]:
        return [ScopeConfirmed(self._selector)] if self._selector else []


class LyingChannel(PassingChannel):
    """A channel over another one, which changes its watches by a lie."""

    def __init__(self, inner: Channel, lie: type[Lie]) -> None:
        super().__init__(inner)
        self._lie = lie

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if path != WATCH_LIST:
            return super().stream(path, request, **options)
        lie = self._lie()
        inner = super().stream(path, lie.request(request), **options)
        pending: list[Any] = lie.confirmation()

        async def take(items: AsyncIterator[Any]) -> Any:
            while not pending:
                pending.extend(lie.replace(await anext(items)))
            return pending.pop(0)

        return taking(inner, take)
