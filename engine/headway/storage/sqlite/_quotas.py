"""The quotas of a store's file, and their use. Everything here runs in the thread of a transaction.

The use is in no table: one process has the file, and counts when a write first needs it. A later change is added with
its transaction. So the use is right after a crash, and files have the same format with and without quotas.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence

from headway.errors import StoreUnusable
from headway.resource import pb
from headway.storage._operations import Operation, Put, Remove
from headway.storage._quotas import (
    QUOTA_KIND,
    Growth,
    Limits,
    Place,
    QuotaExceeded,
    QuotaUse,
    Use,
    is_counted,
    is_exempt,
)
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._reader import read_kinds
from headway.storage.sqlite._rows import resource_from

Changed = tuple[Put | Remove, bytes | None]
"""An operation that changes something, and the new body."""


class FileQuotas:
    """The quotas of one file.

    Args:
        connection: the connection of the transactions.

    Attributes:
        shown: all quotas and their use as of the last transaction, as far as it is counted. Any thread may read it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.shown: Sequence[QuotaUse] = ()
        self._limits = Limits()
        # Invariant: for each part that is counted, what it holds with the changes of the transaction so far.
        self._uses: dict[Place, Use] = {}
        # True if the transaction has changed the above.
        self._changed = False
        # True if `shown` is out of date.
        self._stale = False
        self._read(connection)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction. If the last one was not kept, its changes are forgotten."""
        if self._changed:
            self._changed = False
            self._read(connection)

    def keep(self) -> None:
        """Note that the transaction is stored."""
        self._changed = False
        if self._stale:
            self._show()

    def concern(self, operations: Sequence[Operation]) -> bool:
        """Return True if `charge` must be called for a commit: if there are quotas, or it writes one."""
        return bool(self._limits) or any(isinstance(each, Put) and each.kind == QUOTA_KIND for each in operations)

    def charge(self, connection: sqlite3.Connection, changes: Sequence[Changed]) -> None:
        """Add the changes of a commit before they are applied. Raise QuotaExceeded if a quota has no room for them."""
        growths = [
            _growth(connection, operation, body)
            for operation, body in changes
            if self._limits.covering(operation.kind, operation.key)
        ]
        self._stale = self._stale or bool(growths)
        try:
            self._limits.charged(growths, lambda place: self._use(connection, place))
        except QuotaExceeded as error:
            self._limits.count_refusal(error)
            raise
        for growth in growths:
            for place in {each.place for each in self._limits.covering(growth.kind, growth.key)}:
                # A place that is not counted yet will be counted later, with this change.
                if place in self._uses:
                    self._uses[place] = self._uses[place].plus(growth.by)
        declared = [operation for operation, _ in changes if operation.kind == QUOTA_KIND]
        for operation in declared:
            self._limits.declare(operation.key[2], operation.resource if isinstance(operation, Put) else None)
        self._changed = self._changed or bool(growths or declared)
        if declared:
            self._stale = True
            places = {each.place for each in self._limits}
            self._uses = {place: use for place, use in self._uses.items() if place in places}

    def count_all(self, connection: sqlite3.Connection) -> Sequence[QuotaUse]:
        """Return all quotas and their use."""
        for limit in self._limits:
            self._use(connection, limit.place)
        self._show()
        return self.shown

    def _use(self, connection: sqlite3.Connection, place: Place) -> Use:
        use = self._uses.get(place)
        if use is None:
            use = self._uses[place] = _count(connection, place)
        return use

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the declared quotas from the file, and forget the use."""
        stored: dict[str, pb.Resource] = {}
        for row in connection.execute(sql.LIST_RESOURCES, QUOTA_KIND).fetchall():
            # A damaged quota limits nothing. `headway store check` finds it.
            with contextlib.suppress(StoreUnusable):
                resource = resource_from(*row)
                stored[resource.id.name] = resource  # type: ignore[union-attr]  # stored ids are whole
        for name in {each.name for each in self._limits} | stored.keys():
            self._limits.declare(name, stored.get(name))
        self._uses.clear()
        self._show()

    def _show(self) -> None:
        self._stale = False
        self.shown = tuple(
            QuotaUse(each, self._uses[each.place], self._limits.refused(each.name))
            for each in self._limits
            if each.place in self._uses
        )


def _growth(connection: sqlite3.Connection, operation: Put | Remove, body: bytes | None) -> Growth:
    stored = connection.execute(sql.READ_RESOURCE, (*operation.kind, *operation.key)).fetchone()
    old = b"" if stored is None else stored[2]
    by = Use((body is not None) - (stored is not None), len(body or b"") - len(old))
    exempt = True
    if isinstance(operation, Put) and (by.resources > 0 or by.bytes > 0):
        former: pb.Resource | None = None
        with contextlib.suppress(StoreUnusable):
            former = None if stored is None else resource_from(*stored)
        exempt = is_exempt(former, operation.resource)
    return Growth(operation.kind, operation.key, by, exempt)


def _count(connection: sqlite3.Connection, place: Place) -> Use:
    """Count what a part of the file holds. It reads only that: each kind by the beginning of the primary key."""
    statement, unit = sql.COUNT_WITHIN, [place.partition]
    if place.namespace:
        statement += " AND namespace = ?"
        unit.append(place.namespace)
    counted = Use()
    for kind in read_kinds(connection) if place.kind is None else (place.kind,):
        if is_counted(kind):
            counted = counted.plus(Use(*connection.execute(statement, (*kind, *unit)).fetchone()))
    return counted
