"""Stores whose commits each break one promise, so that the conformance checks must fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from headway.protobuf import copy_message
from headway.resource import Key, Kind, Position, pb
from headway.storage import (
    Fence,
    Operation,
    Put,
    Remove,
    Require,
    RequireOwnsNothing,
    StorageError,
    VersionConflict,
    WrongUid,
)
from headway.testing.conformance import commits as claims
from tests.storage.kept_memory import Applied, Broken, KeptMemory


class CreatesOverAStoredResource(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        if isinstance(operation, Put) and not operation.expected:
            return (operation.kind, operation.key, self.there(operation), operation.resource)
        return super().decide(operation)


class CreatesAtAnyVersion(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        if isinstance(operation, Put) and self.there(operation) is None:
            return (operation.kind, operation.key, None, operation.resource)
        return super().decide(operation)


class TheLastWriterWins(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        stored = self.there(operation)
        if isinstance(operation, Put) and stored is not None:
            return (operation.kind, operation.key, stored, operation.resource)
        return super().decide(operation)


class AcceptsOlderVersions(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        stored = self.there(operation)
        if isinstance(operation, Put) and stored is not None and operation.expected <= stored.version:
            operation = Put(operation.kind, operation.key, operation.resource, stored.version)
        return super().decide(operation)


class KeepsTheFirstVersion(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        super().publish(applied)
        for _, _, old, new in applied:
            if old is not None and new is not None:
                new.version = old.version


class ComparesVersionsFirst(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        stored = self.there(operation)
        if isinstance(operation, Put) and stored is not None and stored.version != operation.expected:
            raise VersionConflict("another version")
        return super().decide(operation)


class ComparesUidsOfDeletedResources(KeptMemory):
    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._gone: dict[Key, str] = {}

    def decide(self, operation: Operation) -> Applied | None:
        entry = super().decide(operation)
        made = operation.resource.id if isinstance(operation, Put) else None
        if (
            isinstance(operation, Put)
            and made is not None
            and self._gone.setdefault(operation.key, made.uid) != made.uid
        ):
            raise WrongUid("another incarnation was here")
        return entry


class CountsRemovalsOfNothing(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        before = self.position
        at = await super().commit(operations, fence)
        if at == before and any(isinstance(each, Remove) for each in operations):
            self._append(self._log.head + 1, ())
        return self.position


class RemovesAtAnyVersion(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        stored = self.there(operation)
        if isinstance(operation, Remove) and stored is not None:
            operation = Remove(operation.kind, operation.key, operation.uid, stored.version)
        return super().decide(operation)


class StoresGroupVersionsSeparately(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        stored = self.there(operation)
        if isinstance(operation, Put) and stored is not None and stored.id is not None:
            made = operation.resource.id
            if made is not None and stored.id.type != made.type:
                key = (*operation.key[:2], f"{operation.key[2]}-{made.type}")
                return (operation.kind, key, None, operation.resource)
        return super().decide(operation)


class TruncatesLargeData(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        super().publish(applied)
        for _, _, _, new in applied:
            if new is not None and new.data is not None:
                new.data.value = new.data.value[:4096]


class DropsNonAsciiMetadata(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        super().publish(applied)
        for _, _, _, new in applied:
            if new is not None:
                new.metadata = {key: value for key, value in new.metadata.items() if key.isascii()}


class ReturnsThePreviousRevision(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        before = self.position
        await super().commit(operations, fence)
        return before if any(isinstance(each, Remove) for each in operations) else self.position


class CommitsEachOperationAlone(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        for entry in applied:
            super().publish([entry])


class CommitsUpToTheRejection(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        for index, operation in enumerate(operations):
            try:
                self.decide(operation)
            except StorageError:
                if index:
                    await super().commit(operations[:index], fence)
                raise
        return await super().commit(operations, fence)


class AcceptsTheFirstOfTwo(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        first: dict[object, Operation] = {}
        for number, each in enumerate(operations):
            named = isinstance(each, Put | Remove)
            first.setdefault((each.kind, each.key) if isinstance(each, Put | Remove) and named else number, each)
        return await super().commit(list(first.values()), fence)


class CountsEmptyCommits(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        await super().commit(operations, fence)
        if not operations:
            self._append(self._log.head + 1, ())
        return self.position


class IgnoresRequirements(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        return None if isinstance(operation, Require) else super().decide(operation)


class IgnoresOwnedResources(KeptMemory):
    def decide(self, operation: Operation) -> Applied | None:
        return None if isinstance(operation, RequireOwnsNothing) else super().decide(operation)


class ChecksThenWaits(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if fence is not None:
            self._check_fence(fence)
        applied = [entry for operation in operations if (entry := self.decide(operation)) is not None]
        await trio.lowlevel.checkpoint()
        if applied:
            self.publish(applied)
        return self.position


class PredictsItsRevision(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        foreseen = self._at(self._log.head + 1)
        at = await super().commit(operations, fence)
        return foreseen if any(isinstance(each, Put) for each in operations) else at


class CommitsAfterCancellation(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        with trio.CancelScope(shield=True):
            at = await super().commit(operations, fence)
        await trio.lowlevel.checkpoint()
        return at


class CommitsInTwoParts(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if len(operations) > 1:
            await super().commit(operations[:1], fence)
        return await super().commit(operations[1:] if len(operations) > 1 else operations, fence)


class ModifiesReturnedResources(KeptMemory):
    def publish(self, applied: Sequence[Applied]) -> None:
        super().publish(applied)
        for _, _, old, new in applied:
            if old is not None and new is not None:
                old.version, old.data = new.version, new.data


class ReadsThePreviousState(KeptMemory):
    """Reads return the state before the last change."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self._before: dict[tuple[Kind, Key], pb.Resource] = {}

    def publish(self, applied: Sequence[Applied]) -> None:
        for kind, key, old, _ in applied:
            if old is not None:
                self._before[kind, key] = copy_message(old)
        super().publish(applied)

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        found, at = super().read_nowait(kind, key)
        return self._before.get((kind, key), found), at


