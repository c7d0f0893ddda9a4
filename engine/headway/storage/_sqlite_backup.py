"""Backups of a store's file, and stores made of them; everything here runs in a worker thread.

A backup is a file of its own: whole, checked, and at one revision. Its header says that it is one, so that nothing
opens it as the store that it was; what a restore makes of it is another store, above every revision and every term
that the first one can have given out since. docs/decisions/storage.md says how that is known.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from headway._private_files import OWNER_ONLY, create_private
from headway.errors import FailedPrecondition, InvalidArgument, StoreUnusable
from headway.storage import _sqlite_schema as sql
from headway.storage._sqlite_check import check_file
from headway.storage._sqlite_commit import HIGHEST
from headway.storage._sqlite_connect import connect, explained
from headway.storage._sqlite_inspect import has_bytes, is_new, open_to_read
from headway.storage._sqlite_lock import FileLock
from headway.storage._sqlite_migrate import migrate

REVISION_LEAP = 2**48
"""How far above all that is known a restored store begins: a store that gives out a million revisions a second, from
its backup on, needs nine years for as many."""

REVISIONS_A_SECOND = 2**20
"""Added for each second since the backup, so that what is restored from one backup twice doesn't begin at one place."""

TERM_LEAP = 2**32
"""The same for the terms of fences and leases."""

Hold = Callable[[sqlite3.Connection], None]
"""Is told of the connection that works now, for who wants to interrupt it."""


class BackedUp(NamedTuple):
    """A backup that was made.

    Attributes:
        revision: that it has everything up to.
        size: of its file, in bytes.
    """

    store_id: str
    revision: int
    size: int


class Restored(NamedTuple):
    """A store that was made of a backup.

    Attributes:
        store_id: its own, a new one.
        revision: at which it begins.
        from_store: the id of the store that the backup is of.
        from_revision: up to which the backup has everything.
        replaced: where the file that was there before is now; empty when there was none.
    """

    store_id: str
    revision: int
    from_store: str
    from_revision: int
    replaced: str


def backup_file(store: str, file: str, *, replace: bool, hold: Hold) -> BackedUp:
    """Make ``file`` a backup of ``store``, which a server may have open and write to."""
    source, target = os.path.realpath(store), os.path.realpath(file)
    _refuse_no_folder(target)
    if source == target:
        raise InvalidArgument(f"{file} is the store itself; give the backup a path of its own")
    if os.path.exists(f"{target}.lock"):
        raise InvalidArgument(f"{file} is a store, as {target}.lock shows; give the backup a path of its own")
    if os.path.lexists(target) and not replace:
        raise FailedPrecondition(f"{file} is there already; give another path, or replace it (--replace)")
    with _building(target) as building:
        _copy(source, building, hold)
        with _changing(building, hold) as connection:
            connection.execute(f"PRAGMA application_id = {sql.BACKUP_ID}")
            connection.execute(sql.REPLACE_META, ("backup_at", time.time()))
            meta = _meta(connection)
        found = check_file(building)
        if found:
            raise StoreUnusable(
                f"{store} is damaged, and no backup was made of it: {found[0]}"
                f"{f', and {len(found) - 1} more' if len(found) > 1 else ''}. "
                "`headway store check` finds all of it, and `headway restore` brings an earlier backup back"
            )
        size = _into_place(building, target, source, OWNER_ONLY)
    return BackedUp(meta["store_id"], meta["head"], size)


def restore_file(file: str, store: str, *, replace: bool, hold: Hold) -> Restored:
    """Make ``store`` a new store of what is in ``file``, a backup or a copy of a store's file."""
    source, target = os.path.realpath(file), os.path.realpath(store)
    _refuse_no_folder(target)
    if source == target:
        raise InvalidArgument(f"{file} is the store itself; restore from another file, or to another path")
    lock = FileLock(target)
    try:
        lock.take_if_there()
        there = not _nothing_at(target)
        if there and not replace:
            raise FailedPrecondition(f"{store} is there already; give another path, or replace it (--replace)")
        lock.take()
        with _building(target) as building:
            _copy(source, building, hold)
            former = _ended(target) if there else _Former(0, 0)
            with _changing(building, hold) as connection:
                made = _renew(connection, former)
            if found := check_file(building):
                raise StoreUnusable(f"{file} is damaged, and nothing was restored from it: {found[0]}")
            if there:
                _set_aside(target)
            like = target if there else source
            _into_place(building, target, like, os.stat(target).st_mode if there else OWNER_ONLY)
    finally:
        lock.release()
    return made._replace(replaced=_aside(target) if there else "")


