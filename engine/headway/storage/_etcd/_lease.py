"""Leases: a key that goes with an etcd lease, and a fence in the same commit.

That the key is gone, whoever took it away, ends the term: the fence counts as above it from then on (`Mirror.fence`),
and every write that bears the fence compares the key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import trio

from headway._gen.etcdserverpb import TxnResponse
from headway.resource import Position
from headway.storage._errors import LeaseEnded, not_held
from headway.storage._etcd._commit import decided, whole
from headway.storage._etcd._opened import Kept, Opened
from headway.storage._etcd._records import StoredLease, fence_value, lease_value
from headway.storage._etcd._transaction import Draft, putting
from headway.storage._leases import Acquired, HeldLease, Lease, is_late, scope_of


async def acquire(opened: Opened, name: str, holder: str, ttl: float, attempt: str) -> Acquired:
    """See `Backend.acquire_lease`."""
    wanted = Lease(name, holder, 0, ttl, attempt, time.time())
    await opened.confirm()
    held = _holds_off(opened, wanted)
    if held is not None:
        return Acquired(False, _shown(opened, held), opened.position)
    with whole(opened):
        return await _taken(opened, wanted)


def _holds_off(opened: Opened, wanted: Lease) -> StoredLease | None:
    """Return the lease if it is held and a request for this one begins no new term of it."""
    held = opened.mirror.leases.get(wanted.name)
    if held is None:
        return None
    lease, fence = held.lease, opened.mirror.fence(*scope_of(wanted.name))
    kept = opened.kept.get(lease.name)
    in_use = (fence.term == lease.term and fence.number > 0) or (
        # Of a renewal by another engine nothing is known here.
        kept is not None and kept.term == lease.term and kept.renewed
    )
    if lease.holder == wanted.holder and not is_late(lease, wanted.holder, wanted.attempt, in_use=in_use):
        return None
    return held


async def _taken(opened: Opened, wanted: Lease) -> Acquired:
    """Take it, unless somebody else has come first."""
    began = trio.current_time()
    id = (await opened.client.grant(max(1, math.ceil(wanted.ttl)))).id
    name, scope, layout = wanted.name, scope_of(wanted.name), opened.layout
    taken = wanted

    def propose() -> Draft | None:
        nonlocal taken
        if _holds_off(opened, wanted) is not None:
            return None
        stored = opened.mirror.fence(*scope)
        taken = wanted._replace(term=stored.term + 1)
        draft = opened.draft()
        draft.believe_fence(*scope, stored)
        draft.write(
            putting(layout.fence(*scope), fence_value(taken.term, 0, leased=True)),
            putting(layout.lease(name), lease_value(taken), id),
        )
        return draft

    def done(_: TxnResponse, revision: int) -> Acquired:
        opened.kept[name] = Kept(taken.term, began + taken.ttl, renewed=False)
        return Acquired(True, HeldLease(taken, taken.ttl), opened.at(revision))

    def lost() -> Acquired:
        return Acquired(False, _shown(opened, opened.mirror.leases[name]), opened.position)

    acquired: Acquired | None = None
    try:
        acquired = await decided(opened, propose, done, lost)
        return acquired
    finally:
        if acquired is None or not acquired.acquired:
            # When it isn't known whether the commit happened it takes what it may have taken back.
            await opened.client.revoke(id)


async def keep(opened: Opened, name: str, holder: str, term: int) -> None:
    """See `Backend.keep_lease`."""
    await opened.confirm()
    held = opened.mirror.leases.get(name)
    if held is None:
        raise LeaseEnded(f"term {term} of {name} has ended, and nobody holds it now")
    if (held.lease.holder, held.lease.term) != (holder, term):
        raise not_held(name, holder, term, held.lease.holder, held.lease.term)
    if not await _renew(opened, held):
        await _gone(opened, name, held)
        raise LeaseEnded(f"term {term} of {name} has ended, and nobody holds it now")


async def release(opened: Opened, name: str, holder: str, term: int) -> None:
    """See `Backend.release_lease`."""
    scope = scope_of(name)

    def propose() -> Draft | None:
        held = opened.mirror.leases.get(name)
        if held is None or (held.lease.holder, held.lease.term) != (holder, term):
            return None
        stored = opened.mirror.fence(*scope)
        draft = opened.draft()
        draft.believe_fence(*scope, stored)
        if stored.term == term:
            draft.write(putting(opened.layout.fence(*scope), fence_value(term + 1, 0, leased=False)))
        draft.end_lease(name)
        return draft

    with whole(opened):
        await decided(opened, propose, lambda _, revision: opened.at(revision), lambda: None)


async def listed(opened: Opened, name_prefix: str) -> tuple[Sequence[HeldLease], Position]:
    """See `Backend.list_leases`."""
    await opened.confirm()
    leases = opened.mirror.leases
    names = sorted(name for name in leases if name.startswith(name_prefix))
    return [_shown(opened, leases[name]) for name in names], opened.position


async def wait_ended(opened: Opened, name: str, term: int) -> None:
    """See `Backend.wait_lease_ended`."""
    await opened.confirm()
    while (held := opened.mirror.leases.get(name)) is not None and held.lease.term == term:
        await opened.heard.wait()


async def _renew(opened: Opened, held: StoredLease) -> bool:
    """Keep it alive; whether it still was."""
    began = trio.current_time()
    if await opened.client.keep_alive(held.id) <= 0:
        return False
    opened.kept[held.lease.name] = Kept(held.lease.term, began + held.lease.ttl, renewed=True)
    return True


async def _gone(opened: Opened, name: str, held: StoredLease) -> None:
    """Its etcd lease has run out: wait until its key is heard to have gone, which etcd may have yet to do."""
    while opened.mirror.leases.get(name) == held:
        await opened.heard.wait()


def _shown(opened: Opened, held: StoredLease) -> HeldLease:
    """How much of it is left. Of one that another engine keeps alive nobody here knows: at most all."""
    lease = held.lease
    kept = opened.kept.get(lease.name)
    if kept is None or kept.term != lease.term:
        return HeldLease(lease, lease.ttl)
    # Past its time as it was told to its holder, it is held until etcd has noticed.
    return HeldLease(lease, max(kept.until - trio.current_time(), 0.001))