BROKEN: Broken = {
    CreatesOverAStoredResource: [claims.an_empty_version_creates_and_nothing_else],
    CreatesAtAnyVersion: [claims.a_version_of_nothing_is_a_conflict],
    TheLastWriterWins: [claims.a_stale_version_is_a_conflict, claims.one_of_many_writers_of_a_version_wins],
    AcceptsOlderVersions: [claims.a_stale_version_is_a_conflict],
    KeepsTheFirstVersion: [claims.the_stored_version_is_replaced_by_a_new_one],
    ReadsThePreviousState: [claims.the_stored_version_is_replaced_by_a_new_one],
    ComparesVersionsFirst: [claims.another_uid_is_refused_before_versions_are_compared],
    ComparesUidsOfDeletedResources: [claims.a_deleted_name_may_have_another_uid],
    CountsRemovalsOfNothing: [claims.a_removal_of_nothing_makes_no_revision],
    RemovesAtAnyVersion: [claims.a_removal_at_a_stale_or_empty_version_is_a_conflict],
    StoresGroupVersionsSeparately: [claims.all_versions_of_a_kind_share_its_names],
    TruncatesLargeData: [claims.a_resource_is_stored_as_given],
    DropsNonAsciiMetadata: [claims.a_resource_is_stored_as_given],
    ReturnsThePreviousRevision: [claims.revisions_rise_and_are_never_reused],
    CommitsEachOperationAlone: [claims.a_commit_has_one_revision_for_all_it_changes],
    CommitsUpToTheRejection: [claims.a_commit_is_atomic],
    AcceptsTheFirstOfTwo: [claims.a_commit_that_names_a_resource_twice_is_refused],
    CountsEmptyCommits: [claims.a_commit_of_nothing_makes_no_revision],
    IgnoresRequirements: [claims.a_requirement_holds_in_the_commit_itself],
    IgnoresOwnedResources: [claims.a_requirement_to_own_nothing_holds_in_the_commit_itself],
    ChecksThenWaits: [claims.one_of_many_writers_of_a_version_wins],
    PredictsItsRevision: [claims.concurrent_commits_have_a_revision_each],
    CommitsAfterCancellation: [
        claims.a_commit_canceled_beforehand_does_nothing,
        claims.a_canceled_commit_is_done_whole_or_not_at_all,
    ],
    CommitsInTwoParts: [claims.a_canceled_commit_is_done_whole_or_not_at_all],
}
