"""What stands at a path, found out without touching anything: a store, nothing yet, or something to be refused."""

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
    """Return True if there is no store yet, by a plain read of the header. Raises StoreUnusable for what isn't ours.

    SQLite may open what was not refused: nothing beside it is another user's.
    """
    refuse_irregular(path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            header = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        header, size = b"", 0
    except OSError as error:
        raise StoreUnusable(f"{path} can't be read ({error.strerror}); give this process the right to") from error
    log = has_bytes(path + "-wal")
    if size == 0:
        if log:
            raise StoreUnusable(
                f"{path} is missing or empty, but {path}-wal holds changes of a store that was there: put that "
                f"store's file back, or move {path}-wal away to begin a new one. {NOTHING_TOUCHED}"
            )
        refuse_planted(path)
        return True
    _refuse_foreign(path, header)
    refuse_planted(path)
    _refuse_cut_off(path, header, size, log)
    return False


def _without_waiting(path: str, flags: int) -> int:
    # A pipe may stand there by now.
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_foreign(path: str, header: bytes) -> None:
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreUnusable(f"{path} is no store of Headway: it isn't an SQLite file; {_ANOTHER_PATH}")
    if len(header) < _HEADER:
        raise StoreUnusable(f"{path} has been cut off: it ends within its header; restore a copy. {NOTHING_TOUCHED}")
    _refuse_another_programs(path, int.from_bytes(header[68:72], "big"))
    _refuse_newer(path, int.from_bytes(header[60:64], "big"))


def _refuse_another_programs(path: str, application: int, *, backup: bool = False) -> None:
    if application == sql.BACKUP_ID and not backup:
        raise StoreUnusable(
            f"{path} is a backup: opened as the store that it was, it would give out revisions for the second time. "
            f"`headway restore {path} sqlite:PATH` makes a store of it. {NOTHING_TOUCHED}"
        )
    if application not in (sql.APPLICATION_ID, sql.BACKUP_ID):
        raise StoreUnusable(
            f"{path} is no store of Headway: it is an SQLite file of another program "
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
    # With a write-ahead log the file may be shorter for good: a crash interrupted the log's copying into it.
    if size < expected and not log:
        raise StoreUnusable(
            f"{path} has been cut off: it has {size} bytes and says it has {expected}; restore a copy. "
            f"{NOTHING_TOUCHED}"
        )


def has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def check_content(path: str) -> None:
    """Raise StoreUnusable when pages of the file are damaged, or what every store has is not in it."""
    # Without a log SQLite is told that nobody writes, and then makes no files beside this one.
    connection = connect(path, read_only=True, immutable=not has_bytes(path + "-wal"))
    try:
        # The header is as the last checkpoint left it; a newer program's step may stand in the log.
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
            f"{path} is damaged: {problem}. Restore a copy, or see what `sqlite3 {path} .recover` saves. "
            f"{NOTHING_TOUCHED}"
        )


def open_to_read(path: str, *, backup: bool = False) -> sqlite3.Connection:
    """A connection to a store's file that anybody may have open, this process too. The caller writes nothing by it.

    All is asked through SQLite: were the file opened and closed beside it, this process' locks on it would be gone.

    Args:
        backup: whether a backup will do, too.

    Raises StoreUnusable when there is no store at ``path``, and sqlite3.Error when it is damaged beyond that.
    """
    refuse_irregular(path)
    if not has_bytes(path):
        raise StoreUnusable(f"{path}: there is no store")
    refuse_planted(os.path.realpath(path))
    writable = may_write(path) and may_write(os.path.dirname(os.path.abspath(path)))
    # Where that can be it is opened as by any other user: the last of them to close it then leaves nothing beside it.
    connection = connect(path, read_only=not writable, immutable=not writable and not has_bytes(path + "-wal"))
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        _refuse_another_programs(path, application & 0xFFFFFFFF, backup=backup)
        _refuse_newer(path, format_of(connection))
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_NOTADB:
            raise StoreUnusable(f"{path} is no store of Headway, or its first page is damaged: {error}") from error
        raise
    return connection


def missing_rows(connection: sqlite3.Connection) -> str:
    """What is wrong with the rows that every store has, or nothing."""
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
        return f"it holds revision {highest}, above {meta['head']}, which it says is its last"
    return ""
