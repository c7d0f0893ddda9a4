"""Stores whose fences and leases each break one promise, so that the conformance checks must fail."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from headway.resource import Position
from headway.storage import Acquired, CurrentLease, Fence, Lease, Operation, Raised, TermEnded, lease_of, scope_of
from headway.testing.conformance import fences as claims
from headway.testing.conformance import leases
from tests.storage.kept_memory import Broken, KeptMemory


class RaisesWithoutARevision(KeptMemory):
    def _raise(self, who: tuple[str, str], wanted: tuple[int, int]) -> None:
        self._fences[who] = wanted


class CountsTermsFromZero(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        if not term and (controller, member) not in self._fences:
            self._raise((controller, member), (0, number))
            return Raised(Fence(controller, member, 0, number), self.position, self._log.head)
        return await super().raise_fence(controller, member, term, number)


class LowersFences(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        if term and (term, number) <= self._fences.get((controller, member), (0, 0)):
            del self._fences[controller, member]
        return await super().raise_fence(controller, member, term, number)


class IgnoresFences(KeptMemory):
    def _check_fence(self, fence: Fence) -> None:  # noqa: ARG002  # the fault
        self._end_expired_leases()


class AcceptsTermsNeverGranted(KeptMemory):
    def _check_fence(self, fence: Fence) -> None:
        term, _ = self._fences.get((fence.controller, fence.member), (0, 0))
        super()._check_fence(fence if fence.term <= term else fence._replace(term=term, number=fence.number + 1_000))


class ComparesTermsAlone(KeptMemory):
    def _check_fence(self, fence: Fence) -> None:
        stored = self._fences.get((fence.controller, fence.member), (0, 0))
        super()._check_fence(fence._replace(number=stored[1]))


class RequiresTheExactFence(KeptMemory):
    def _check_fence(self, fence: Fence) -> None:
        stored = self._fences.get((fence.controller, fence.member))
        super()._check_fence(fence if stored in (None, (fence.term, fence.number)) else fence._replace(term=0))


class OneFenceForAllMembers(KeptMemory):
    def _check_fence(self, fence: Fence) -> None:
        highest = max((at for (name, _), at in self._fences.items() if name == fence.controller), default=(0, 0))
        self._fences[fence.controller, fence.member] = highest
        super()._check_fence(fence)


class ChecksFencesThenWaits(KeptMemory):
    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if fence is not None:
            self._check_fence(fence)
        return await super().commit(operations)


class AcceptsLowerCheckpoints(KeptMemory):
    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        await trio.lowlevel.checkpoint()
        self._check_fence(fence)
        self._checkpoints[fence.controller][fence.member] = revision


class RecordsCheckpointsOfLoweredFences(KeptMemory):
    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        term, number = self._fences.get((fence.controller, fence.member), (0, 0))
        await super().record_checkpoint(fence._replace(term=term, number=number), revision)


class MovesCheckpointsByRaising(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        self._checkpoints.pop(controller, None)
        return await super().raise_fence(controller, member, term, number)


class AcquiresLeasesWithoutARevision(KeptMemory):
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        before = self.position
        acquired = await super().acquire_lease(name, holder, ttl, attempt)
        return acquired._replace(position=before)


class GrantsAHolderItsTermAgain(KeptMemory):
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        held = self._leases.held(name)
        if held is not None and held.lease.holder == holder:
            await trio.lowlevel.checkpoint()
            return Acquired(True, held, self.position)
        return await super().acquire_lease(name, holder, ttl, attempt)


class GrantsHeldLeases(KeptMemory):
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        held = self._leases.held(name)
        if held is not None and held.lease.holder != holder:
            await super().release_lease(name, held.lease.holder, held.lease.term)
        return await super().acquire_lease(name, holder, ttl, attempt)


class GrantsAnAttemptItsTermAgain(KeptMemory):
    """A repeated request gets the same term again.

    A release of the term may still be in flight. When it arrives, it ends the term of the repeated request.
    """

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        held = self._leases.held(name)
        if held is not None and attempt and (held.lease.holder, held.lease.attempt) == (holder, attempt):
            await self.keep_lease(name, holder, held.lease.term)
            return Acquired(True, CurrentLease(held.lease, held.lease.ttl), self.position)
        return await super().acquire_lease(name, holder, ttl, attempt)


class ForgetsAttempts(KeptMemory):
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:  # noqa: ARG002
        return await super().acquire_lease(name, holder, ttl)


class ChecksThenAcquires(KeptMemory):
    """A lease is acquired in two steps: a check that it is free, and a write that overwrites any holder in between."""

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        free = self._leases.held(name) is None
        acquired = await super().acquire_lease(name, holder, ttl, attempt)
        if not acquired.acquired and free:
            self._end(acquired.held.lease)
            acquired = await super().acquire_lease(name, holder, ttl, attempt)
        return acquired


class AcquiresLeasesWithoutAFence(KeptMemory):
    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        before = self._fences.get(scope_of(name))
        acquired = await super().acquire_lease(name, holder, ttl, attempt)
        if before is not None:
            self._fences[scope_of(name)] = before
        return acquired

    def _end(self, lease: Lease) -> None:
        self._leases.end(lease.name, lease.term)
        self._append(self._log.head + 1, ())


class ReleasesWithoutAFence(KeptMemory):
    async def release_lease(self, name: str, holder: str, term: int) -> None:
        before = self._fences.get(scope_of(name))
        await super().release_lease(name, holder, term)
        if before is not None:
            self._fences[scope_of(name)] = before


class ExpiresLeasesWithoutAFence(KeptMemory):
    def _end_expired_leases(self) -> None:
        for lease in self._leases.expired():
            self._leases.end(lease.name, lease.term)


class RaisesFencesOfHeldLeases(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        held = self._leases.held(lease_of(controller, member))
        if held is not None and term not in (0, held.lease.term):
            await trio.lowlevel.checkpoint()
            self._raise((controller, member), (term, number))
            return Raised(Fence(controller, member, term, number), self.position, self._log.head)
        return await super().raise_fence(controller, member, term, number)


class EndsMembersLeasesWithTheControllers(KeptMemory):
    async def release_lease(self, name: str, holder: str, term: int) -> None:
        await super().release_lease(name, holder, term)
        for each in self._leases.list(f"{name}#"):
            self._end(each.lease)


class RenewsForAnyHolder(KeptMemory):
    async def keep_lease(self, name: str, holder: str, term: int) -> None:  # the fault: any holder renews the term
        held = self._leases.held(name)
        await super().keep_lease(name, held.lease.holder if held is not None else holder, term)


class RenewsEndedTerms(KeptMemory):
    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        try:
            await super().keep_lease(name, holder, term)
        except TermEnded:
            if self._leases.held(name) is not None:
                raise
            self._leases.begin(Lease(name, holder, term, 600.0, "", 0.0))


class ReleasesForAnyHolder(KeptMemory):
    async def release_lease(self, name: str, holder: str, term: int) -> None:  # noqa: ARG002  # the fault
        held = self._leases.held(name)
        if held is not None:
            await super().release_lease(name, held.lease.holder, held.lease.term)


class ListsAllLeases(KeptMemory):
    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:  # noqa: ARG002
        return await super().list_leases()


class NoticesOnlyExpiry(KeptMemory):
    async def wait_lease_ended(self, name: str, term: int) -> None:
        held = self._leases.held(name)
        if held is not None and held.lease.term == term:
            await trio.sleep(held.remaining)


class BeginsEachMemberAnew(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        self._checkpoints.setdefault(controller, {}).setdefault(member, self._log.head + 1)
        return await super().raise_fence(controller, member, term, number)


class ForgetsWhereAMemberBegan(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        begins = member not in self._checkpoints.get(controller, {})
        raised = await super().raise_fence(controller, member, term, number)
        if begins:
            self._checkpoints[controller][member] = self._log.head
        return raised


class CountsTheTermsOfEachMemberAlone(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        following = self._fences.get((controller, member), (0, 0))[0] + 1
        return await super().raise_fence(controller, member, term or following, number)


class CountsTheTermsOfAllMembersTogether(KeptMemory):
    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        following = max((at[0] for (of, _), at in self._fences.items() if of == controller), default=0) + 1
        return await super().raise_fence(controller, member, term or following, number)


class ListsFencesOfControllersAlone(KeptMemory):
    async def list_fences(self) -> Sequence[Fence]:
        return [each for each in await super().list_fences() if not each.member]


BROKEN: Broken = {
    RaisesWithoutARevision: [claims.a_fence_is_raised_by_a_commit, leases.a_lease_is_acquired_by_a_commit],
    CountsTermsFromZero: [claims.term_zero_raises_to_the_next_term],
    LowersFences: [claims.a_fence_that_is_not_above_is_refused],
    IgnoresFences: [claims.a_write_below_the_fence_is_refused],
    AcceptsTermsNeverGranted: [claims.a_write_of_a_term_that_was_never_granted_is_refused],
    ComparesTermsAlone: [claims.a_write_below_the_fence_is_refused],
    RequiresTheExactFence: [claims.a_write_at_or_above_the_fence_is_stored],
    OneFenceForAllMembers: [claims.fences_are_compared_with_their_own],
    ChecksFencesThenWaits: [claims.no_write_below_the_fence_is_stored_after_its_raise],
    AcceptsLowerCheckpoints: [claims.a_checkpoint_is_returned_by_the_next_raise],
    MovesCheckpointsByRaising: [claims.a_checkpoint_is_returned_by_the_next_raise],
    BeginsEachMemberAnew: [claims.a_new_member_goes_on_from_the_others],
    ForgetsWhereAMemberBegan: [claims.a_new_member_goes_on_from_the_others],
    CountsTheTermsOfEachMemberAlone: [leases.terms_rise_when_the_keys_are_divided_in_another_way],
    CountsTheTermsOfAllMembersTogether: [leases.terms_rise_when_the_keys_are_divided_in_another_way],
    ListsFencesOfControllersAlone: [claims.fences_are_listed_in_order],
    RecordsCheckpointsOfLoweredFences: [claims.a_checkpoint_below_the_fence_is_refused],
    AcquiresLeasesWithoutARevision: [leases.a_lease_is_acquired_by_a_commit],
    GrantsAHolderItsTermAgain: [leases.terms_only_grow],
    GrantsHeldLeases: [leases.a_held_lease_is_not_granted_again],
    GrantsAnAttemptItsTermAgain: [leases.a_repeated_request_has_a_term_of_its_own],
    ForgetsAttempts: [leases.a_late_request_does_not_end_a_term_in_use],
    ChecksThenAcquires: [leases.one_of_many_requests_gets_the_lease],
    AcquiresLeasesWithoutAFence: [
        leases.no_write_of_a_term_is_stored_after_another_holder_acquires,
        leases.no_write_of_a_term_is_stored_after_its_holder_acquires_again,
    ],
    ReleasesWithoutAFence: [leases.no_write_of_a_term_is_stored_after_its_release],
    ExpiresLeasesWithoutAFence: [leases.no_write_of_a_term_is_stored_after_it_expired],
    RaisesFencesOfHeldLeases: [leases.a_raise_is_in_the_term_of_its_lease],
    EndsMembersLeasesWithTheControllers: [leases.a_members_fence_is_governed_by_its_own_lease],
    RenewsForAnyHolder: [leases.a_lease_is_renewed_by_its_holder_alone],
    RenewsEndedTerms: [leases.an_ended_lease_cannot_be_renewed],
    ReleasesForAnyHolder: [leases.an_ended_lease_cannot_be_renewed],
    ListsAllLeases: [leases.leases_are_listed_by_prefix],
    NoticesOnlyExpiry: [leases.the_end_of_a_lease_wakes_waiting_tasks],
}
