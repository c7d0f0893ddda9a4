"""Stores that each break a promise about the rules of commits, so that the conformance checks of quotas must fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headway.resource import Key, Position, pb
from headway.storage import Fence, Operation
from headway.testing.conformance import quotas as claims
from tests.storage.kept_memory import Broken, KeptChange, KeptMemory


class AsksNoRules(KeptMemory):
    def ask_rules(self, changes: Sequence[KeptChange]) -> None:
        pass


class CountsPayloads(KeptMemory):
    def size(self, resource: pb.Resource) -> int:
        return len(resource.data.value) if resource.data is not None else 0


class FollowsNoDeletions(KeptMemory):
    def follow(self, changes: Sequence[KeptChange]) -> None:
        super().follow([each for each in changes if each.new is not None])


class AsksAboutEachChange(KeptMemory):
    def ask_rules(self, changes: Sequence[KeptChange]) -> None:
        for each in changes:
            super().ask_rules([each])


class ShowsNoFormer(KeptMemory):
    """It counts rightly what a change replaces, but does not show it."""

    def ask_rules(self, changes: Sequence[KeptChange]) -> None:
        super().ask_rules([Anew(*vars(each).values()) for each in changes])


class Anew(KeptChange):
    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]  # the parts of a change
        self.before = KeptChange(*parts)  # type: ignore[arg-type]  # as above
        self.old = None

    @property
    def resources(self) -> int:
        return self.before.resources

    @property
    def bytes(self) -> int:
        return self.before.bytes


class CountsTheWholePartition(KeptMemory):
    def within(self, key: Key, partition: str, namespace: str) -> bool:  # noqa: ARG002
        return super().within(key, partition, "")


class FollowsNoRules(KeptMemory):
    """It shows the rules what they demand only once."""

    def follow(self, changes: Sequence[KeptChange]) -> None:
        super().follow([each for each in changes if each.kind not in self.rules.kinds or each.old is None])


class AsksThenWaits(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        applied = [entry for operation in operations if (entry := self.decide(operation)) is not None]
        super().ask_rules([KeptChange(*each, self.size) for each in applied])
        return await super().commit(operations, fence)

    def ask_rules(self, changes: Sequence[KeptChange]) -> None:
        pass


class CountsNoUpdates(KeptMemory):
    def follow(self, changes: Sequence[KeptChange]) -> None:
        super().follow([each for each in changes if each.resources or each.kind in self.rules.kinds])


class FollowsLate(KeptMemory):
    """The rules learn of a commit some commits later."""

    def follow(self, changes: Sequence[KeptChange]) -> None:
        self.late: list[Sequence[KeptChange]] = [*getattr(self, "late", []), [replace(each) for each in changes]]
        if len(self.late) > 3:
            super().follow(self.late.pop(0))


BROKEN: Broken = {
    AsksNoRules: [claims.a_quota_of_resources_is_kept, claims.a_quota_of_bytes_is_kept],
    CountsPayloads: [claims.a_quota_of_bytes_is_kept],
    FollowsNoDeletions: [claims.deletions_and_smaller_resources_are_never_refused],
    AsksAboutEachChange: [claims.a_replacement_in_one_commit_needs_no_room],
    ShowsNoFormer: [claims.a_small_status_is_never_refused],
    CountsTheWholePartition: [claims.a_quota_counts_its_own_part],
    FollowsNoRules: [claims.a_changed_quota_holds_from_its_commit_on],
    AsksThenWaits: [claims.writers_never_exceed_a_quota_together],
    CountsNoUpdates: [claims.the_use_is_the_sum_of_what_is_stored],
    FollowsLate: [claims.a_quota_can_be_declared_under_writers],
}
