"""The leases that are held, and until when by the process' monotonic clock.

Who holds a lease in which term is the store's to commit, and survives it. This is the other half, which doesn't: the
time. Invariants:

1. What the table has for a name is what the last published commit has for it.
2. A lease that has run out stays so: only a commit that begins a new term brings its name back.
3. A lease that has run out is ended by a commit before anything that bears a fence is committed after it.

Leases *last* (`last`) where this process alone can ask for one. A holder that renews its lease (its request had an
attempt) then has it from its first renewal on until it gives it back: while a blocked event loop keeps the holder from
renewing, no other task can take the lease. A lease from before runs out by time, because its holder may have been
another process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from headway.errors import HeadwayError
from headway.storage._errors import LeaseEnded, not_held
from headway.storage._leases import HeldLease, Lease, is_late
from headway.storage._tail import Pulse


class LeaseTable:
    """The time of a store's leases.

    Args:
        leases: those that were held when the store was left. How much was left of them nobody knows: at most all.
    """

    def __init__(self, leases: Sequence[Lease] = ()) -> None:
        now = trio.current_time() if leases else 0.0
        self._leases = {lease.name: lease for lease in leases}
        self._until = {lease.name: now + lease.ttl for lease in leases}
        # The names of the leases whose holders have shown that they know their terms.
        self._in_use: set[str] = set()
        # Invariant: no lease runs out before this time, so that a commit needn't look at each of them.
        self._soonest = min(self._until.values(), default=math.inf)
        self._changes = Pulse()
        self._lasting = False

    def last(self, *, lasting: bool) -> None:
        """Say whether leases that are renewed from now on last. When they no longer do, each has a whole ttl left."""
        self._lasting = lasting
        if not lasting:
            for name, until in self._until.items():
                if until == math.inf:
                    self._bound(self._leases[name])

    def _bound(self, lease: Lease) -> None:
        self._until[lease.name] = trio.current_time() + lease.ttl
        self._soonest = min(self._soonest, self._until[lease.name])

    def leave(self, name: str, holder: str, term: int) -> None:
        """Note that the holder gives the lease back. Should that not be stored, it runs out by time.

        To be called before anything that can be cut off.
        """
        held = self.held(name)
        if (
            held is not None
            and self._until[name] == math.inf
            and (held.lease.holder, held.lease.term) == (holder, term)
        ):
            self._bound(held.lease)

    def held(self, name: str) -> HeldLease | None:
        """The lease of this name, unless its time has passed."""
        lease = self._leases.get(name)
        if lease is None:
            return None
        until = self._until[name]
        # For one that lasts: no less, whenever it is asked.
        remaining = lease.ttl if until == math.inf else until - trio.current_time()
        return HeldLease(lease, remaining) if remaining > 0 else None

    def committed(self, name: str) -> Lease | None:
        """The lease of this name as the last commit has it, whether or not its time has passed since."""
        return self._leases.get(name)

    def list(self, name_prefix: str) -> Sequence[HeldLease]:
        """Those that are held and whose names begin so, in order of name."""
        names = sorted(name for name in self._leases if name.startswith(name_prefix))
        return [held for name in names if (held := self.held(name)) is not None]

    def begin(self, lease: Lease) -> None:
        """A term has begun: a whole ttl from now."""
        self._leases[lease.name] = lease
        self._bound(lease)
        self._in_use.discard(lease.name)
        self._changes.beat()

    def use(self, name: str) -> None:
        """Note that the holder has shown that it knows the term."""
        if name in self._leases:
            self._in_use.add(name)

    def holds_off(self, name: str, holder: str, attempt: str) -> HeldLease | None:
        """Return the lease if it is held and a request of this holder and attempt begins no new term of it."""
        held = self.held(name)
        if held is None:
            return None
        if held.lease.holder == holder and not is_late(held.lease, holder, attempt, in_use=name in self._in_use):
            return None
        return held

    def keep(self, name: str, holder: str, term: int) -> None:
        """Put the expiry off to a whole ttl from now, or for good if leases last and somebody renews this one.

        Raises LeaseEnded when the term has ended.
        """
        held = self.held(name)
        if held is None:
            raise LeaseEnded(f"term {term} of {name} has ended, and nobody holds it now")
        if (held.lease.holder, held.lease.term) != (holder, term):
            raise not_held(name, holder, term, held.lease.holder, held.lease.term)
        if self._lasting and held.lease.attempt:
            self._until[name] = math.inf
        else:
            self._until[name] = trio.current_time() + held.lease.ttl
        self._in_use.add(name)

    def end(self, name: str, term: int) -> None:
        """A term has ended."""
        lease = self._leases.get(name)
        if lease is not None and lease.term == term:
            del self._leases[name], self._until[name]
            self._in_use.discard(name)
            self._changes.beat()

    def run_out(self) -> Sequence[Lease]:
        """Those whose time has passed, until `end` says that this has been committed."""
        if self._soonest == math.inf or (now := trio.current_time()) < self._soonest:
            return ()
        self._soonest = min(self._until.values(), default=math.inf)
        return [self._leases[name] for name, until in self._until.items() if until <= now]

    async def wait_ended(self, name: str, term: int) -> None:
        """Wait until the lease is not held in this term."""
        while (held := self.held(name)) is not None and held.lease.term == term:
            with trio.move_on_after(held.remaining):
                await self._changes.wait()

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Make who waits, now or later, raise what ``why`` makes."""
        self._changes.stop(why)
