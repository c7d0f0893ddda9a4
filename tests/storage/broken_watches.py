"""Stores whose watches each break one promise, so that the conformance checks must fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trio

from headway.errors import HistoryCompacted
from headway.protobuf import copy_message
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    StreamItem,
    resource_key,
)
from headway.storage import LogWatch, StorageError, Within
from headway.testing.conformance import concurrency, grammar, history
from headway.testing.conformance import watches as claims
from tests.storage.broken_commits import ModifiesReturnedResources
from tests.storage.kept_memory import Broken, KeptMemory, ListSnapshot, SpoilableWatch


class DeliversAnEmptyChunkFirst(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, after, snapshot)
        assert isinstance(made, SpoilableWatch)
        if snapshot is not None and not snapshot._resources:
            made.owed.append(SnapshotChunk([]))
        return made


class DropsTheLastChunk(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return None if isinstance(item, SnapshotChunk) and len(item.resources) < 1000 else item


class ClaimsAnOrderThatItsSnapshotLacks(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return SnapshotChunk(item.resources[::-1], in_order=True) if isinstance(item, SnapshotChunk) else item


class LosesDeletions(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        kept = [each for each in item.changes if not each.deleted]
        return Changes(kept) if kept else None


class DeliversChangesTwice(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return Changes([*item.changes, *item.changes[-1:]]) if isinstance(item, Changes) else item


class DeliversTheNewestFirst(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return Changes(item.changes[::-1]) if isinstance(item, Changes) else item


class SplitsCommits(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return Changes([each._replace(more=False) for each in item.changes]) if isinstance(item, Changes) else item


class MarksCommitsBeforeFiltering(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, Within(), after, snapshot)
        assert isinstance(made, SpoilableWatch)

        def spoil(item: StreamItem) -> StreamItem | None:
            if not isinstance(item, Changes):
                return item
            kept = [each for each in item.changes if within.matches(resource_key(each.resource))]
            return Changes(kept) if kept else Bookmark(self._at(item.changes[-1].revision))

        made.spoil = spoil
        return made


class BookmarksNoCommitsOfOtherKinds(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return None if isinstance(item, Bookmark) and not item.resumed else item


class BookmarksNoFilteredCommits(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, after, snapshot)
        if not within.everything:
            assert isinstance(made, SpoilableWatch)
            made.spoil = lambda item: None if item == Bookmark(self.position) else item
        return made


class BookmarksAboveTheHead(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if isinstance(item, Bookmark) and not item.resumed:
            return Bookmark(item.position._replace(revision=item.position.revision + 1))
        return item


class DeliversEachChangeToOneWatcher(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._said: set[int] = set()

    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        kept = [each for each in item.changes if each.revision not in self._said]
        self._said |= {each.revision for each in kept}
        return Changes(kept) if kept else None


class TakesAnItemWhenCanceled(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        return _Hasty(self.spoil, self._log, self._pulse, self._at, self._log.cursor(kind, after), within, snapshot)


class _Hasty(SpoilableWatch):
    async def next(self) -> StreamItem:
        item = await super().next()
        await trio.lowlevel.checkpoint()
        return item


class ClosesAllWithOne(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._closed = False

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, after, snapshot)
        assert isinstance(made, SpoilableWatch)
        made.at_close = self._close
        return made

    def _close(self) -> None:
        self._closed = True

    def spoil(self, item: StreamItem) -> StreamItem | None:
        return None if self._closed and isinstance(item, Changes) else item


class EndsItsSnapshotTwice(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, after, snapshot)
        assert isinstance(made, SpoilableWatch)

        def spoil(item: StreamItem) -> StreamItem | None:
            if isinstance(item, EndOfSnapshot):
                made.owed.append(item)
            return item

        made.spoil = spoil
        return made


class ResumesWithoutABookmark(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return None if isinstance(item, Bookmark) and item.resumed else item


class DeliversChangesWithoutStatus(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return _changed(item, lambda change: not change.deleted, status={})


class DeliversDeletionsWithIdsAlone(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return _changed(item, lambda change: change.deleted, data=None, metadata={}, status={}, owner=None)


def _changed(item: StreamItem, which: Any, **fields: Any) -> StreamItem:
    if not isinstance(item, Changes):
        return item
    changes: list[Change] = []
    for change in item.changes:
        shown = copy_message(change.resource)
        for name, value in fields.items():
            setattr(shown, name, value)
        changes.append(change._replace(resource=shown) if which(change) else change)
    return Changes(changes)


class DeletesAtTheDeletionsVersion(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        changes: list[Change] = []
        for change in item.changes:
            shown = copy_message(change.resource)
            shown.version = str(change.revision)
            changes.append(change._replace(resource=shown))
        return Changes(changes)


class DeliversOnlyTheLastChangeOfAKey(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        last: dict[Key, Change] = {}
        for each in item.changes:
            last.pop(resource_key(each.resource), None)
            last[resource_key(each.resource)] = each._replace(more=False)
        return Changes(list(last.values()))


class DeliversNoDeletionOfTheFormerVersion(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        written = {(each.revision, resource_key(each.resource)) for each in item.changes if not each.deleted}
        left = [
            each for each in item.changes if each.deleted and (each.revision, resource_key(each.resource)) in written
        ]
        return Changes([each for each in item.changes if each not in left])


class SendsASnapshotForCompactedHistory(KeptMemory):
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        try:
            return await super().watch(kind, within, resume_after)
        except (StorageError, HistoryCompacted):
            return await super().watch(kind, within)


class ResumesOneTooLate(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, after, snapshot)
        if snapshot is None:
            made._cursor.revision += 1
        return made


class ResumesAtTheHead(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        made = super().tail(kind, within, self._log.head, snapshot)
        assert isinstance(made, SpoilableWatch)
        if snapshot is None:
            said = Bookmark(self._at(after), resumed=True)
            made.spoil = lambda item: said if isinstance(item, Bookmark) and item.resumed else item
        return made


class ResumesAfterResourcesAlone(KeptMemory):
    def check_resumable(self, wanted: Position) -> None:
        super().check_resumable(wanted)
        if wanted.revision and not any(
            change.revision == wanted.revision for log in self._log._kinds.values() for change in log.changes
        ):
            raise HistoryCompacted("nothing was changed there")


class ResumesInTheFuture(KeptMemory):
    def check_resumable(self, wanted: Position) -> None:
        if wanted.revision <= self.position.revision:
            super().check_resumable(wanted)


class ResumesInAnyStore(KeptMemory):
    def check_resumable(self, wanted: Position) -> None:
        super().check_resumable(wanted._replace(store_id=self.position.store_id))


class ResumesInAnySession(KeptMemory):
    def check_resumable(self, wanted: Position) -> None:
        super().check_resumable(wanted._replace(session=self.position.session))


class KeepsAQuarter(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes // 4)


class KeepsEverything(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:  # noqa: ARG002  # the fault
        super().__init__()


class SkipsCompactedChanges(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        return _Skipping(self.spoil, self._log, self._pulse, self._at, self._log.cursor(kind, after), within, snapshot)


class _Skipping(SpoilableWatch):
    async def next(self) -> StreamItem:
        try:
            return await super().next()
        except HistoryCompacted:
            self._cursor.revision = self._log.floor
            return await super().next()


class ReadsSnapshotsLazily(KeptMemory):
    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        if snapshot is not None:
            snapshot = _Late(self, kind, within)
        return super().tail(kind, within, after, snapshot)


class _Late(ListSnapshot):
    def __init__(self, store: KeptMemory, kind: Kind, within: Within) -> None:
        super().__init__(())
        self._read: Any = lambda: [each for key, each in store.tables.get(kind, {}).items() if within.matches(key)]

    async def next(self) -> Any:
        if self._read is not None:
            self._resources, self._read = self._read(), None
        return await super().next()


class CutsOffLargeCommits(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        return replace(item, changes=item.changes[-16:]) if isinstance(item, Changes) else item


BROKEN: Broken = {
    DeliversAnEmptyChunkFirst: [claims.a_watch_of_an_empty_store_ends_its_snapshot_at_once],
    ClaimsAnOrderThatItsSnapshotLacks: [claims.a_snapshot_of_any_size_has_an_end],
    DropsTheLastChunk: [claims.a_snapshot_of_any_size_has_an_end],
    LosesDeletions: [
        claims.every_write_and_deletion_is_delivered_once_in_order,
        grammar.a_new_watch_has_no_deleted_resource,
    ],
    DeliversChangesTwice: [claims.every_write_and_deletion_is_delivered_once_in_order],
    DeliversTheNewestFirst: [claims.every_write_and_deletion_is_delivered_once_in_order],
    SplitsCommits: [claims.a_commit_over_two_kinds_gives_each_watcher_its_part],
    MarksCommitsBeforeFiltering: [claims.more_is_right_under_a_filter],
    BookmarksNoCommitsOfOtherKinds: [
        claims.a_commit_elsewhere_becomes_a_bookmark,
        claims.a_waiting_watch_is_woken_by_a_commit,
    ],
    BookmarksNoFilteredCommits: [grammar.all_watches_reach_the_stores_position],
    BookmarksAboveTheHead: [
        claims.a_bookmark_is_never_ahead_of_the_changes,
        claims.a_commit_elsewhere_becomes_a_bookmark,
    ],
    DeliversEachChangeToOneWatcher: [claims.all_watchers_receive_the_same],
    TakesAnItemWhenCanceled: [claims.a_canceled_next_consumes_nothing],
    ModifiesReturnedResources: [claims.a_returned_resource_is_never_changed],
    ClosesAllWithOne: [claims.a_watch_may_be_closed_twice, concurrency.a_closed_watch_affects_no_other],
    EndsItsSnapshotTwice: [grammar.a_watch_delivers_a_snapshot_its_end_and_then_changes],
    ResumesWithoutABookmark: [
        grammar.a_watch_delivers_a_snapshot_its_end_and_then_changes,
        history.a_watch_resumes_after_every_position,
    ],
    DeliversChangesWithoutStatus: [grammar.a_watch_delivers_the_whole_resource],
    DeliversDeletionsWithIdsAlone: [grammar.a_watch_delivers_the_whole_resource],
    DeletesAtTheDeletionsVersion: [grammar.a_deletion_has_a_revision_of_its_own],
    DeliversOnlyTheLastChangeOfAKey: [grammar.a_new_incarnation_is_delivered_after_the_old_ones_deletion],
    DeliversNoDeletionOfTheFormerVersion: [grammar.another_group_version_is_a_deletion_and_a_write],
    SendsASnapshotForCompactedHistory: [
        grammar.a_watch_that_cannot_begin_fails_at_once,
        history.history_is_bounded,
    ],
    ResumesOneTooLate: [
        history.a_watch_resumes_after_every_position,
        concurrency.a_watch_resumes_after_every_revision_while_others_write,
        concurrency.a_watch_resumed_often_misses_and_repeats_nothing,
    ],
    ResumesAtTheHead: [concurrency.a_watch_resumes_after_every_revision_while_others_write],
    ResumesAfterResourcesAlone: [history.every_returned_position_can_be_resumed_after],
    ResumesInTheFuture: [history.a_position_above_the_head_is_refused],
    ResumesInAnyStore: [history.a_position_of_another_store_is_refused],
    ResumesInAnySession: [history.a_position_of_another_store_is_refused],
    KeepsAQuarter: [history.the_newest_history_is_kept, history.a_watcher_that_keeps_up_loses_nothing],
    KeepsEverything: [history.history_is_bounded],
    SkipsCompactedChanges: [history.a_slow_watcher_blocks_no_writer_and_fails],
    ReadsSnapshotsLazily: [history.a_watcher_that_begins_slowly_has_no_gap],
    CutsOffLargeCommits: [history.a_commit_larger_than_history_is_delivered_whole],
}
