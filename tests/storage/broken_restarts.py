"""Stores that lose something when they are closed and reopened, so that the conformance checks must fail."""

from __future__ import annotations

from headway.storage import LeaseTable
from headway.testing.conformance import restarts as claims
from tests.storage.kept_memory import Broken, KeptMemory


class ClosesWithoutWaking(KeptMemory):
    async def __aexit__(self, *_: object) -> None:
        """Close without waking any waiter."""


class LosesTheLastResourceOfAKind(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        for table in self.tables.values():
            for key in list(table)[-1:]:
                del table[key]


class ForgetsOwners(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self.owned.clear()


class ReusesItsLastRevision(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self._log.head -= 1
        self._position = self._at(self._log.head)


class KeepsItsSession(KeptMemory):
    def open_again(self) -> None:
        """Keep the incarnation."""


class ForgetsItsSessions(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self.left.clear()


class ForgetsItsHistory(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self._log.floor = self._log.head


class ForgetsFences(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self._fences.clear()


class ForgetsCheckpoints(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self._checkpoints.clear()


class ForgetsLeases(KeptMemory):
    def open_again(self) -> None:
        super().open_again()
        self._leases = LeaseTable()


class KeepsItsIdWhenRestored(KeptMemory):
    def restored(self) -> None:
        """Keep the store's id."""


class RestoresEarlierTerms(KeptMemory):
    def restored(self) -> None:
        super().restored()
        self._fences.clear()


BROKEN: Broken = {
    ClosesWithoutWaking: [claims.a_closed_store_ends_its_watches],
    LosesTheLastResourceOfAKind: [claims.acknowledged_writes_survive_a_restart],
    ForgetsOwners: [claims.acknowledged_writes_survive_a_restart],
    ReusesItsLastRevision: [claims.revisions_go_on_after_reopening],
    KeepsItsSession: [claims.revisions_go_on_after_reopening],
    ForgetsItsSessions: [claims.earlier_positions_can_be_resumed_from],
    ForgetsItsHistory: [claims.earlier_positions_can_be_resumed_from],
    ForgetsFences: [claims.fences_outlive_a_reopening],
    ForgetsCheckpoints: [claims.fences_outlive_a_reopening],
    ForgetsLeases: [claims.a_lease_counts_as_held_after_reopening],
    KeepsItsIdWhenRestored: [claims.a_restored_store_is_another],
    RestoresEarlierTerms: [claims.a_restored_store_is_another],
}
