"""Checks of the files at a store's path and beside it, which another user of the machine may have put there."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat

from headway._private_files import OWNER_ONLY
from headway.errors import StoreUnusable

BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite creates, and reads if they exist."""

NOTHING_TOUCHED = "Nothing was changed"
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


def refuse_irregular(path: str) -> None:
    """Raise StoreUnusable if the path is a pipe, a directory or another special file; opening a pipe would block
    forever.
    """
    with contextlib.suppress(OSError):
        if kind := _KINDS.get(stat.S_IFMT(os.stat(path).st_mode)):
            raise StoreUnusable(
                f"{path} is {kind}, but a store must be a regular file: give the path of one, like staff.db. "
                f"{NOTHING_TOUCHED}"
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
