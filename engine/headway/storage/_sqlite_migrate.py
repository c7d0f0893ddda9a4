"""Upgrades of a file of an earlier format to this program's, in the transaction that opens the file.

A format is the number in the file's header (`_sqlite_schema.FORMAT`). Every earlier format has a step here to the next
one, and tests/storage/formats has files written by programs of the time. All steps and the new number are one
transaction, so a file always has one format or the other.

1. Has no seals, no floor for terms, and in its first form no table of leases.
2. Has them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from headway.storage import _sqlite_schema as sql
from headway.storage._sqlite_rows import seal


def migrate(connection: sqlite3.Connection) -> None:
    """Upgrade the file to `FORMAT`. Call this in a transaction; it takes effect with the commit."""
    for found in range(format_of(connection), sql.FORMAT):
        _STEPS[found](connection)
        connection.execute(f"PRAGMA user_version = {found + 1}")


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format of a file as of its last commit. The header may be older than the write-ahead log."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    assert isinstance(found, int)
    return found


def _seal_rows(connection: sqlite3.Connection) -> None:
    """Upgrade from 1 to 2."""
    connection.create_function("seal", 2, seal, deterministic=True)
    connection.execute("DROP INDEX resources_by_owner")
    for table, statement, version in (
        ("resources", sql.RESOURCES_TABLE, "revision"),
        ("history", sql.HISTORY_TABLE, "version"),
    ):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"ALTER TABLE {table} RENAME TO unsealed")
        connection.execute(statement)
        names = ", ".join(columns)
        connection.execute(f"INSERT INTO {table} ({names}, seal) SELECT {names}, seal({version}, body) FROM unsealed")
        connection.execute("DROP TABLE unsealed")
    connection.execute(sql.RESOURCES_BY_OWNER)
    connection.execute(sql.LEASES_TABLE)
    connection.execute(sql.INSERT_META, ("term_floor", 0))


_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _seal_rows}
