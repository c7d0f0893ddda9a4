"""Holding a lease: acquire it, renew it, cancel the block that needs it before it expires, and release it (C7).

The holder counts its ttl from the moment before it sent the request, and the server from the moment of the reply. If
both clocks run at the same rate, the holder's ttl therefore ends first. The holder gives up a further part of the ttl
(all above `SURE`). It allows for clocks that run at different rates, and leaves the holder time to stop its work. A
process with long garbage collection pauses needs a larger part.
"""

from __future__ import annotations

import contextlib
import gc
import math
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from headway.base import async_block, chance, check_trio, checked, safe_report
from headway.client._arguments import Ttl
from headway.client._lease import LeaseClient
from headway.errors import HeadwayError, InvalidArgument, LeaseLost, RemoteError
from headway.events import LeaseAwaited, LeaseDelayed, LeaseEnded, LeaseTaken, Report, ignore

SURE = 0.8
"""The fraction of the ttl during which a holder relies on its lease."""

_WAIT = 15.0
"""The seconds that the server is asked to wait for a lease with another holder."""

_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0
_LAST_CALL = 5.0


def relied_on(ttl: float, pause: float) -> float:
    """Return the number of seconds that a holder can rely on its lease, if its process may pause for ``pause``.

    One pause may delay the holder's deadline, and another one its shutdown. The result is at least half of the ttl,
    because with less there would be no time to renew the lease.
    """
    return min(ttl * SURE, max(ttl / 2, ttl - 2 * pause))


class LeaseTerm:
    """A lease's term, from its holder's side. All times are readings of the same monotonic clock, in seconds.

    Attributes:
        number: the number of the term.
        ttl: the ttl of the lease.
        until: the time until which the lease is certainly held.
        lost: True if the lease is lost. A lost term is never held again.
    """

    __slots__ = ("lost", "number", "ttl", "until")

    def __init__(self, number: int, ttl: float, sent_at: float, pause: float = 0.0) -> None:
        self.number = number
        self.ttl = ttl
        self.until = sent_at + relied_on(ttl, pause)
        self.lost = False

    def is_held(self, now: float) -> bool:
        """Return True if the lease is certainly held. Once it has returned False, it never returns True again."""
        self.lost = self.lost or now >= self.until
        return not self.lost

    def renewed(self, sent_at: float, now: float, pause: float = 0.0) -> None:
        """Extend the term after a renewal sent at ``sent_at``. If the lease is already lost, do nothing."""
        if self.is_held(now):
            self.until = max(self.until, sent_at + relied_on(self.ttl, pause))


class Pauses:
    """The garbage collector's pauses in this run of Trio, measured by Trio's clock.

    Attributes:
        longest: the longest pause, in seconds.
        users: the number of blocks that measure.
    """

    def __init__(self, clock: trio.abc.Clock) -> None:
        self.longest = 0.0
        self.users = 0
        self._clock = clock
        self._began: float | None = None

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG002  # see `gc.callbacks`
        """Record the start or the end of a collection."""
        if phase == "start":
            self._began = self._clock.current_time()
        elif self._began is not None:
            # A collection in any thread stops all threads.
            self.longest = max(self.longest, self._clock.current_time() - self._began)
            self._began = None


_PAUSES: trio.lowlevel.RunVar[Pauses] = trio.lowlevel.RunVar("pauses of the garbage collector")


@contextmanager
def measured_pauses() -> Iterator[Pauses]:
    """Measure the collector's pauses during the block. All blocks in one run of Trio share the measurements."""
    try:
        pauses = _PAUSES.get()
    except LookupError:
        pauses = Pauses(trio.lowlevel.current_clock())
        _PAUSES.set(pauses)
    if not pauses.users:
        gc.callbacks.append(pauses)
    pauses.users += 1
    try:
        yield pauses
    finally:
        pauses.users -= 1
        if not pauses.users:
            gc.callbacks.remove(pauses)


