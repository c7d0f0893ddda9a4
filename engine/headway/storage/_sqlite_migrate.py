"""Bringing a file of an earlier format up to this program's, in the transaction in which it is opened.

A format is the number in the file's header (`_sqlite_schema.FORMAT`). Every earlier one has a step here that leads to
the next, and tests/storage/formats has files as the programs of their time have written them. All steps and the new
number are one transaction: a file is of one format or of the other, whatever happens in between.

1. Had no seals, no floor for terms, and in its first form no table of leases.
2. Has them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from headway.storage import _sqlite_schema as sql
from headway.storage._sqlite_rows import seal


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to `FORMAT`; to be called in a transaction, and nothing has happened until that is committed."""
    for found in range(format_of(connection), sql.FORMAT):
        _STEPS[found](connection)
        connection.execute(f"PRAGMA user_version = {found + 1}")


def format_of(connection: sqlite3.Connection) -> int:
    """The format of a file, as its last commit has it: the header may be behind the write-ahead log."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    assert isinstance(found, int)
    return found


def _seal_rows(connection: sqlite3.Connection) -> None:
    """From 1 to 2."""
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
