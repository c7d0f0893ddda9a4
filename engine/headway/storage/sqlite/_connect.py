"""Connections to a store's file, explanations of SQLite's errors for operators, and a bound for the write-ahead log."""

from __future__ import annotations

import os
import resource
import sqlite3
from urllib.parse import quote

from headway.errors import StoreUnusable, WriteRejected

_ROOM = 64 << 10
"""The bytes of free space below which a disk counts as full, once a write has failed."""

BUSY_TIMEOUT = 10.0
"""The seconds for which a transaction waits for another program that has locked the file."""

_FULL = "free some space on its disk, and writes continue"
_REFUSED = "its disk refused the write: a quota, a limit on the size of files, or the disk itself"
_NO_ROOM_BESIDE = (
    "its disk has no room for the files beside it: free some space, or lift its limit on the size of files"
)
_LOCKED = "another program has locked it; end that program, or its transaction (`fuser` names who has a file open)"
_DAMAGED = "`headway store check` finds the damage, and `headway restore` restores a backup"
READ_ONLY = "this process may not write to it, or its file system is read-only"
_NO_WAY = "this process may not open it, or may not create files beside it"

_BY_CODE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR_WRITE: _REFUSED,
    sqlite3.SQLITE_IOERR_SHMSIZE: _NO_ROOM_BESIDE,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _NO_WAY,
    sqlite3.SQLITE_PERM: _NO_WAY,
}


def connect(path: str, *, read_only: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """Return a connection in autocommit mode for any one thread at a time. Raises StoreUnusable with the path."""
    mode = "ro" if read_only else "rw"
    uri = f"file:{quote(path)}?mode={mode}{'&immutable=1' if immutable else ''}"
    try:
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT)
    except sqlite3.Error as error:
        raise StoreUnusable(f"{path} could not be opened: {explained(error)}") from error


def may_write(path: str) -> bool:
    """Return True if this process may write to the file."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def code_of(error: BaseException) -> int:
    """Return SQLite's extended code of an error; SQLITE_ERROR for other errors."""
    code = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else sqlite3.SQLITE_ERROR


def explained(error: BaseException) -> str:
    """Return SQLite's message, with an explanation if there is one."""
    code = code_of(error)
    meaning = _BY_CODE.get(code) or _BY_CODE.get(code & 0xFF)
    return f"{error} ({meaning})" if meaning else str(error)


def inode_of(path: str) -> tuple[int, int] | None:
    """Return (device, inode) of the file at the path, or None."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def check_room(path: str) -> None:
    """Raise WriteRejected if a store has no room for a few writes, and StoreUnusable if its disk does not say.

    The limit on the size of this process's files leaves no room either. It is not one of the disk.
    """
    try:
        disk = os.statvfs(path)
    except OSError as error:
        raise StoreUnusable(
            f"{path}: the free space on its disk cannot be read ({error.strerror}): "
            "make sure that the file is still there, and that its disk works"
        ) from error
    room = disk.f_bavail * disk.f_frsize
    if room < _ROOM:
        raise WriteRejected(f"{path} has {room} bytes of free space on its disk: free at least {_ROOM}")
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    for each in (path, f"{path}-wal"):
        if most != resource.RLIM_INFINITY and (size := _size_of(each)) + _ROOM > most:
            raise WriteRejected(
                f"{each} has {size} bytes, and this process may write files of at most {most}: "
                "raise its limit on the size of files (`prlimit --fsize`, or LimitFSIZE of systemd)"
            )


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


LONGEST_LOG = 64 * 2**20
"""The size of the log in bytes above which the writer waits for readers."""

CUT_BACK_TO = 16 * 2**20
"""The size in bytes to which a longer log is truncated when it restarts."""

_PATIENCE = 0.25
"""The maximum number of seconds for which the writer waits for readers."""


class WriteAheadLog:
    """A bound for the write-ahead log of a file, which would grow forever if its readers always overlap.

    SQLite copies the log into the file by itself, and restarts it when a transaction finds no reader. If there is
    always a reader, that never happens. Then the writer waits for the current readers; readers that arrive in the
    meantime read from the file. So this ends with the longest current read. If that is too long, like a backup's, it is
    retried when the log is twice as long.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._limit = LONGEST_LOG
        self._inode = inode_of(self._path)

    @property
    def is_gone(self) -> bool:
        """True if the path no longer leads to the log that is open. Commits in it are lost when the process ends.

        The last program to close a store removes the log. Another program takes itself for the last one if this process
        has no locks any longer: SQLite's locks end when the process closes any descriptor of the store's file, such as
        one with which its own code has read the file.
        """
        return inode_of(self._path) != self._inode

    def bound(self, connection: sqlite3.Connection) -> None:
        """Restart the log if it is too long. Call this after a transaction of the connection. Never raises."""
        try:
            size = os.stat(self._path).st_size
            if size <= self._limit:
                return
            (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE * 1000)}")
            try:
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {before}")
        except (OSError, sqlite3.Error):
            return  # The commit is durable. If the file has a problem, the next commit will report it.
        self._limit = size * 2 if busy else LONGEST_LOG
