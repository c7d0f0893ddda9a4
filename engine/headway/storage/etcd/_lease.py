"""Leases: a key that is bound to an etcd lease, and a fence raised in the same commit.

The deletion of the key, by etcd or by a commit, ends the term. From that moment on the fence counts as above the term
(`Mirror.fence`). Every write that carries the fence compares the key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import trio

from headway.resource import Position
from headway.storage._leases import Acquired, CurrentLease, Lease, TermEnded, is_late, not_held, scope_of
from headway.storage.etcd._commit import decided, whole
from headway.storage.etcd._session import Kept, Session
from headway.storage.etcd.layout import Draft, StoredLease, fence_value, lease_value, putting


async def acquire(session: Session, name: str, holder: str, ttl: float, attempt: str) -> Acquired:
    """Acquire a lease, unless another holder has it."""
    wanted = Lease(name, holder, 0, ttl, attempt, time.time())
    await session.confirm()
    held = _holds_off(session, wanted)
    if held is not None:
        return Acquired(False, _shown(session, held), session.position)
    with whole(session):
        return await _taken(session, wanted)


def _holds_off(session: Session, wanted: Lease) -> StoredLease | None:
    """Return the lease if it is held and this request must not begin a new term. Return None otherwise."""
    held = session.mirror.leases.get(wanted.name)
    if held is None:
        return None
    lease, fence = held.lease, session.mirror.fence(*scope_of(wanted.name))
    kept = session.kept.get(lease.name)
    in_use = (fence.term == lease.term and fence.number > 0) or (
        # Only renewals by this engine are known here.
        kept is not None and kept.term == lease.term and kept.renewed
    )
    if lease.holder == wanted.holder and not is_late(lease, wanted.holder, wanted.attempt, in_use=in_use):
        return None
    return held


async def _taken(session: Session, wanted: Lease) -> Acquired:
    """Acquire the lease, unless another holder has acquired it first."""
    began = trio.current_time()
    id = (await session.client.grant(max(1, math.ceil(wanted.ttl)))).id
    name, scope, layout = wanted.name, scope_of(wanted.name), session.layout
    taken = wanted

    def propose() -> Draft | None:
        nonlocal taken
        if _holds_off(session, wanted) is not None:
            return None
        stored = session.mirror.fence(*scope)
        taken = wanted._replace(term=session.mirror.next_term(*scope))
        draft = session.draft()
        draft.compare_fence(*scope, stored)
        draft.write(
            putting(layout.fence(*scope), fence_value(taken.term, 0, leased=True)),
            putting(layout.lease(name), lease_value(taken), id),
        )
        return draft

    def done(revision: int) -> Acquired:
        session.kept[name] = Kept(taken.term, began + taken.ttl, renewed=False)
        return Acquired(True, CurrentLease(taken, taken.ttl), session.at(revision))

    def lost() -> Acquired:
        return Acquired(False, _shown(session, session.mirror.leases[name]), session.position)

    acquired: Acquired | None = None
    try:
        acquired = await decided(session, propose, done, lost)
        return acquired
    finally:
        if acquired is None or not acquired.acquired:
            # If the outcome of the commit is unknown, this releases the lease that it may have acquired.
            await session.client.revoke(id)


async def keep(session: Session, name: str, holder: str, term: int) -> None:
    """Renew a lease for a whole ttl. Raise TermEnded if the term has ended."""
    await session.confirm()
    held = session.mirror.leases.get(name)
    if held is None:
        raise TermEnded(f"term {term} of {name} has ended, and the lease is not held now")
    if (held.lease.holder, held.lease.term) != (holder, term):
        raise not_held(name, holder, term, held.lease.holder, held.lease.term)
    if not await _renew(session, held):
        await _gone(session, name, held)
        raise TermEnded(f"term {term} of {name} has ended, and the lease is not held now")


async def release(session: Session, name: str, holder: str, term: int) -> None:
    """End a term early. Do nothing if it has already ended."""
    scope = scope_of(name)

    def propose() -> Draft | None:
        held = session.mirror.leases.get(name)
        if held is None or (held.lease.holder, held.lease.term) != (holder, term):
            return None
        stored = session.mirror.fence(*scope)
        draft = session.draft()
        draft.compare_fence(*scope, stored)
        if stored.term == term:
            draft.write(putting(session.layout.fence(*scope), fence_value(term + 1, 0, leased=False)))
        draft.end_lease(name)
        return draft

    with whole(session):
        await decided(session, propose, session.at, lambda: None)


async def listed(session: Session, name_prefix: str) -> tuple[Sequence[CurrentLease], Position]:
    """Return the held leases whose names begin with the prefix, in order of name, and a position."""
    await session.confirm()
    leases = session.mirror.leases
    names = sorted(name for name in leases if name.startswith(name_prefix))
    return [_shown(session, leases[name]) for name in names], session.position


async def wait_ended(session: Session, name: str, term: int) -> None:
    """Wait until the lease is not held in this term."""
    await session.confirm()
    while (held := session.mirror.leases.get(name)) is not None and held.lease.term == term:
        await session.changed.wait()


async def _renew(session: Session, held: StoredLease) -> bool:
    """Renew the etcd lease. Return False if it has already expired."""
    began = trio.current_time()
    if await session.client.keep_alive(held.id) <= 0:
        return False
    session.kept[held.lease.name] = Kept(held.lease.term, began + held.lease.ttl, renewed=True)
    return True


async def _gone(session: Session, name: str, held: StoredLease) -> None:
    """Wait until the watch delivers the deletion of the key. etcd may delete it some time after the lease expires."""
    while session.mirror.leases.get(name) == held:
        await session.changed.wait()


def _shown(session: Session, held: StoredLease) -> CurrentLease:
    """Return the lease with its remaining time. If another engine renews it, that is unknown: return the whole ttl."""
    lease = held.lease
    kept = session.kept.get(lease.name)
    if kept is None or kept.term != lease.term:
        return CurrentLease(lease, lease.ttl)
    # Even after the time that its holder knows, the lease is held until etcd ends it.
    return CurrentLease(lease, max(kept.until - trio.current_time(), 0.001))
