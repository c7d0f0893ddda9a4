"""Backups of a store's file, and stores restored from them. Everything here runs in a worker thread.

A backup is a separate file: whole, checked, and at one revision. Its header marks it as a backup, so that it is never
opened as the original store. Restoring it creates a new store, above every revision and every term that the original
can have reached since. docs/decisions/storage.md says how that is known.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from headway.base import OWNER_ONLY, create_private
from headway.errors import FailedPrecondition, InvalidArgument, StoreUnusable
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._check import Finding, check_file
from headway.storage.sqlite._connect import code_of, connect, explained
from headway.storage.sqlite._file import move_durably, remove_file
from headway.storage.sqlite._inspect import UNFINISHED, has_bytes, is_new, open_to_read, refuse_unfinished
from headway.storage.sqlite._lock import FileLock
from headway.storage.sqlite._requests import HIGHEST

REVISION_LEAP = 2**48
"""The distance between the highest known revision and the first one of a restored store.

A store that makes a million commits a second after its backup needs nine years for that many.
"""

REVISIONS_A_SECOND = 2**20
"""The revisions added for each second since the backup, so that two restores of one backup begin at different
revisions.
"""

TERM_LEAP = 2**32
"""The same distance for the terms of fences and leases."""

Hold = Callable[[sqlite3.Connection], None]
"""A callback that receives each connection before it is used, so that it can be interrupted."""


OnBytes = Callable[[str, int, int | None], object]
"""A function that receives a step, the bytes done in it, and all bytes of it, or None. It must not block."""

_INSTRUCTIONS = 100_000
"""The instructions of SQLite's machine between two reports of progress: some milliseconds."""


class BackedUp(NamedTuple):
    """A finished backup.

    Attributes:
        revision: the last revision that it contains.
        size: the size of its file in bytes.
    """

    store_id: str
    revision: int
    size: int


class Restored(NamedTuple):
    """A store restored from a backup.

    Attributes:
        store_id: its own new id.
        revision: its first revision.
        from_store: the id of the backed-up store.
        from_revision: the last revision that the backup contains.
        replaced: the new path of the file that it replaced; empty if there was nothing to replace.
    """

    store_id: str
    revision: int
    from_store: str
    from_revision: int
    replaced: str


def backup_file(store: str, file: str, *, replace: bool, hold: Hold, wrote: OnBytes | None = None) -> BackedUp:
    """Back up ``store`` to ``file``. A server may have the store open and write to it."""
    source, target = os.path.realpath(store), os.path.realpath(file)
    _refuse_no_folder(target)
    for each in (source, target):
        refuse_unfinished(each)
    if source == target:
        raise InvalidArgument(f"{file} is the store itself; give the backup a path of its own")
    if os.path.exists(f"{target}.lock"):
        raise InvalidArgument(f"{file} is a store, as {target}.lock shows; give the backup a path of its own")
    if os.path.lexists(target) and not replace:
        raise FailedPrecondition(f"{file} already exists; give another path, or replace it (--replace)")
    with _building(target) as building:
        _copy(source, building, hold, wrote)
        try:
            with _changing(building, hold) as connection:
                connection.execute(f"PRAGMA application_id = {sql.BACKUP_ID}")
                connection.execute(sql.REPLACE_META, ("backup_at", time.time()))
                meta = sql.read_meta(connection)
        except sqlite3.Error as error:
            raise _damage(source, error) or error from error
        if wrote is not None:
            wrote("checking the backup", 0, None)
        found = check_file(building).findings
        if found:
            raise _damaged(store, found)
        size = _prepare(building, source, OWNER_ONLY)
        move_durably(building, target)
    return BackedUp(meta["store_id"], meta["head"], size)


