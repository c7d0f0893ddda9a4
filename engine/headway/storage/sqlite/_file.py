"""Opening a store's file: unusable files are refused before anything is touched, and missing ones are created.

The order matters. Closing any descriptor of a file releases every POSIX lock that this process has on it, including
SQLite's. So nothing is read before the lock has shown that no store of this process has the file open.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from headway.base import create_private
from headway.errors import StoreUnusable
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import (
    CUT_BACK_TO,
    READ_ONLY,
    WriteAheadLog,
    connect,
    explained,
    inode_of,
    may_write,
)
from headway.storage.sqlite._inspect import BESIDE, check_content, is_new, refuse_planted, refuse_unfinished
from headway.storage.sqlite._lock import FileLock
from headway.storage.sqlite._snapshots import ReplacedRows

SESSIONS_KEPT = 1000
"""The number of sessions that a file remembers. Without a limit, endless restarts would make it grow endlessly.

A position of a forgotten session is refused, like one of another store.
"""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A store's file, held by this process, and its contents at opening.

    Attributes:
        path: its path, with links resolved.
        floor: the last revision before the file's history; older changes are compacted.
        formers_floor: up to this revision, the history lacks the states before changes.
        oldest: the first revision of the oldest remembered session; 0 if none was forgotten.
        replaced: the rows that open snapshots need although they have been replaced.
    """

    path: str
    lock: FileLock
    writer: sqlite3.Connection
    log: WriteAheadLog
    store_id: str
    session: str
    floor: int
    formers_floor: int
    oldest: int
    replaced: ReplacedRows

    @property
    def is_moved(self) -> bool:
        """True if the path no longer leads to the file that is open."""
        return inode_of(self.path) != self.lock.inode

    def close(self) -> None:
        """Release the file. Closing the last connection copies the write-ahead log into it."""
        try:
            self.writer.close()
        finally:
            self.lock.release()


def open_file(path: str | os.PathLike[str]) -> OpenedFile:
    """Open a store's file, creating it if it does not exist. Raises StoreUnusable, and then nothing was changed."""
    given = os.fspath(path)
    _refuse_no_file(given)
    real = os.path.realpath(given)
    refuse_unfinished(real)
    lock = FileLock(real)
    try:
        lock.take_if_there()
        is_new(real)
        lock.take()
        # Check again, because another process may have come in between. From here on the file is ours.
        if is_new(real):
            _make(real)
            lock.take_file()
        else:
            lock.take_file()
            check_content(real)
            # SQLite would open it for reading, create files next to it, and fail at the first write.
            if not may_write(real):
                raise StoreUnusable(f"{real} cannot be opened for writing: {READ_ONLY}")
        return _enter(real, lock)
    except BaseException:
        lock.discard()
        raise


def _refuse_no_file(path: str) -> None:
    if not path or path.startswith((":", "file:")) or "mode=memory" in path:
        raise StoreUnusable(f'{path!r} is not a file path; for a store in memory use "memory:", or MemoryBackend()')
    if os.path.isdir(path):
        raise StoreUnusable(
            f"{path} is a directory; give the path of a file in it, like {os.path.join(path, 'store.db')}"
        )
    parent = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(parent):
        raise StoreUnusable(f"{path} cannot be created: directory {parent} not found; create it first")


def _make(path: str) -> None:
    """Create an empty store at ``path`` atomically: build it next to the path and move it there."""
    building = path + ".new"
    try:
        remove_file(building)
        # Created here and not by SQLite, so that an error has an errno. SQLite gives its own files the same mode.
        os.close(create_private(building))
        _fill(building)
        move_durably(building, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"{path} could not be created: {explained(error)}") from error


def _fill(path: str) -> None:
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {sql.FORMAT}")
        for statement in sql.TABLES:
            connection.execute(statement)
        meta = {"store_id": uuid.uuid4().hex, "head": 0, "history_floor": 0, "formers_floor": 0, "term_floor": 0}
        connection.executemany(sql.INSERT_META, meta.items())
        connection.execute("COMMIT")


def remove_file(path: str) -> None:
    """Remove an SQLite file and its companions, such as the write-ahead log. Ignore files that are missing."""
    for suffix in ("", *BESIDE):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


def move_durably(path: str, target: str) -> None:
    """Rename a file within its directory. A loss of power does not undo it."""
    os.rename(path, target)
    folder = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _enter(path: str, lock: FileLock) -> OpenedFile:
    """Open the file for writing and begin a session."""
    # Check again: checking a large store takes seconds. Another user may have put a file next to it in the meantime.
    refuse_planted(path)
    connection = connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {CUT_BACK_TO}")
        connection.execute("BEGIN IMMEDIATE")
        sql.migrate(connection)
        meta = sql.read_meta(connection)
        session = uuid.uuid4().hex
        connection.execute(sql.END_SESSION, (meta["head"],))
        forgotten = connection.execute(sql.FORGET_SESSIONS, (SESSIONS_KEPT - 1,)).rowcount
        connection.execute(sql.BEGIN_SESSION, (session, meta["head"] + 1, time.time()))
        # Once one session is forgotten, one is forgotten at each later opening.
        oldest = connection.execute(sql.OLDEST_SESSION).fetchone()[0] if forgotten else 0
        connection.execute("COMMIT")
        return OpenedFile(
            path,
            lock,
            connection,
            WriteAheadLog(path),
            meta["store_id"],
            session,
            meta["history_floor"],
            meta["formers_floor"],
            oldest,
            ReplacedRows(),
        )
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise StoreUnusable(
            f"{path} cannot be opened for writing: {explained(error)}; "
            f"check the permissions of the file and of {Path(path).parent}"
        ) from error
