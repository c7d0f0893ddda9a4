"""The content of a store's file, as the rules of its commits see it. Everything here runs in a transaction's thread."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._operations import Put, Remove
from headway.storage._rules import Stored
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._rows import Row, resource_from


class FileContent(Stored):
    """The content of a file, with the changes of the transaction so far.

    Args:
        connection: the connection of the transactions.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def next_kind(self, kind: Kind) -> Kind | None:
        found: Kind | None = self._connection.execute(sql.NEXT_KIND, kind).fetchone()
        return found

    def every(self, kind: Kind) -> Iterator[pb.Resource]:
        for row in self._connection.execute(sql.LIST_RESOURCES, kind).fetchall():
            # `headway store check` finds the damage.
            with contextlib.suppress(StoreUnusable):
                yield resource_from(*row)

    def measure(self, kind: Kind, partition: str, namespace: str, after: Key | None) -> tuple[int, int, Key | None]:  # noqa: ARG002  # it counts all at once
        # It reads only what it counts: each kind by the beginning of the primary key.
        statement, unit = sql.COUNT_WITHIN, [partition]
        if namespace:
            statement += " AND namespace = ?"
            unit.append(namespace)
        resources, size = self._connection.execute(statement, (*kind, *unit)).fetchone()
        return resources, size, None


class FileChange:
    """A change of a file. It reads what is stored only if a rule asks for it."""

    def __init__(self, connection: sqlite3.Connection, operation: Put | Remove, body: bytes | None) -> None:
        self.kind, self.key = operation.kind, operation.key
        self.new = operation.resource if isinstance(operation, Put) else None
        self._connection = connection
        self._body = body
        self._read = False
        self._row: Row | None = None

    @property
    def row(self) -> Row | None:
        """The row that the change replaces."""
        if not self._read:
            self._read = True
            self._row = self._connection.execute(sql.READ_RESOURCE, (*self.kind, *self.key)).fetchone()
        return self._row

    @property
    def old(self) -> pb.Resource | None:
        with contextlib.suppress(StoreUnusable):
            return None if self.row is None else resource_from(*self.row)
        return None

    @property
    def resources(self) -> int:
        return (self._body is not None) - (self.row is not None)

    @property
    def bytes(self) -> int:
        return len(self._body or b"") - (0 if self.row is None else len(self.row[2]))