# --- Building a file ---------------------------------------------------------


@contextmanager
def _building(target: str) -> Iterator[str]:
    """A path beside ``target`` where nothing is; what is there when the block fails is removed."""
    building = f"{target}.new"
    _remove(building)
    try:
        # Empty, and nobody else's to read before it has the rights that it is to have.
        os.close(create_private(building))
        yield building
    except (OSError, sqlite3.Error) as error:
        raise StoreUnusable(f"{target} can't be made: {explained(error)}. What was there is as it was") from error
    finally:
        _remove(building)


def _copy(source: str, building: str, hold: Hold) -> None:
    # One transaction reads it all, so it is at one revision, whatever is written meanwhile; and row by row, so that
    # what is free or torn in the source is not taken along.
    try:
        with closing(open_to_read(source, backup=True)) as connection:
            hold(connection)
            connection.execute("VACUUM INTO ?", (building,))
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{source} could not be copied: {explained(error)}") from error


@contextmanager
def _changing(building: str, hold: Hold) -> Iterator[sqlite3.Connection]:
    """One transaction on the copy, durable when the block has ended."""
    with closing(connect(building)) as connection:
        hold(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        migrate(connection)
        yield connection
        connection.execute("COMMIT")


def _into_place(building: str, target: str, like: str, mode: int) -> int:
    """Move the file to ``target``, durably, with this mode and the owner of ``like``."""
    found = os.stat(like)
    os.chmod(building, mode & 0o777)
    with contextlib.suppress(PermissionError):
        os.chown(building, found.st_uid, found.st_gid)
    # What VACUUM INTO writes it does not flush.
    descriptor = os.open(building, os.O_RDWR)
    try:
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    os.rename(building, target)
    folder = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def _remove(path: str) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)


def _refuse_no_folder(path: str) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnusable(f"{path} can't be made: there is no directory {folder}; make it first")
    if os.path.isdir(path):
        raise StoreUnusable(f"{path} is a directory; give the path of a file in it")


def _meta(connection: sqlite3.Connection) -> dict[str, Any]:
    return dict(connection.execute(sql.READ_META).fetchall())


# --- Another store -----------------------------------------------------------


class _Former(NamedTuple):
    """What the store that is replaced has given out, as far as it can be read."""

    revision: int
    term: int


def _renew(connection: sqlite3.Connection, former: _Former) -> Restored:
    """Make the store in this file another one, above what the one that it was can have given out since."""
    meta = _meta(connection)
    (opened_at,) = connection.execute("SELECT coalesce(max(opened_at), 0) FROM incarnations").fetchone()
    # A copy that is no backup doesn't say of when it is, but it is no older than its last opening.
    elapsed = max(0.0, time.time() - meta.get("backup_at", opened_at))
    revision = max(meta["head"], former.revision) + REVISION_LEAP + int(elapsed) * REVISIONS_A_SECOND
    term = max(_highest_term(connection), former.term) + TERM_LEAP
    if max(revision, term) > HIGHEST // 2:
        raise StoreUnusable(f"revision {revision} and term {term} would be too close to {HIGHEST}, the last there is")
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
    # Whoever holds a lease, or bears a fence, has it of the other store.
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


# --- What is replaced --------------------------------------------------------


def _nothing_at(path: str) -> bool:
    try:
        return is_new(path)
    except StoreUnusable as error:
        raise StoreUnusable(f"{error}. Nothing is restored in its place: move it away, then restore") from error


def _ended(path: str) -> _Former:
    """Empty the log of the store at ``path`` into it, and say how far it has come. The lock is ours."""
    try:
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return _Former(_meta(connection).get("head", 0), _highest_term(connection))
    except sqlite3.Error:
        # It is damaged, which may be why it is replaced.
        return _Former(0, 0)


def _aside(path: str) -> str:
    return f"{path}.replaced"


def _set_aside(path: str) -> None:
    """Keep what is at ``path`` under another name, too. It stays where it is until its successor is moved there."""
    aside = _aside(path)
    _remove(aside)
    os.link(path, aside)
    if has_bytes(f"{path}-wal"):
        os.rename(f"{path}-wal", f"{aside}-wal")
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
