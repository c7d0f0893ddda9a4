"""Stores whose scopes by metadata each break one promise, so that the conformance checks must fail."""

from __future__ import annotations

from headway.resource import Changes, Key, Kind, Position, StreamItem, Within, pb, resource_key
from headway.storage import LogWatch
from headway.testing.conformance import KIND, scopes
from tests.storage.kept_memory import Broken, Found, KeptMemory, ListSnapshot


class ClaimsNothing(KeptMemory):
    filters_metadata = False


class ListsEverything(KeptMemory):
    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        return await super().list(kind, within._replace(metadata=()), after=after, limit=limit)


class TakesSnapshotsOfEverything(KeptMemory):
    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        made = await super().watch(kind, within, resume_after)
        if resume_after is None:
            made._snapshot = ListSnapshot(list(self.tables.get(kind, {}).values()))
        return made


class ForgetsTheStatesBefore(KeptMemory):
    def formers(self, formers: dict[int, pb.Resource]) -> dict[int, pb.Resource]:  # noqa: ARG002  # the fault
        return {}


class DeletesTheNewState(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        there = self.tables[KIND]
        return Changes(
            [
                each._replace(resource=there.get(resource_key(each.resource), each.resource)) if each.deleted else each
                for each in item.changes
            ]
        )


class DeliversOnlyDeletions(KeptMemory):
    def spoil(self, item: StreamItem) -> StreamItem | None:
        if not isinstance(item, Changes):
            return item
        kept = [each for each in item.changes if each.deleted]
        return Changes(kept) if kept else None


BROKEN: Broken = {
    ClaimsNothing: [scopes.a_scope_by_metadata_has_only_its_resources],
    ListsEverything: [scopes.a_scope_by_metadata_has_only_its_resources],
    TakesSnapshotsOfEverything: [scopes.a_scope_by_metadata_has_only_its_resources],
    ForgetsTheStatesBefore: [
        scopes.leaving_a_scope_is_a_deletion_of_the_old_state,
        scopes.skipping_unrelated_commits_loses_no_change,
        scopes.more_is_right_in_a_scope,
        scopes.a_watch_by_metadata_misses_nothing_in_turns,
    ],
    DeletesTheNewState: [scopes.leaving_a_scope_is_a_deletion_of_the_old_state],
    DeliversOnlyDeletions: [scopes.entering_a_scope_is_an_ordinary_change],
}
