"""Leases: rows with the time at which they expire, by the clock of the server."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from headway.resource import Position
from headway.storage._leases import Acquired, CurrentLease, TermEnded, not_held, scope_of
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import only
from headway.storage.postgres._requests import (
    AcquireRequest,
    ReleaseRequest,
    Request,
    check_texts,
    lease_from,
)
from headway.storage.postgres._session import Session


async def acquire(session: Session, name: str, holder: str, ttl: float, attempt: str) -> Acquired:
    """Acquire a lease, unless another holder has it."""
    held = await _read(session, name)
    if held is not None and held.remaining > 0 and held.lease.holder != holder:
        # Many ask for a lease that another one holds. They need no transaction.
        return Acquired(False, held, await session.confirm())
    request = AcquireRequest(name, holder, ttl, attempt)
    await session.writer.submit(request)
    return Acquired(request.acquired, request.held, session.after(request))


async def keep(session: Session, name: str, holder: str, term: int) -> None:
    """Renew a lease for a whole ttl from now. Raise TermEnded if the term has ended."""
    check_texts(holder)
    kept = (session.sql.keep_lease, {**_scope(name), "holder": holder, "term": term})
    while not (await session.readers.ask(kept))[0]:
        # The term may have expired, but no commit has ended it.
        expiring = Request()
        expiring.scopes = [scope_of(name)]
        await session.writer.submit(expiring)
        held = await _read(session, name)
        if held is None:
            raise TermEnded(f"term {term} of {name} has ended, and the lease is not held now")
        if (held.lease.holder, held.lease.term) != (holder, term):
            raise not_held(name, holder, term, held.lease.holder, held.lease.term)
        # It counts anew, because the clock was set forward.


async def release(session: Session, name: str, holder: str, term: int) -> None:
    """End a term early, by a commit. Do nothing if it has already ended."""
    await session.writer.submit(ReleaseRequest(name, holder, term))


async def listed(session: Session, name_prefix: str) -> tuple[Sequence[CurrentLease], Position]:
    """Return the held leases whose names begin with the prefix, in order of name, and a position."""
    s = session.sql
    _, stores, rows, _ = await session.readers.ask(
        (sql.BEGIN_READ, {}), (s.here, {}), (s.list_leases, {}), (sql.COMMIT, {})
    )
    revision, id = only(stores)
    held = sorted((lease_from(*row)[0] for row in rows), key=lambda each: each.lease.name)
    return [each for each in held if each.lease.name.startswith(name_prefix)], session.note(id, revision)


async def wait_ended(session: Session, name: str, term: int) -> None:
    """Wait until the lease is not held in this term."""
    while True:
        beats = session.lease_beats
        held = await _read(session, name)
        if held is None or held.remaining <= 0 or held.lease.term != term:
            return
        if session.lease_beats == beats:
            # A follower that has lost its connection beats when it has another one.
            with trio.move_on_after(held.remaining):
                await session.leases.wait()


async def _read(session: Session, name: str) -> CurrentLease | None:
    check_texts(name)
    row = await session.held.read(scope_of(name))
    if row[2] is None:
        return None
    held = lease_from(*row)[0]
    if held.remaining > held.lease.ttl:
        # Otherwise it would be held until the clock, which was set back, is there again.
        await session.readers.ask((session.sql.shorten_lease, _scope(name)))
        held = held._replace(remaining=held.lease.ttl)
    return held


def _scope(name: str) -> dict[str, object]:
    check_texts(name)
    controller, member = scope_of(name)
    return {"controller": controller, "member": member}