def restore_file(file: str, store: str, *, replace: bool, hold: Hold) -> Restored:
    """Create the store ``store`` from ``file``, a backup or a copy of a store's file."""
    source, target = os.path.realpath(file), os.path.realpath(store)
    _refuse_no_folder(target)
    for each in (source, target):
        refuse_unfinished(each)
    if source == target:
        raise InvalidArgument(f"{file} is the store itself; restore from another file, or to another path")
    lock = FileLock(target)
    try:
        lock.take_if_there()
        there = not _nothing_at(target)
        if there and not replace:
            raise FailedPrecondition(f"{store} already exists; give another path, or replace it (--replace)")
        lock.take()
        if there:
            lock.take_file()
        with _building(target) as building:
            _copy(source, building, hold)
            former = _ended(target) if there else _Former(0, 0)
            with _changing(building, hold) as connection:
                made = _renew(connection, former)
            if found := check_file(building).findings:
                raise StoreUnusable(f"{file} is damaged, and nothing was restored from it: {found[0]}")
            _prepare(building, target if there else source, os.stat(target).st_mode if there else OWNER_ONLY)
            # Everything that may fail for a lack of space or permission has been done.
            if there:
                _set_aside(target)
            move_durably(building, target)
    finally:
        # Of a failed restore, nothing stays behind. A restored store gets its lock file when it is opened.
        lock.discard()
    return made._replace(replaced=_aside(target) if there else "")


# --- Building a file ---------------------------------------------------------


@contextmanager
def _building(target: str) -> Iterator[str]:
    """Yield a new path beside ``target``. If the block fails, the file there is removed."""
    building = f"{target}{UNFINISHED}"
    try:
        remove_file(building)
        try:
            # Create an empty file that only its owner can read, before it gets its final mode.
            os.close(create_private(building))
            yield building
        finally:
            remove_file(building)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"{target} could not be created: {explained(error)}. Nothing was changed") from error


def _copy(source: str, building: str, hold: Hold, wrote: OnBytes | None = None) -> None:
    # A single transaction reads everything, so the copy is at one revision whatever is written at the same time.
    # Copying rows leaves out free or torn pages of the source.
    try:
        with closing(open_to_read(source)) as connection:
            hold(connection)
            if wrote is not None:
                _report_bytes(connection, building, wrote)
            connection.execute("VACUUM INTO ?", (building,))
            if wrote is not None:
                size = os.path.getsize(building)
                wrote("copying", size, size)
    except sqlite3.DatabaseError as error:
        raise _damage(source, error) or StoreUnusable(f"{source} could not be copied: {explained(error)}") from error


_NO_DAMAGE = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM)


def _damage(source: str, error: sqlite3.Error) -> StoreUnusable | None:
    """Return the error for a source that is damaged, or None if it is whole, or cannot be checked.

    Damage may look like a full disk: a damaged length is that of a row which does not fit anywhere. It may also show
    only in the copy.
    """
    found: Sequence[Finding] = ()
    # A store of an older format cannot be checked.
    with contextlib.suppress(StoreUnusable):
        if code_of(error) & 0xFF not in _NO_DAMAGE:
            found = check_file(source).findings
    return _damaged(source, found) if found else None


def _damaged(store: str, found: Sequence[Finding]) -> StoreUnusable:
    return StoreUnusable(
        f"{store} is damaged, and was not copied: {found[0]}"
        f"{f', and {len(found) - 1} more' if len(found) > 1 else ''}. "
        "`headway store check` finds all of the damage, and `headway restore` restores an earlier backup"
    )


