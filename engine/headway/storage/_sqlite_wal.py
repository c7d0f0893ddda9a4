"""A bound for the write-ahead log, which would grow forever if its readers always overlap.

SQLite copies the log into the file by itself, and restarts it when a transaction finds no reader. If there is always a
reader, that never happens. Then the writer waits for the current readers; readers that arrive in the meantime read from
the file. So this ends with the longest current read. If that is too long, like a backup's, it is retried when the log
is twice as long.
"""

from __future__ import annotations

import os
import sqlite3

LONGEST = 64 * 2**20
"""The size of the log in bytes above which the writer waits for readers."""

CUT_BACK_TO = 16 * 2**20
"""The size in bytes to which a longer log is truncated when it restarts."""

PATIENCE = 0.25
"""The maximum number of seconds for which the writer waits for readers."""


class WriteAheadLog:
    """The log of a file that is open for writing."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._limit = LONGEST

    def bound(self, connection: sqlite3.Connection) -> None:
        """Restart the log if it is too long. Call this after a transaction of the connection. Never raises."""
        try:
            size = os.stat(self._path).st_size
            if size <= self._limit:
                return
            (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
            try:
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {before}")
        except (OSError, sqlite3.Error):
            return  # The commit is durable. If the file has a problem, the next commit will report it.
        self._limit = size * 2 if busy else LONGEST
