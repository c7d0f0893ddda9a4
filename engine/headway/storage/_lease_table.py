"""The held leases and their expiry times by the process's monotonic clock.

The store commits the holder and the term of each lease, and both survive a restart. The times in this table don't.

Invariants:

1. The table has the same lease for a name as the last published commit.
2. An expired lease stays expired until a commit begins a new term of it.
3. A commit ends an expired lease before any commit that carries a fence follows.

Leases *last* (`set_lasting`) if only this process can acquire one. A holder that renews its lease (its request had an
attempt) then keeps it from the first renewal until it releases it. While a blocked event loop keeps the holder from
renewing, no other task can acquire the lease. A lease from an earlier process expires by time, because its holder may
have been another process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from headway.errors import HeadwayError
from headway.storage._leases import CurrentLease, Lease, TermEnded, is_late, not_held
from headway.storage._watch import Pulse


class LeaseTable:
    """The held leases of a store, with their expiry times.

    Args:
        leases: the leases that were held when the store was last closed. Each gets its whole ttl, because the time that
            it had left is unknown.
    """

    def __init__(self, leases: Sequence[Lease] = ()) -> None:
        now = trio.current_time() if leases else 0.0
        self._leases = {lease.name: lease for lease in leases}
        self._until = {lease.name: now + lease.ttl for lease in leases}
        # The names of the leases whose holders have renewed them or raised their fences: they know their terms.
        self._in_use: set[str] = set()
        # Invariant: no lease expires before this time, so that a commit need not look at each of them.
        self._soonest = min(self._until.values(), default=math.inf)
        self._changes = Pulse()
        self._lasting = False

    def set_lasting(self, *, lasting: bool) -> None:
        """Set whether leases last once they are renewed. If they no longer do, each gets a whole ttl from now."""
        self._lasting = lasting
        if not lasting:
            for name, until in self._until.items():
                if until == math.inf:
                    self._bound(self._leases[name])

    def _bound(self, lease: Lease) -> None:
        self._until[lease.name] = trio.current_time() + lease.ttl
        self._soonest = min(self._soonest, self._until[lease.name])

    def begin_release(self, name: str, holder: str, term: int) -> None:
        """Note that the holder releases the lease. If the release is not stored, the lease expires by time.

        Call this before the first checkpoint of a release, since cancellation may interrupt the release there.
        """
        lease = self.held_by(name, holder, term)
        if lease is not None and self._until[name] == math.inf:
            self._bound(lease)

    def held(self, name: str) -> CurrentLease | None:
        """Return the lease of this name, or None if it is not held or has expired."""
        lease = self._leases.get(name)
        if lease is None:
            return None
        until = self._until[name]
        # A lease that lasts always has its whole ttl left.
        remaining = lease.ttl if until == math.inf else until - trio.current_time()
        return CurrentLease(lease, remaining) if remaining > 0 else None

    def held_by(self, name: str, holder: str, term: int) -> Lease | None:
        """Return the lease of this name if the holder has it in this term."""
        held = self.held(name)
        return held.lease if held is not None and (held.lease.holder, held.lease.term) == (holder, term) else None

    def committed(self, name: str) -> Lease | None:
        """Return the lease of this name in the last commit, even if it has expired since."""
        return self._leases.get(name)

    def list(self, name_prefix: str) -> Sequence[CurrentLease]:
        """Return the held leases whose names begin with the prefix, in order of name."""
        names = sorted(name for name in self._leases if name.startswith(name_prefix))
        return [held for name in names if (held := self.held(name)) is not None]

    def begin(self, lease: Lease) -> None:
        """Note that a term has begun. It has a whole ttl from now."""
        self._leases[lease.name] = lease
        self._bound(lease)
        self._in_use.discard(lease.name)
        self._changes.beat()

    def use(self, name: str) -> None:
        """Note that the holder uses the term, and therefore knows it."""
        if name in self._leases:
            self._in_use.add(name)

    def held_against(self, name: str, holder: str, attempt: str) -> CurrentLease | None:
        """Return the lease if it is held and this request must not begin a new term. Return None otherwise."""
        held = self.held(name)
        if held is None:
            return None
        if held.lease.holder == holder and not is_late(held.lease, holder, attempt, in_use=name in self._in_use):
            return None
        return held

    def renew(self, name: str, holder: str, term: int) -> None:
        """Renew a lease for a whole ttl from now, or until its release if leases last and the lease has an attempt.

        Raises:
            TermEnded: the term has ended.
        """
        held = self.held(name)
        if held is None:
            raise TermEnded(f"term {term} of {name} has ended, and the lease is not held now")
        if (held.lease.holder, held.lease.term) != (holder, term):
            raise not_held(name, holder, term, held.lease.holder, held.lease.term)
        if self._lasting and held.lease.attempt:
            self._until[name] = math.inf
        else:
            self._until[name] = trio.current_time() + held.lease.ttl
        self._in_use.add(name)

    def end(self, name: str, term: int) -> None:
        """Note that a term has ended."""
        lease = self._leases.get(name)
        if lease is not None and lease.term == term:
            del self._leases[name], self._until[name]
            self._in_use.discard(name)
            self._changes.beat()

    def expired(self) -> Sequence[Lease]:
        """Return the expired leases whose end has not been committed yet. `end` removes them."""
        if self._soonest == math.inf or (now := trio.current_time()) < self._soonest:
            return ()
        self._soonest = min(self._until.values(), default=math.inf)
        return [self._leases[name] for name, until in self._until.items() if until <= now]

    async def wait_ended(self, name: str, term: int) -> None:
        """Wait until the lease is not held in this term."""

        def goes_on() -> bool:
            held = self.held(name)
            return held is not None and held.lease.term == term

        while (held := self.held(name)) is not None and held.lease.term == term:
            with trio.move_on_after(held.remaining):
                # Changes of other leases, of which there may be many, do not wake it.
                await self._changes.wait(goes_on)

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Stop waiting: every current and future call of `wait_ended` raises the error that ``why`` returns."""
        self._changes.stop(why)
