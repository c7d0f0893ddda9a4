"""Terms of leases in a store's file. As in `_sqlite_commit.py`, checks and changes run in a worker thread."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from headway.errors import InvalidArgument
from headway.storage import _sqlite_schema as sql
from headway.storage._lease_table import LeaseTable
from headway.storage._leases import Lease, is_late, lease_of, scope_of
from headway.storage._sqlite_commit import HIGHEST, Request, read_fence


class AcquireRequest(Request):
    """A request to acquire a lease. Afterwards ``lease`` is the current term, and ``acquired`` is True if this began
    it.
    """

    __slots__ = ("_fence", "_table", "acquired", "lease")

    def __init__(self, table: LeaseTable, name: str, holder: str, ttl: float, attempt: str) -> None:
        super().__init__()
        self._table = table
        self.lease = Lease(name, holder, 0, ttl, attempt, time.time())
        self.acquired = False
        self._fence = (0, 0)

    def check(self, connection: sqlite3.Connection) -> bool:
        """Return True if the lease is free, or if its holder may begin a new term."""
        wanted = self.lease
        stored = _stored(connection, wanted.name)
        term, number, checkpoint = read_fence(connection, *scope_of(wanted.name))
        if stored is not None:
            # The table knows about renewals. The file knows whether the holder has raised its fence.
            in_use = term == stored.term and number > 0
            if stored.holder != wanted.holder or is_late(stored, wanted.holder, wanted.attempt, in_use=in_use):
                self.lease = stored
                return False
        if term + 2 > HIGHEST:
            raise InvalidArgument(f"the fence of {wanted.name} is at term {term}: no higher term is possible")
        self.lease, self.acquired = wanted._replace(term=term + 1), True
        self._fence = (term + 1, checkpoint)
        return True

    def apply(self, connection: sqlite3.Connection, now: float) -> None:  # noqa: ARG002  # as the others have it
        """Store the lease and its fence."""
        lease = self.lease
        _write_fence(connection, lease.name, *self._fence)
        row = (*scope_of(lease.name), lease.holder, lease.term, lease.ttl, lease.attempt, lease.acquired_at)
        connection.execute(sql.WRITE_LEASE, row)

    def publish(self) -> None:
        """Begin the term in the table."""
        self._table.begin(self.lease)


class EndRequest(Request):
    """A request to end terms of leases, in one commit. It skips terms that have already ended."""

    __slots__ = ("_ended", "_leases", "_table")

    def __init__(self, table: LeaseTable, leases: Sequence[Lease]) -> None:
        super().__init__()
        self._table = table
        self._leases = leases
        self._ended: list[Lease] = []

    def check(self, connection: sqlite3.Connection) -> bool:
        """Return True if any of the terms has not ended yet."""
        for lease in self._leases:
            stored = _stored(connection, lease.name)
            if stored is not None and stored.term == lease.term:
                self._ended.append(lease)
        return bool(self._ended)

    def apply(self, connection: sqlite3.Connection, now: float) -> None:  # noqa: ARG002  # as the others have it
        """Delete the leases and raise their fences."""
        for lease in self._ended:
            term, _, checkpoint = read_fence(connection, *scope_of(lease.name))
            if term == lease.term:  # A program without leases may have raised it further.
                # No lease has the next term: the next one to acquire the lease gets a higher one.
                _write_fence(connection, lease.name, term + 1, checkpoint)
            connection.execute(sql.DELETE_LEASE, scope_of(lease.name))

    def publish(self) -> None:
        """End the terms in the table."""
        for lease in self._ended:
            self._table.end(lease.name, lease.term)


def read_leases(connection: sqlite3.Connection) -> list[Lease]:
    """Return the leases that were held when the file was last closed."""
    rows = connection.execute(sql.READ_LEASES).fetchall()
    return [Lease(lease_of(controller, member), *rest) for controller, member, *rest in rows]


def _stored(connection: sqlite3.Connection, name: str) -> Lease | None:
    row = connection.execute(sql.READ_LEASE, scope_of(name)).fetchone()
    return None if row is None else Lease(name, *row)


def _write_fence(connection: sqlite3.Connection, name: str, term: int, checkpoint: int) -> None:
    connection.execute(sql.WRITE_FENCE, (*scope_of(name), term, 0, checkpoint))
