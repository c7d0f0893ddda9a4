"""Stores that each break a promise about quotas, so that the conformance checks must fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from headway.resource import DELETION_TIMESTAMP, Key, Kind, Position, pb
from headway.storage import Fence, Limit, Operation, Place, QuotaUse, Use
from headway.testing.conformance import KIND
from headway.testing.conformance import quotas as claims
from tests.storage.kept_memory import Broken, Effect, KeptMemory


class IgnoresQuotas(KeptMemory):
    def check_quotas(self, applied: Sequence[Effect]) -> None:
        pass


class CountsPayloads(KeptMemory):
    def size(self, resource: pb.Resource) -> int:
        return len(resource.data.value) if resource.data is not None else 0


class RefusesEverythingAboveALimit(KeptMemory):
    def check_quotas(self, applied: Sequence[Effect]) -> None:
        super().check_quotas(applied)
        for limit in self.declared():
            if limit.resources is not None and self.use(limit.place).resources > limit.resources:
                self.check_limit(limit, "resources", limit.resources, limit.resources, 1)


class CountsCreationsAlone(KeptMemory):
    def check_quotas(self, applied: Sequence[Effect]) -> None:
        super().check_quotas([each for each in applied if each[3] is not None])


class RefusesMarks(KeptMemory):
    def exempt(self, old: pb.Resource | None, new: pb.Resource) -> bool:
        return old is not None and old.generation == new.generation


class RefusesStatuses(KeptMemory):
    def exempt(self, old: pb.Resource | None, new: pb.Resource) -> bool:  # noqa: ARG002
        return False


class AcceptsAnyStatus(KeptMemory):
    def exempt(self, old: pb.Resource | None, new: pb.Resource) -> bool:
        return (old is not None and old.generation == new.generation) or super().exempt(old, new)


class AcceptsAnyStatusOfMarked(KeptMemory):
    def exempt(self, old: pb.Resource | None, new: pb.Resource) -> bool:
        return DELETION_TIMESTAMP in new.metadata or super().exempt(old, new)


class CountsTheWholePartition(KeptMemory):
    def counts(self, place: Place, kind: Kind, key: Key) -> bool:
        return super().counts(place._replace(namespace=""), kind, key)


class CountsItsOwn(KeptMemory):
    def counts(self, place: Place, kind: Kind, key: Key) -> bool:
        return super().counts(place, kind, key) or (place.kind is None and key[0] == place.partition)


class KeepsTheFirstLimits(KeptMemory):
    def declared(self) -> Sequence[Limit]:
        self.first: dict[str, Limit] = getattr(self, "first", {})
        for limit in super().declared():
            self.first.setdefault(limit.name, limit)
        return list(self.first.values())


class ChecksQuotasThenWaits(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        applied = [entry for operation in operations if (entry := self.decide(operation)) is not None]
        self.check_now(applied)
        return await super().commit(operations, fence)

    def check_now(self, applied: Sequence[Effect]) -> None:
        super().check_quotas(applied)

    def check_quotas(self, applied: Sequence[Effect]) -> None:
        pass


class CountsNoUpdates(KeptMemory):
    """It lists the size that each resource was created with."""

    def publish(self, applied: Sequence[Effect]) -> None:
        self.created: dict[str, int] = getattr(self, "created", {})
        for _, _, old, new in applied:
            if old is None and new is not None and new.id is not None:
                self.created[new.id.uid] = self.size(new)
        super().publish(applied)

    async def list_quotas(self) -> Sequence[QuotaUse]:
        uses = await super().list_quotas()
        size = sum(self.created.get(each.id.uid, 0) for each in self.tables[KIND].values() if each.id is not None)
        return [each._replace(use=Use(each.use.resources, size)) for each in uses]


class DeclaresLate(KeptMemory):
    """A quota takes effect some commits later."""

    def declared(self) -> Sequence[Limit]:
        self.late: list[Sequence[Limit]] = [*getattr(self, "late", []), super().declared()]
        return self.late[max(0, len(self.late) - 4)]

    async def list_quotas(self) -> Sequence[QuotaUse]:
        await trio.lowlevel.checkpoint()
        return [QuotaUse(each, self.use(each.place), 0) for each in super().declared()]


BROKEN: Broken = {
    IgnoresQuotas: [claims.a_quota_of_resources_is_kept, claims.a_quota_of_bytes_is_kept],
    CountsPayloads: [claims.a_quota_of_bytes_is_kept],
    RefusesEverythingAboveALimit: [claims.deletions_and_smaller_resources_are_never_refused],
    CountsCreationsAlone: [claims.a_replacement_in_one_commit_needs_no_room],
    RefusesMarks: [claims.a_deletion_can_always_be_marked_and_ended],
    RefusesStatuses: [claims.a_small_status_is_never_refused],
    AcceptsAnyStatus: [claims.a_small_status_is_never_refused],
    AcceptsAnyStatusOfMarked: [claims.a_deletion_can_always_be_marked_and_ended],
    CountsTheWholePartition: [claims.a_quota_counts_its_own_part],
    CountsItsOwn: [claims.what_headway_writes_for_itself_is_not_counted],
    KeepsTheFirstLimits: [claims.a_changed_quota_holds_from_its_commit_on],
    ChecksQuotasThenWaits: [claims.writers_never_exceed_a_quota_together],
    CountsNoUpdates: [claims.the_use_is_the_sum_of_what_is_stored],
    DeclaresLate: [claims.a_quota_can_be_declared_under_writers],
}