class HeldLease:
    """A lease that this process holds. You get one from `hold_lease`.

    Attributes:
        name: the name of the lease.
        holder: the name of this holder.
    """

    def __init__(self, leases: LeaseClient, name: str, holder: str, term: LeaseTerm, pauses: Pauses) -> None:
        self.name = name
        self.holder = holder
        self._leases = leases
        self._term = term
        self._pauses = pauses
        self._why: LeaseLost | None = None
        # The scope of the block that needs the lease. Trio cancels it at the deadline even if the renewal task hangs.
        self._block = trio.CancelScope(deadline=term.until)

    @property
    def term(self) -> int:
        """The lease's term, which is higher than all earlier ones. External systems can use it as a fencing token."""
        return self._term.number

    @property
    def held(self) -> bool:
        """True if the lease is certainly held, by this process's monotonic clock."""
        return self._term.is_held(trio.current_time())

    @property
    def until(self) -> float:
        """The time, by Trio's clock, until which the lease is certainly held without another renewal."""
        return self._term.until

    @property
    def remaining(self) -> float:
        """The number of seconds until `until`, or 0 if the lease is lost."""
        return max(0.0, self._term.until - trio.current_time()) if self.held else 0.0

    async def _renew(self, scope: trio.CancelScope, report: Report) -> None:
        ttl = self._term.ttl
        with scope:
            # With jitter, so that a process's many leases are not all renewed at once.
            delay = ttl / 3 * chance.uniform(0.7, 1)
            while self.held:
                await trio.sleep(delay)
                # If the process was stopped for too long, the lease is lost. A renewal would only block other holders.
                if not self.held:
                    break
                sent_at = trio.current_time()
                try:
                    await self._leases.keep_alive(self.name, self.holder, self.term, timeout=ttl / 4)
                except LeaseLost as error:
                    self._term.lost = True
                    self._why = error
                    self._block.cancel()
                except HeadwayError as error:
                    delay = ttl / 15 * chance.uniform(0.5, 1)
                    report(LeaseDelayed(self.name, error, delay))
                else:
                    self._term.renewed(sent_at, trio.current_time(), self._pauses.longest)
                    self._block.deadline = self._term.until
                    delay = ttl / 3 * chance.uniform(0.7, 1)

    async def _release(self) -> None:
        # If the release fails, the lease expires. Releasing it saves other holders that wait.
        with trio.CancelScope(shield=True), contextlib.suppress(HeadwayError):
            timeout = min(_LAST_CALL, self._term.ttl / 3)
            await self._leases.release(self.name, self.holder, self.term, timeout=timeout)

    def _not_renewed(self) -> LeaseLost:
        return LeaseLost(f"term {self.term} of {self.name} could not be renewed in time")


@async_block
@checked(InvalidArgument, leases="client.leases", name="'staff/reports'", holder="'web-1'")
async def hold_lease(
    leases: LeaseClient, name: str, *, holder: str, ttl: Ttl = 15.0, report: Report = ignore
) -> AsyncIterator[HeldLease]:
    """Hold a lease while the block runs::

        async with hold_lease(client.leases, "staff/reports", holder="web-1") as lease:
            ...

    Waits until the lease is free, acquires it, and renews it while the block runs. The lease is released at the end of
    the block, even after an error.

    If the lease is lost or can't be renewed in time, the block is canceled and LeaseLost is raised. The block then has
    a fifth of ``ttl`` to finish before another process can acquire the lease. If a garbage collection pause was longer
    than a tenth of ``ttl``, the block has twice that pause instead, up to half of ``ttl``.

    While the server can't be reached, attempts to acquire the lease are repeated without a limit. Other errors, such as
    InvalidArgument and PermissionDenied, are raised immediately.

    Args:
        leases: the client of the lease service, `Client.leases`.
        name: the name of the lease, which may be a controller's name.
        holder: the name of the holder, which no other process has. A process that restarts under the same name
            immediately takes over the lease, in a higher term.
        ttl: how long, from 1 to 3,600 seconds, the lease of a crashed holder blocks others.
        report: called with events when waiting, when a term begins and ends, and when a request fails.

    Raises:
        LeaseLost: the lease was lost or could not be renewed in time.
    """
    check_trio("headway.hold_lease")
    report = safe_report(report)
    with measured_pauses() as pauses:
        term = await _Acquisition(leases, name, holder, ttl, report, pauses, attempt=uuid.uuid4().hex).run()
        lease = HeldLease(leases, name, holder, term, pauses)
        if not lease.held:
            await lease._release()
            raise lease._not_renewed()
        report(LeaseTaken(name, holder, lease.term))
        # The lease is needed until the block has ended, which may take time under a shield. Renew it until then.
        renewing = trio.CancelScope(shield=True)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lease._renew, renewing, report, name=f"renewing the lease {name}")
                try:
                    with lease._block:
                        yield lease
                finally:
                    renewing.cancel()
        except BaseExceptionGroup as group:
            # Raise the block's own error without this nursery's group.
            if len(group.exceptions) != 1:
                raise
            raise group.exceptions[0] from group.exceptions[0].__cause__
        finally:
            lost = not lease.held
            why = lease._why or (lease._not_renewed() if lost else None)
            if lease._why is None:
                await lease._release()
            report(LeaseEnded(name, lease.term, why))
        if why is not None:
            raise why


