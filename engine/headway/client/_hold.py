"""Holding a lease: take it, keep it alive, stop what needs it before it can be another's, give it back (C7)."""

from __future__ import annotations

import contextlib
import math
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from headway._safe_report import safe_report
from headway._trio import check_trio
from headway.client._lease import LeaseClient
from headway.client._lease_term import LeaseTerm
from headway.client._pauses import Pauses, measured_pauses
from headway.errors import HeadwayError, LeaseLost, RemoteError
from headway.events import LeaseAwaited, LeaseDelayed, LeaseEnded, LeaseTaken, Report, ignore

_WAIT = 15.0
"""Seconds for which the server is asked to wait for a lease that another holds."""

_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0
_LAST_CALL = 5.0


class HeldLease:
    """A lease that this process holds. Made by `hold_lease`.

    Attributes:
        name: of the lease.
        holder: this process.
    """

    def __init__(self, name: str, holder: str, term: LeaseTerm, pauses: Pauses) -> None:
        self.name = name
        self.holder = holder
        self._term = term
        self._pauses = pauses
        self._why: LeaseLost | None = None
        # The block that needs the lease. Trio ends it at the deadline, whatever the task that renews is doing.
        self._block = trio.CancelScope(deadline=term.until)

    @property
    def term(self) -> int:
        """The lease's term, higher than any before: for what is done outside of the store, so that it can compare."""
        return self._term.number

    @property
    def held(self) -> bool:
        """Whether the lease is surely held, by this process' monotonic clock."""
        return self._term.is_held(trio.current_time())

    @property
    def until(self) -> float:
        """Up to when it is surely held unless it is renewed, by Trio's clock; in the past when that time is over."""
        return self._term.until

    @property
    def remaining(self) -> float:
        """Seconds for which it is surely held unless it is renewed; 0 when it is lost."""
        return max(0.0, self._term.until - trio.current_time()) if self.held else 0.0

    def _kept(self, sent_at: float) -> None:
        self._term.kept(sent_at, trio.current_time(), self._pauses.longest)
        self._block.deadline = self._term.until

    def _lose(self, why: LeaseLost) -> None:
        self._term.lost = True
        self._why = why
        self._block.cancel()


@asynccontextmanager
async def hold_lease(
    leases: LeaseClient, name: str, *, holder: str, ttl: float = 15.0, report: Report = ignore
) -> AsyncIterator[HeldLease]:
    """``async with hold_lease(client.leases, "staff/reports", holder="web-1") as lease: ...``

    Waits until the lease is free, takes it, and keeps it alive while the block runs. When it is lost, or can't be
    renewed in time, the block is cancelled, with a fifth of ``ttl`` left in which to end before the lease can be
    another's, and LeaseLost is raised. Where Python's garbage collector has stopped the process for more than a tenth
    of ``ttl``, twice that is left, and up to half of ``ttl``. At the end, however it comes, the lease is given back.

    Args:
        name: as the lease's service has it: of a controller, or anything else.
        holder: who holds it; a name that no other process has. A process that is started again under its former name
            takes over at once what that still holds, in a higher term.
        ttl: seconds after which the lease of a holder that has died is free, from 1 to 3,600.
        report: is told of waiting, of the term, and of renewals that fail.

    What can't be reached is tried again for as long as it takes; InvalidArgument, PermissionDenied and the like are
    raised at once.
    """
    check_trio("headway.hold_lease")
    report = safe_report(report)
    with measured_pauses() as pauses:
        lease = HeldLease(name, holder, await _take(leases, name, holder, ttl, report, pauses), pauses)
        if not lease.held:
            await _release(leases, lease, min(_LAST_CALL, ttl / 3))
            raise _not_renewed(lease)
        report(LeaseTaken(name, holder, lease.term))
        # While the block ends, under a shield perhaps, the lease is still needed: renewals end only after it.
        renewing = trio.CancelScope(shield=True)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_renew, leases, lease, renewing, report, name=f"renewing the lease {name}")
                try:
                    with lease._block:
                        yield lease
                finally:
                    renewing.cancel()
        except BaseExceptionGroup as group:
            # The block's error comes out as it went in, not wrapped in this nursery.
            if len(group.exceptions) != 1:
                raise
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            lost = not lease.held
            why = lease._why or (_not_renewed(lease) if lost else None)
            if lease._why is None:
                await _release(leases, lease, min(_LAST_CALL, ttl / 3))
            report(LeaseEnded(name, lease.term, why))
        if why is not None:
            raise why


