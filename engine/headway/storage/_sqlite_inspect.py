"""Inspection of a path without changing anything: it holds a store, nothing yet, or something to refuse."""

from __future__ import annotations

import os
import sqlite3

from headway.errors import StoreUnusable
from headway.storage import _sqlite_schema as sql
from headway.storage._sqlite_connect import code_of, connect, may_write
from headway.storage._sqlite_migrate import format_of
from headway.storage._sqlite_planted import NOTHING_TOUCHED, refuse_irregular, refuse_planted

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_ANOTHER_PATH = f"give another path, or move the file away. {NOTHING_TOUCHED}"


def is_new(path: str) -> bool:
    """Return True if the path has no store yet, by a plain read of the header. Raises StoreUnusable for a foreign file.

    After that, SQLite may open the path: all files beside it are trusted.
    """
    refuse_irregular(path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            header = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        header, size = b"", 0
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be read ({error.strerror}); give this process permission to") from error
    log = has_bytes(path + "-wal")
    if size == 0:
        if log:
            raise StoreUnusable(
                f"{path} is missing or empty, but {path}-wal holds changes of a store: put that "
                f"store's file back, or move {path}-wal away to create a new one. {NOTHING_TOUCHED}"
            )
        refuse_planted(path)
        return True
    _refuse_foreign(path, header)
    refuse_planted(path)
    _refuse_cut_off(path, header, size, log)
    return False


def _without_waiting(path: str, flags: int) -> int:
    # A pipe may have replaced the file by now, and opening it would block.
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_foreign(path: str, header: bytes) -> None:
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreUnusable(f"{path} is not a Headway store: it is not an SQLite file; {_ANOTHER_PATH}")
    if len(header) < _HEADER:
        raise StoreUnusable(f"{path} is truncated: it ends within its header; restore a copy. {NOTHING_TOUCHED}")
    _refuse_another_programs(path, int.from_bytes(header[68:72], "big"))
    _refuse_newer(path, int.from_bytes(header[60:64], "big"))


def _refuse_another_programs(path: str, application: int, *, backup: bool = False) -> None:
    if application == sql.BACKUP_ID and not backup:
        raise StoreUnusable(
            f"{path} is a backup: opened as a store, it would assign revisions a second time. "
            f"`headway restore {path} sqlite:PATH` turns it into a store. {NOTHING_TOUCHED}"
        )
    if application not in (sql.APPLICATION_ID, sql.BACKUP_ID):
        raise StoreUnusable(
            f"{path} is not a Headway store: it is an SQLite file of another program "
            f"(application_id {application:#x}, not {sql.APPLICATION_ID:#x}); {_ANOTHER_PATH}"
        )


def _refuse_newer(path: str, found: int) -> None:
    if found > sql.FORMAT:
        raise StoreUnusable(
            f"{path} has format {found}; this program knows formats up to {sql.FORMAT}: "
            f"use a newer Headway. {NOTHING_TOUCHED}"
        )


def _refuse_cut_off(path: str, header: bytes, size: int, log: bool) -> None:
    page = int.from_bytes(header[16:18], "big")
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    # With a write-ahead log the file may be shorter: a crash can interrupt copying the log into it.
    if size < expected and not log:
        raise StoreUnusable(
            f"{path} is truncated: it has {size} bytes, but its header says {expected}; restore a copy. "
            f"{NOTHING_TOUCHED}"
        )


def has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def check_content(path: str) -> None:
    """Raise StoreUnusable if pages of the file are damaged, or if it lacks rows that every store has."""
    # Without a log, open the file as immutable: then SQLite creates no other files.
    connection = connect(path, read_only=True, immutable=not has_bytes(path + "-wal"))
    try:
        # The header is as of the last checkpoint. The log may contain an upgrade by a newer program.
        _refuse_newer(path, format_of(connection))
        found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        problem = "" if found == ["ok"] else "; ".join(found)
        problem = problem or missing_rows(connection)
    except sqlite3.Error as error:
        problem = str(error)
    finally:
        connection.close()
    if problem:
        raise StoreUnusable(
            f"{path} is damaged: {problem}. Restore a copy, or try `sqlite3 {path} .recover`. {NOTHING_TOUCHED}"
        )


def open_to_read(path: str, *, backup: bool = False) -> sqlite3.Connection:
    """Return a connection to a store's file that any process, including this one, may have open. The caller must not
    write.

    Everything is read through SQLite: opening and closing the file directly would release this process's locks on it.

    Args:
        backup: accept a backup, too.

    Raises StoreUnusable if there is no store at ``path``, and sqlite3.Error if the file is damaged.
    """
    refuse_irregular(path)
    if not has_bytes(path):
        raise StoreUnusable(f"{path}: store not found")
    refuse_planted(os.path.realpath(path))
    writable = may_write(path) and may_write(os.path.dirname(os.path.abspath(path)))
    # If possible open it like any other user: then the last one to close it leaves no files behind.
    connection = connect(path, read_only=not writable, immutable=not writable and not has_bytes(path + "-wal"))
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        _refuse_another_programs(path, application & 0xFFFFFFFF, backup=backup)
        _refuse_newer(path, format_of(connection))
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_NOTADB:
            raise StoreUnusable(f"{path} is not a Headway store, or its first page is damaged: {error}") from error
        raise
    return connection


def missing_rows(connection: sqlite3.Connection) -> str:
    """Return the problem with the rows that every store has, or an empty string."""
    meta = dict(connection.execute(sql.READ_META).fetchall())
    wanted = {"store_id": str, "head": int, "history_floor": int}
    if format_of(connection) >= 2:
        wanted["term_floor"] = int
    for key, kind in wanted.items():
        if not isinstance(meta.get(key), kind):
            return f"its table meta has no {key}"
    for table in ("incarnations", "fences"):
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    (highest,) = connection.execute(sql.HIGHEST_REVISION).fetchone()
    if highest > meta["head"]:
        return f"it holds revision {highest}, above its last one, {meta['head']}"
    return ""