@dataclass(slots=True)
class _Acquisition:
    """The requests that acquire a lease. They share an attempt, so that any of them may be repeated.

    Attributes:
        may_hold: True if a request that has ended may have begun a term that has not ended.
    """

    leases: LeaseClient
    name: str
    holder: str
    ttl: float
    report: Report
    pauses: Pauses
    attempt: str
    may_hold: bool = False

    async def run(self) -> LeaseTerm:
        """Wait until the lease is free, acquire it, and return its term."""
        try:
            return await self._wait_granted()
        except trio.Cancelled:
            # A canceled request within the process had no effect, but one before it may have begun a term.
            if self.may_hold or not self.leases.knows_outcomes:
                await self._release_unknown()
            raise

    async def _wait_granted(self) -> LeaseTerm:
        leases, name, ttl = self.leases, self.name, self.ttl
        reported, retry = "", _FIRST_RETRY
        late = False
        while True:
            sent_at = trio.current_time()
            try:
                # The first attempt does not block: it returns immediately if another holder has the lease.
                wait = _WAIT if reported else 0.0
                answer = await leases.acquire(
                    name, self.holder, ttl, attempt=self.attempt, wait=wait, patience=min(ttl, _WAIT)
                )
            except RemoteError as error:
                # The lease may have been granted. The next request repeats this attempt and begins a higher term. If
                # this request arrives late, when that term is in use, the server rejects it.
                self.may_hold = True
                delay = retry * chance.uniform(0.5, 1)
                self.report(LeaseDelayed(name, error, delay))
                await trio.sleep(delay)
                retry, late = min(retry * 2, _LONGEST_RETRY), False
                # Report the holder again after the next reply.
                reported = ""
                continue
            retry = _FIRST_RETRY
            self.may_hold = answer.acquired
            if answer.acquired:
                if leases.lasting:
                    if await self._renew_lasting(answer.term):
                        return LeaseTerm(answer.term, ttl, math.inf)
                    continue
                # The time spent waiting for the reply counts against the ttl. If it was long, ask once more, because
                # this time the reply comes immediately. If it doesn't, don't ask forever: that would only block other
                # holders.
                if late or trio.current_time() - sent_at < ttl / 3:
                    return LeaseTerm(answer.term, ttl, sent_at, self.pauses.longest)
                late = True
            else:
                late = False
                if answer.holder != reported:
                    reported = answer.holder
                    self.report(LeaseAwaited(name, reported, answer.term))
                await trio.sleep(chance.uniform(0, _FIRST_RETRY))

    async def _renew_lasting(self, term: int) -> bool:
        """Renew a lasting lease. After this first renewal it doesn't expire.

        Return False if it has already expired, because the event loop was blocked for longer than its ttl.
        """
        # Shielded, because a lasting lease that is lost track of would never be released.
        with trio.CancelScope(shield=True):
            try:
                await self.leases.keep_alive(self.name, self.holder, term)
            except (LeaseLost, RemoteError):
                return False
        return True

    async def _release_unknown(self) -> None:
        """End the term that a request may have begun. Otherwise others would wait for a whole ttl."""
        with trio.move_on_after(min(_LAST_CALL, self.ttl / 3), shield=True), contextlib.suppress(HeadwayError):
            # The term of a request without a reply is unknown. This request begins a higher term, or fails if there is
            # another holder.
            answer = await self.leases.acquire(self.name, self.holder, self.ttl, attempt=self.attempt)
            if answer.acquired:
                await self.leases.release(self.name, self.holder, answer.term)