def _report_bytes(connection: sqlite3.Connection, building: str, wrote: OnBytes) -> None:
    """Report the size of the copy while the connection works. The estimate of the whole leaves out free pages."""
    (pages,), (free,), (size,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    total = (pages - free) * size

    def report() -> None:
        # An exception here would interrupt SQLite.
        with contextlib.suppress(OSError):
            wrote("copying", min(os.path.getsize(building), total), total)

    wrote("copying", 0, total)
    connection.set_progress_handler(report, _INSTRUCTIONS)


@contextmanager
def _changing(building: str, hold: Hold) -> Iterator[sqlite3.Connection]:
    """Run the block in a transaction on the copy. It is durable after the block."""
    with closing(connect(building)) as connection:
        hold(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        sql.migrate(connection)
        yield connection
        connection.execute("COMMIT")


def _prepare(building: str, like: str, mode: int) -> int:
    """Give the file this mode and the owner of ``like``, and make its content durable. Return its size."""
    found = os.stat(like)
    # Opened before the mode changes, which may forbid even its owner to write.
    descriptor = os.open(building, os.O_RDWR)
    try:
        os.fchmod(descriptor, mode & 0o777)
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, found.st_uid, found.st_gid)
        # VACUUM INTO does not flush what it writes.
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _refuse_no_folder(path: str) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnusable(f"{path} cannot be created: directory {folder} not found; create it first")
    if os.path.isdir(path):
        raise StoreUnusable(f"{path} is a directory; give the path of a file in it")


# --- Another store -----------------------------------------------------------


class _Former(NamedTuple):
    """The highest revision and term of the replaced store, as far as they can be read."""

    revision: int
    term: int


def _renew(connection: sqlite3.Connection, former: _Former) -> Restored:
    """Turn the copy into a new store, above everything that the original can have reached since."""
    meta = sql.read_meta(connection)
    (opened_at,) = connection.execute("SELECT coalesce(max(opened_at), 0) FROM incarnations").fetchone()
    # A plain copy does not say when it was made, but that was not before its last opening.
    elapsed = max(0.0, time.time() - meta.get("backup_at", opened_at))
    revision = max(meta["head"], former.revision) + REVISION_LEAP + int(elapsed) * REVISIONS_A_SECOND
    term = max(_highest_term(connection), former.term) + TERM_LEAP
    if max(revision, term) > HIGHEST // 2:
        raise StoreUnusable(f"revision {revision} and term {term} would be too close to {HIGHEST}, the maximum")
    made = Restored(uuid.uuid4().hex, revision, meta["store_id"], meta["head"], "")
    connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    connection.execute("DELETE FROM meta WHERE key = 'backup_at'")
    for key, value in {
        "store_id": made.store_id,
        "head": revision,
        "term_floor": term,
        "restored_from": f"{made.from_store} at {made.from_revision}",
    }.items():
        connection.execute(sql.REPLACE_META, (key, value))
    # Existing leases and fences belong to the original store.
    connection.execute("DELETE FROM leases")
    connection.execute("UPDATE fences SET term = ?, number = 0", (term,))
    connection.execute("DELETE FROM incarnations")
    return made


def _highest_term(connection: sqlite3.Connection) -> int:
    (term,) = connection.execute(
        "SELECT max(coalesce((SELECT max(term) FROM fences), 0),"
        " coalesce((SELECT value FROM meta WHERE key = 'term_floor'), 0))"
    ).fetchone()
    assert isinstance(term, int)
    return term


# --- The replaced store ------------------------------------------------------


def _nothing_at(path: str) -> bool:
    try:
        return is_new(path)
    except StoreUnusable as error:
        raise StoreUnusable(f"{error}. It was not replaced: move it away, then restore") from error


def _ended(path: str) -> _Former:
    """Copy the log of the store at ``path`` into its file, and return its revision and term. Requires the lock."""
    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return _Former(sql.read_meta(connection).get("head", 0), _highest_term(connection))
    except sqlite3.Error:
        # The store is damaged, which may be the reason for replacing it.
        return _Former(0, 0)


def _aside(path: str) -> str:
    return f"{path}.replaced"


def _set_aside(path: str) -> None:
    """Give the file at ``path`` a second name. It also keeps its own until the new one is moved there."""
    aside = _aside(path)
    remove_file(aside)
    os.link(path, aside)
    if has_bytes(f"{path}-wal"):
        os.rename(f"{path}-wal", f"{aside}-wal")
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
