"""Inspects a path, without changing anything, to find out if it has a store, nothing yet, or a file to refuse.

Another user of the machine may have put a file there: at the path itself, or one of SQLite's files next to it.
"""

from __future__ import annotations

import grp
import os
import pwd
import sqlite3
import stat
import threading
from contextlib import closing, suppress

from headway.base import OWNER_ONLY, error_text
from headway.errors import StoreUnusable
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import code_of, connect, may_write

_HEADER = 100
SCHEMA_WITHIN = 64 << 10
"""The size of the beginning of a file that has the schema. It is in the first pages."""


class OnlyReadable(StoreUnusable):
    """A store's file cannot be opened as a store now, but its content can be read.

    Attributes:
        why: the reason, such as ``this is a backup``.
    """

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text)
        self.why = why


# As programs import it. Tracebacks name it so, too.
OnlyReadable.__module__ = "headway.storage"


def is_new(path: str) -> bool:
    """Return True if the path has no store yet, by a plain read of the header. Raises StoreUnusable for a foreign file.

    After that, SQLite may open the path: its other files, such as the write-ahead log, are trusted.
    """
    refuse_irregular(path)
    try:
        header, found = begin_of(path)
        size = found.st_size
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
    refuse_other_names(path, found)
    refuse_planted(path)
    _refuse_cut_off(path, header, size, log)
    return False


# The descriptors that could not be closed. Like the locks of POSIX, they belong to the process.
_KEPT: set[int] = set()
_KEEPING = threading.Lock()
os.register_at_fork(before=_KEEPING.acquire, after_in_parent=_KEEPING.release, after_in_child=_KEEPING.release)


def begin_of(path: str, size: int = _HEADER) -> tuple[bytes, os.stat_result]:
    """Return the beginning of a file and its status."""
    with _KEEPING:
        at_path = os.stat(path)
        kept = next((each for each in _KEPT if _is_of(each, at_path)), None)
        # A pipe may have replaced the file by now, and opening it would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) if kept is None else kept
        try:
            return os.pread(descriptor, size, 0), os.fstat(descriptor)
        finally:
            _close_unshared(descriptor)


def close_unshared(descriptor: int) -> None:
    """Close a descriptor of a store's file, or keep it while this process has the file open otherwise.

    Closing any descriptor of a file releases all POSIX locks of the process on it, and so SQLite's. A backup that this
    process makes meanwhile would lose them, and then another process could remove the log that the backup reads.

    A kept one is used by the next `begin_of`, and closed with the next one that can be closed.
    """
    with _KEEPING:
        _close_unshared(descriptor)


def _close_unshared(descriptor: int) -> None:
    _KEPT.add(descriptor)
    found = os.fstat(descriptor)
    try:
        listed = [int(each) for each in os.listdir("/dev/fd")]
    except (OSError, ValueError):
        listed = [*_KEPT]
    same = {each for each in listed if _is_of(each, found)}
    if same <= _KEPT:
        for each in same:
            os.close(each)
        _KEPT.difference_update(same)


def _is_of(descriptor: int, found: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), found)
    return False


_MAGIC = b"SQLite format 3\0"
NOTHING_TOUCHED = "Nothing was changed"
_ANOTHER_PATH = f"give another path, or move the file away. {NOTHING_TOUCHED}"


def _refuse_foreign(path: str, header: bytes) -> None:
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreUnusable(f"{path} is not a Headway store: it is not an SQLite file; {_ANOTHER_PATH}")
    if len(header) < _HEADER:
        raise StoreUnusable(f"{path} is truncated: it ends within its header; restore a copy. {NOTHING_TOUCHED}")
    application = _application(header)
    if application == sql.BACKUP_ID:
        raise OnlyReadable(
            f"{path} is a backup: opened as a store, it would assign revisions a second time. "
            f"`headway restore {path} sqlite:PATH` turns it into a store. {NOTHING_TOUCHED}",
            "this is a backup",
        )
    _refuse_another_programs(path, application)
    _refuse_newer(path, int.from_bytes(header[60:64], "big"))


def _application(header: bytes) -> int:
    return int.from_bytes(header[68:72], "big")


def _refuse_another_programs(path: str, application: int) -> None:
    if application not in (sql.APPLICATION_ID, sql.BACKUP_ID):
        raise StoreUnusable(
            f"{path} is not a Headway store: it is an SQLite file of another program "
            f"(application_id {application:#x}, not {sql.APPLICATION_ID:#x}); {_ANOTHER_PATH}"
        )


_NO_FORMAT = 2**16
"""No format of a Headway to come is as high."""


