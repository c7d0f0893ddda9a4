"""The length of the write-ahead log, which readers that overlap without end would let grow without end.

SQLite copies the log into the file by itself, and begins it anew when a transaction finds nobody reading from it. Where
there is always somebody, that never happens: then the writer waits for those who read now. Who comes meanwhile reads
from the file, so this ends with the longest read under way; and if that is a long one, as a backup's, it is tried again
when the log is twice as long.
"""

from __future__ import annotations

import os
import sqlite3

LONGEST = 64 * 2**20
"""Bytes from which on the writer waits for readers."""

CUT_BACK_TO = 16 * 2**20
"""Bytes to which a longer log is cut back when it begins anew."""

PATIENCE = 0.25
"""Seconds for which the writer waits for readers, at most."""


class WriteAheadLog:
    """The log of a file that is open for writing."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._limit = LONGEST

    def bound(self, connection: sqlite3.Connection) -> None:
        """After a transaction of this connection: begin the log anew if it is too long. Raises nothing."""
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
            return  # The commit is durable. What is wrong with the file, the next one will say.
        self._limit = size * 2 if busy else LONGEST