async def _take(leases: LeaseClient, name: str, holder: str, ttl: float, report: Report, pauses: Pauses) -> LeaseTerm:
    attempt = uuid.uuid4().hex
    try:
        return await _taken(leases, name, holder, ttl, report, attempt, pauses)
    except trio.Cancelled:
        if not leases.settles:
            await _give_up(leases, name, holder, ttl, attempt)
        raise


async def _taken(
    leases: LeaseClient, name: str, holder: str, ttl: float, report: Report, attempt: str, pauses: Pauses
) -> LeaseTerm:
    told, retry = "", _FIRST_RETRY
    late = False
    while True:
        sent_at = trio.current_time()
        try:
            # Who doesn't know yet that it is another's is told so at once.
            wait = _WAIT if told else 0.0
            answer = await leases.acquire(name, holder, ttl, attempt=attempt, wait=wait, patience=min(ttl, _WAIT))
        except RemoteError as error:
            # It may have been granted. The next request is of the same attempt and begins a higher term; should this
            # one arrive after that term is in use, the server refuses it.
            delay = retry * random.uniform(0.5, 1)
            report(LeaseDelayed(name, error, delay))
            await trio.sleep(delay)
            retry, late = min(retry * 2, _LONGEST_RETRY), False
            # Who holds it is told again when there is an answer again.
            told = ""
            continue
        retry = _FIRST_RETRY
        if answer.acquired:
            if leases.lasting:
                if await _lasts(leases, name, holder, answer.term):
                    return LeaseTerm(answer.term, ttl, math.inf)
                continue
            # What was waited for the answer is lost of the ttl. After much of it, ask again: that is answered at once.
            # Where it isn't, asking for ever would only keep others from the lease.
            if late or trio.current_time() - sent_at < ttl / 3:
                return LeaseTerm(answer.term, ttl, sent_at, pauses.longest)
            late = True
        else:
            late = False
            if answer.holder != told:
                told = answer.holder
                report(LeaseAwaited(name, told, answer.term))
            await trio.sleep(random.uniform(0, _FIRST_RETRY))


async def _lasts(leases: LeaseClient, name: str, holder: str, term: int) -> bool:
    """Renew a lease for the first time, from which on it lasts; False if a block of the loop has outlived its ttl."""
    # Shielded: a lease that lasts, and that nobody knows of, would never be given back.
    with trio.CancelScope(shield=True):
        try:
            await leases.keep_alive(name, holder, term)
        except (LeaseLost, RemoteError):
            return False
    return True


async def _renew(leases: LeaseClient, lease: HeldLease, scope: trio.CancelScope, report: Report) -> None:
    ttl = lease._term.ttl
    with scope:
        # At different times, so that the many leases of a process don't all come at once.
        delay = ttl / 3 * random.uniform(0.7, 1)
        while lease.held:
            await trio.sleep(delay)
            # A process that was stopped for longer has lost it. To renew it would only keep others from the lease.
            if not lease.held:
                break
            sent_at = trio.current_time()
            try:
                await leases.keep_alive(lease.name, lease.holder, lease.term, timeout=ttl / 4)
            except LeaseLost as error:
                lease._lose(error)
            except HeadwayError as error:
                delay = ttl / 15 * random.uniform(0.5, 1)
                report(LeaseDelayed(lease.name, error, delay))
            else:
                lease._kept(sent_at)
                delay = ttl / 3 * random.uniform(0.7, 1)


async def _give_up(leases: LeaseClient, name: str, holder: str, ttl: float, attempt: str) -> None:
    """End the term that a request without an answer may have begun. Otherwise others would wait for a whole ttl."""
    with trio.move_on_after(min(_LAST_CALL, ttl / 3), shield=True), contextlib.suppress(HeadwayError):
        # The term of that request is not known. This one has a higher term, or tells that another holds the lease.
        answer = await leases.acquire(name, holder, ttl, attempt=attempt)
        if answer.acquired:
            await leases.release(name, holder, answer.term)


async def _release(leases: LeaseClient, lease: HeldLease, timeout: float) -> None:
    # Without it the lease runs out; with it others needn't wait for that.
    with trio.CancelScope(shield=True), contextlib.suppress(HeadwayError):
        await leases.release(lease.name, lease.holder, lease.term, timeout=timeout)


def _not_renewed(lease: HeldLease) -> LeaseLost:
    return LeaseLost(f"term {lease.term} of {lease.name} could not be kept alive in time")
