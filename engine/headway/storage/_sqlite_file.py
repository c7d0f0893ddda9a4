"""Opening a store's file: refusing what can't be used before anything is touched, and making new ones.

The order matters. Closing any descriptor of a file drops every POSIX lock that this process has on it, SQLite's
included; so nothing is read before the lock beside the file has shown that no store of this process has it open.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from headway.errors import StoreUnusable
from headway.storage import _sqlite_schema as sql
from headway.storage._sqlite_lock import FileLock

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_NOTHING_TOUCHED = "Nothing was changed"


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A store's file, held by this process, and what stood in it.

    Attributes:
        path: where it is, links resolved.
        inode: (device, inode) of the file that is open; another one at the path means it was replaced.
        floor: the revision up to which the file's history is gone.
    """

    path: str
    inode: tuple[int, int]
    lock: FileLock
    writer: sqlite3.Connection
    store_id: str
    incarnation: str
    head: int
    floor: int

    def close(self) -> None:
        """Let go of the file; the last connection empties its write-ahead log into it."""
        try:
            self.writer.close()
        finally:
            self.lock.release()


def open_file(path: str | os.PathLike[str]) -> OpenedFile:
    """Open a store's file, making it if there is none. Raises StoreUnusable, and then nothing was changed."""
    given = os.fspath(path)
    _refuse_no_file(given)
    real = os.path.realpath(given)
    lock = FileLock(real)
    try:
        lock.take_if_there()
        _is_new(real)
        lock.take()
        # Again, since another process may have come between; from here on the file is ours.
        if _is_new(real):
            _make(real)
        else:
            _check_content(real)
        return _enter(real, lock)
    except BaseException:
        lock.release()
        raise


def connect(path: str, *, read_only: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """A connection in autocommit that any one thread at a time may use."""
    mode = "ro" if read_only else "rw"
    uri = f"file:{quote(path)}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)


def inode_of(path: str) -> tuple[int, int] | None:
    """(device, inode) of what stands at the path, or None."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _refuse_no_file(path: str) -> None:
    if not path or path.startswith((":", "file:")) or "mode=memory" in path:
        raise StoreUnusable(f'{path!r} names no file; a store in memory is "memory:", or MemoryBackend()')
    if os.path.isdir(path):
        raise StoreUnusable(
            f"{path} is a directory; give the path of a file in it, like {os.path.join(path, 'store.db')}"
        )
    parent = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(parent):
        raise StoreUnusable(f"{path} can't be made: there is no directory {parent}; make it first")


def _is_new(path: str) -> bool:
    """Whether there is nothing yet, by a plain read of the header. Raises StoreUnusable for what isn't ours."""
    try:
        with open(path, "rb") as file:
            header = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        header, size = b"", 0
    except OSError as error:
        raise StoreUnusable(f"{path} can't be read ({error.strerror}); give this process the right to") from error
    log = _has_bytes(path + "-wal")
    if size == 0:
        if log:
            raise StoreUnusable(
                f"{path} is missing or empty, but {path}-wal holds changes of a store that was there: put that "
                f"store's file back, or move {path}-wal away to begin a new one. {_NOTHING_TOUCHED}"
            )
        return True
    _refuse_foreign(path, header)
    _refuse_cut_off(path, header, size, log)
    return False


def _refuse_foreign(path: str, header: bytes) -> None:
    advice = f"give another path, or move the file away. {_NOTHING_TOUCHED}"
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreUnusable(f"{path} is no store of Headway: it isn't an SQLite file; {advice}")
    if len(header) < _HEADER:
        raise StoreUnusable(f"{path} has been cut off: it ends within its header; restore a copy. {_NOTHING_TOUCHED}")
    application = int.from_bytes(header[68:72], "big")
    if application != sql.APPLICATION_ID:
        raise StoreUnusable(
            f"{path} is no store of Headway: it is an SQLite file of another program "
            f"(application_id {application:#x}, not {sql.APPLICATION_ID:#x}); {advice}"
        )
    found = int.from_bytes(header[60:64], "big")
    if found > sql.FORMAT:
        raise StoreUnusable(
            f"{path} has format {found}; this program knows formats up to {sql.FORMAT}: "
            f"use a newer Headway. {_NOTHING_TOUCHED}"
        )


def _refuse_cut_off(path: str, header: bytes, size: int, log: bool) -> None:
    page = int.from_bytes(header[16:18], "big")
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    # With a write-ahead log the file may be shorter for good: a crash interrupted the log's copying into it.
    if size < expected and not log:
        raise StoreUnusable(
            f"{path} has been cut off: it has {size} bytes and says it has {expected}; restore a copy. "
            f"{_NOTHING_TOUCHED}"
        )


def _has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _check_content(path: str) -> None:
    # Without a log SQLite is told that nobody writes, and then makes no files beside this one.
    connection = connect(path, read_only=True, immutable=not _has_bytes(path + "-wal"))
    try:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        problem = "" if found == ["ok"] else "; ".join(found)
        problem = problem or _missing_rows(connection)
    except sqlite3.Error as error:
        problem = str(error)
    finally:
        connection.close()
    if problem:
        raise StoreUnusable(
            f"{path} is damaged: {problem}. Restore a copy, or see what `sqlite3 {path} .recover` saves. "
            f"{_NOTHING_TOUCHED}"
        )


def _missing_rows(connection: sqlite3.Connection) -> str:
    """What is wrong with our own rows, or nothing."""
    meta = dict(connection.execute(sql.READ_META).fetchall())
    for key, kind in (("store_id", str), ("head", int), ("history_floor", int)):
        if not isinstance(meta.get(key), kind):
            return f"its table meta has no {key}"
    for table in ("incarnations", "fences"):
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    (highest,) = connection.execute(sql.HIGHEST_REVISION).fetchone()
    if highest > meta["head"]:
        return f"it holds revision {highest}, above {meta['head']}, which it says is its last"
    return ""


def _make(path: str) -> None:
    """Make an empty store at ``path``, whole or not at all: it is built beside it and moved there."""
    building = path + ".new"
    try:
        for leftover in (building, building + "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        # Made by open() and not by SQLite, so that a failure has an errno to name.
        with open(building, "xb"):
            pass
        _fill(building)
        os.rename(building, path)
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"{path} can't be made: {error}") from error


def _fill(path: str) -> None:
    connection = connect(path)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {sql.FORMAT}")
        for statement in sql.TABLES:
            connection.execute(statement)
        meta = {"store_id": uuid.uuid4().hex, "head": 0, "history_floor": 0}
        connection.executemany(sql.INSERT_META, meta.items())
        connection.execute("COMMIT")
    finally:
        connection.close()


def _enter(path: str, lock: FileLock) -> OpenedFile:
    """Open for writing and begin an incarnation."""
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(sql.LEASES_TABLE)
        meta = dict(connection.execute(sql.READ_META).fetchall())
        incarnation = uuid.uuid4().hex
        connection.execute(sql.LEAVE_INCARNATION, (meta["head"],))
        connection.execute(sql.ENTER_INCARNATION, (incarnation, meta["head"] + 1, time.time()))
        connection.execute("COMMIT")
        found = os.stat(path)
        where = (found.st_dev, found.st_ino)
        return OpenedFile(
            path, where, lock, connection, meta["store_id"], incarnation, meta["head"], meta["history_floor"]
        )
    except (OSError, sqlite3.Error) as error:
        if connection is not None:
            connection.close()
        raise StoreUnusable(
            f"{path} can't be opened for writing: {error}; check the rights to it and to {Path(path).parent}"
        ) from error