def _refuse_newer(path: str, found: int) -> None:
    if not 1 <= found < _NO_FORMAT:
        raise StoreUnusable(
            f"{path} is damaged: its header has format {found}. `headway store check` finds the damage, and "
            f"`headway restore` restores a backup. {NOTHING_TOUCHED}"
        )
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
    try:
        # Without a log, open the file as immutable: then SQLite creates no other files.
        with closing(connect(path, read_only=True, immutable=not has_bytes(path + "-wal"))) as connection:
            # The header is as of the last checkpoint. The log may contain an upgrade by a newer program.
            _refuse_newer(path, sql.format_of(connection))
            found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
            problem = "" if found == ["ok"] else "; ".join(found)
            problem = problem or missing_rows(connection)
    except StoreUnusable:
        raise
    except Exception as error:  # noqa: BLE001  # damaged rows hold any value, and damaged names are not even text
        problem = damage_text(error)
    if problem:
        raise StoreUnusable(
            f"{path} is damaged: {problem}. Restore a copy, or try `sqlite3 {path} .recover`. {NOTHING_TOUCHED}"
        )


def open_to_read(path: str) -> sqlite3.Connection:
    """Return a connection to a store's file, or a backup, that any process may have open. The caller must not write.

    Everything is read through SQLite: opening and closing the file directly would release this process's locks on it.

    Raises StoreUnusable if there is no store at ``path``, and sqlite3.Error if the file is damaged.
    """
    connection = open_unrecognized(path)
    try:
        refuse_unrecognized(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_unrecognized(path: str) -> sqlite3.Connection:
    """Return a connection like `open_to_read`, but to any file that SQLite may read. Not even its header was read."""
    refuse_irregular(path)
    if not has_bytes(path):
        raise StoreUnusable(f"{path}: store not found")
    with suppress(OSError):
        header, found = begin_of(path)
        # Nothing writes to a backup.
        if _application(header) != sql.BACKUP_ID:
            refuse_other_names(path, found)
    refuse_planted(os.path.realpath(path))
    writable = may_write(path) and may_write(os.path.dirname(os.path.abspath(path)))
    # If possible open it like any other user: then the last one to close it leaves no files behind.
    return connect(path, read_only=not writable, immutable=not writable and not has_bytes(path + "-wal"))


def refuse_unrecognized(path: str, connection: sqlite3.Connection) -> None:
    """Raise StoreUnusable if the header of a file says that it is not a store or a backup that this program can read.

    Raises sqlite3.Error if it cannot be read.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        _refuse_another_programs(path, application & 0xFFFFFFFF)
        _refuse_newer(path, sql.format_of(connection))
    except sqlite3.Error as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise StoreUnusable(
                f"{path} is not a Headway store, or its first page is damaged: {error}. If it is one, "
                "`headway restore` restores a backup"
            ) from error
        raise


def has_schema(begin: bytes) -> bool:
    """Return True if the beginning of a file has the schema of a store, whatever its header says."""
    return all(statement.replace("IF NOT EXISTS ", "").encode() in begin for statement in sql.TABLES)


def damage_text(error: Exception) -> str:
    """Return the problem that an error while reading a file has shown."""
    if isinstance(error, sqlite3.Error):
        return str(error)
    return f"it holds a value of the wrong type or an invalid text ({type(error).__name__}: {error_text(error)})"


def missing_rows(connection: sqlite3.Connection) -> str:
    """Return the problem with the rows that every store has, or an empty string."""
    meta = sql.read_meta(connection)
    wanted = {"store_id": str, "head": int, "history_floor": int}
    if sql.format_of(connection) >= 2:
        wanted["term_floor"] = int
    if sql.format_of(connection) >= 3:
        wanted["formers_floor"] = int
    for key, kind in wanted.items():
        if not isinstance(meta.get(key), kind):
            return f"its table meta has no {key}"
    for table in ("incarnations", "fences"):
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    (highest,) = connection.execute(sql.HIGHEST_REVISION).fetchone()
    if highest > meta["head"]:
        return f"it holds revision {highest}, above its last one, {meta['head']}"
    return ""


BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite creates, and reads if they exist."""

_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_WRITING = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


UNFINISHED = ".unfinished"
"""The suffix of the name of a backup, or of a restored store, while it is being made."""


def refuse_unfinished(path: str) -> None:
    """Raise StoreUnusable for what a stopped backup or restoration has left. It may lack anything, also silently."""
    if path.endswith(UNFINISHED):
        raise StoreUnusable(
            f"{path} is what a backup or a restoration that was stopped has left, and neither a backup nor a store: "
            f"remove it, and run the command again. {NOTHING_TOUCHED}"
        )


def refuse_irregular(path: str) -> None:
    """Raise StoreUnusable if the path is a directory or a special file. Opening a pipe would block forever."""
    with suppress(OSError):
        if kind := _KINDS.get(stat.S_IFMT(os.stat(path).st_mode)):
            raise StoreUnusable(
                f"{path} is {kind}, but a store must be a regular file: give the path of one, like staff.db. "
                f"{NOTHING_TOUCHED}"
            )


def refuse_other_names(path: str, found: os.stat_result) -> None:
    """Raise StoreUnusable if a store's file has more than one hard link.

    SQLite finds the write-ahead log and the locks beside the file, by its name. So two engines that open it under two
    names would overwrite each other's changes.
    """
    if found.st_nlink > 1:
        left = os.path.realpath(path) + ".replaced"
        which, mend = f"`find DIRECTORY -samefile {path}` finds them", "remove the others"
        with suppress(OSError):
            if os.path.samestat(os.stat(left), found):
                which, mend = f"a restoration that was stopped has left {left}", "remove that one"
        raise StoreUnusable(
            f"{path} has {found.st_nlink} names (hard links), and two servers that open it under two names would "
            f"destroy it; {which}: {mend}, or give the store a file of its own: "
            f"`cp -p {path} {path}.copy && mv {path}.copy {path}`. {NOTHING_TOUCHED}"
        )


def refuse_planted(store: str) -> None:
    """Raise StoreUnusable if one of SQLite's files beside the store cannot be trusted.

    SQLite would read a forged write-ahead log into the store, and would write the store's content into an existing
    file. Call this before SQLite opens the store.

    Args:
        store: a path without symbolic links, as SQLite resolves them to find these files.
    """
    for suffix in BESIDE:
        file = store + suffix
        try:
            found = os.lstat(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreUnusable(f"{file} cannot be checked: {error.strerror}. {NOTHING_TOUCHED}") from error
        if kind := _KINDS.get(stat.S_IFMT(found.st_mode)):
            raise StoreUnusable(
                f"{file} is {kind}, but only SQLite may create that file: find out who put it there, and remove it. "
                f"{NOTHING_TOUCHED}"
            )
        if found.st_nlink > 1:
            raise StoreUnusable(
                f"{file} has another name, under which it may be another store's file: "
                f"move it away if it is not this store's. {NOTHING_TOUCHED}"
            )
        refuse_untrusted(file, found, store)


def refuse_untrusted(file: str, found: os.stat_result, store: str) -> None:
    """Raise StoreUnusable if a file beside the store is accessible to users who do not have that access to the store.

    The file must belong to this process's user, to root, to the store's owner, or to a user who may write the store.
    Its mode must not allow others more than the store's mode does. An empty or a missing store counts as a file of this
    process's user with mode 0600, because it will be one.
    """
    status = _status(store)
    owner = os.geteuid() if status is None else status.st_uid
    mode = OWNER_ONLY if status is None else stat.S_IMODE(status.st_mode)
    if found.st_uid not in (os.geteuid(), owner, _ROOT) and not (status and _may_write(found.st_uid, status)):
        raise StoreUnusable(
            f"{file} belongs to user {found.st_uid}, who may not write to {store} and may have forged it: "
            f"move it away, or `chown {owner} {file}` if it is the store's own. {NOTHING_TOUCHED}"
        )
    if exposed := found.st_mode & _OTHERS & ~mode:
        verb = "change" if exposed & _WRITING else "read"
        raise StoreUnusable(
            f"{file} has mode {stat.S_IMODE(found.st_mode):04o}, so users without that access to {store} "
            f"(mode {mode:04o}) can {verb} it: `chmod {mode:o} {file}` if it is the store's own, or move it away. "
            f"{NOTHING_TOUCHED}"
        )


def _status(store: str) -> os.stat_result | None:
    try:
        found = os.stat(store)
    except OSError:
        return None
    return found if found.st_size else None


def _may_write(user: int, store: os.stat_result) -> bool:
    """Return True if the permissions of the group or of others let this user write the store."""
    if store.st_mode & stat.S_IWOTH:
        return True
    if not store.st_mode & stat.S_IWGRP:
        return False
    try:
        account = pwd.getpwuid(user)
        members = grp.getgrgid(store.st_gid).gr_mem
    except KeyError:
        return False
    return account.pw_gid == store.st_gid or account.pw_name in members
