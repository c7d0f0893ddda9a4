"""The lock of a store: a file beside it, which names the store's only holder, and the store's file itself.

The kernel releases both when the holding process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NoReturn

from headway.base import create_private, in_forked_child
from headway.errors import StoreUnusable
from headway.storage.sqlite._connect import may_write
from headway.storage.sqlite._inspect import (
    NOTHING_TOUCHED,
    OnlyReadable,
    close_unshared,
    refuse_other_names,
    refuse_untrusted,
)

# Do not follow a link planted by another user, and do not block on a pipe.
_SAFELY = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LONGEST = 4096
_END_IT = "end that process, or use the store through its service"

# The locks of this process, by the (device, inode) of their stores' files. A second one for the same file must be
# refused before it opens the file: closing any descriptor of a file releases SQLite's locks on it, which belong to the
# process, as this does.
_HELD_HERE: dict[tuple[int, int], FileLock] = {}


class FileLock:
    """An exclusive flock on `<path>.lock` and on the store's file, taken without waiting.

    The kernel releases the lock when the holding process ends, however it ends. A child that it has forked does not
    keep it. The content of `<path>.lock` only names the holder. It is locked first, so that nothing of a store is read
    or created that another process holds. The store's file is locked too, because other names may lead to it, and the
    lock file may be removed: `take_file`.

    Releasing the lock leaves the file, which names the last holder. `discard` also removes it, if this lock created it:
    nothing stays behind of a store that was never opened. So a process may have opened the file before it was removed.
    Once it has locked such a file, it sees that the path no longer leads there, and starts over. Otherwise, it and a
    process that creates and locks a new file would both hold "the" lock.

    Another user may control the file at the path. So links are not followed, and nothing is written before the file is
    locked and known to be our lock file. The lock is refused if users can open it who cannot open the store.
    """

    def __init__(self, path: str) -> None:
        self._store = path
        self._path = path + ".lock"
        self._descriptor: int | None = None
        self._made = False
        self._file: int | None = None
        self._inode: tuple[int, int] | None = None
        self._is_forked = False
        in_forked_child(self, FileLock._forked)

    @property
    def inode(self) -> tuple[int, int]:
        """The (device, inode) of the store's file, once it is locked. Another one at the path means another file."""
        assert self._inode is not None
        return self._inode

    def take_if_there(self) -> None:
        """Take the lock if its file exists; otherwise no process holds it. Raises StoreUnusable naming the holder."""
        self._reserve()
        self._take(create=False)

    def take(self) -> None:
        """Take the lock, unless it is already taken, and write down its holder. Raises StoreUnusable."""
        if self._descriptor is None:
            self._take(create=True)
        assert self._descriptor is not None
        try:
            # The name of a former holder must not stay: an operator would end the wrong process.
            os.ftruncate(self._descriptor, 0)
        except OSError as error:
            raise self._failed(error) from error
        # A full disk may have no room for the name. The lock holds without it.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, this_process(), 0)

    def take_file(self) -> None:
        """Lock the store's file too. It must exist. Raises StoreUnusable, also if the file has other names.

        The files beside it go by its name. So an engine that opens it under another name would not see the changes in
        the write-ahead log, nor that this one has it open.
        """
        self._reserve()
        try:
            self._file = os.open(
                self._store, (os.O_RDWR if may_write(self._store) else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
            )
            found = os.fstat(self._file)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = locking_text(found)
                raise OnlyReadable(
                    f"{self._store} is held by {holder}, under another path or without {self._path}; {_END_IT}. "
                    f"{NOTHING_TOUCHED}",
                    f"{holder} has the store open",
                ) from error
            there = os.stat(self._store)
        except OSError as error:
            raise StoreUnusable(
                f"{self._store} cannot be locked ({error.strerror}): "
                "make sure that its disk works and supports flock, or open another path"
            ) from error
        if not _inode_of(found) == _inode_of(there) == self._inode:
            raise StoreUnusable(f"{self._store} was replaced while it was being opened: open it again")
        refuse_other_names(self._store, there)

    def release(self) -> None:
        """Release the lock. Idempotent. SQLite must have closed the store's file."""
        self._release_file()
        if self._descriptor is not None:
            _unlock(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def discard(self) -> None:
        """Release the lock, and remove its file if this lock created it. Idempotent."""
        self._release_file()
        if self._descriptor is not None and self._made:
            # Removed while it is locked, so that no other process can hold it.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self.release()

    def _release_file(self) -> None:
        # First, because the next holder takes it last.
        if self._file is not None:
            _unlock(self._file)
            close_unshared(self._file)
            self._file = None
        self._free()

    def _forked(self) -> None:
        """Drop the lock in a forked child. The lock of its parent lasts until the parent closes the descriptor too."""
        self._is_forked = True
        for descriptor in (self._descriptor, self._file):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = self._file = None

    def _reserve(self) -> None:
        """Refuse a file that this process has open as a store, under whatever name."""
        try:
            found = _inode_of(os.stat(self._store))
        except OSError:
            return
        holder = _HELD_HERE.setdefault(found, self)
        if holder._is_forked:
            # SQLite takes the locks of the parent for its own.
            raise StoreUnusable(
                f"{self._store} was open when this process was forked, and cannot be used here: SQLite does not "
                'survive a fork. Start such processes with multiprocessing.get_context("spawn"), or fork before the '
                f"store is opened. {NOTHING_TOUCHED}"
            )
        if holder is not self:
            self._refuse_own()
        if self._inode not in (None, found):
            self._free()
        self._inode = found

    def _free(self) -> None:
        if self._inode is not None and _HELD_HERE.get(self._inode) is self and not self._is_forked:
            del _HELD_HERE[self._inode]

    def _take(self, *, create: bool) -> None:
        while not self._taken(create=create):
            # The process that held the lock has removed the file since it was opened here.
            pass

    def _taken(self, *, create: bool) -> bool:
        """Take the lock. Return False if the locked file was removed in the meantime."""
        try:
            descriptor, made = self._open(create)
        except FileNotFoundError:
            if create:
                raise StoreUnusable(f"{self._path}, the store's lock, cannot be created: no such directory") from None
            return True
        except OSError as error:
            if os.path.islink(self._path):
                self._refuse_foreign("is a symbolic link", error)
            raise StoreUnusable(
                f"{self._path}, the store's lock, cannot be opened ({error.strerror}): "
                "give this process permission to write there, or open another path"
            ) from error
        try:
            locked = self._lock(descriptor, made=made)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise self._failed(error) from error
            raise
        if not locked:
            os.close(descriptor)
            return False
        self._descriptor, self._made = descriptor, made
        return True

    def _open(self, create: bool) -> tuple[int, bool]:
        """Return a descriptor of the file, and True if this call created it."""
        while True:
            try:
                return os.open(self._path, _SAFELY), False
            except FileNotFoundError:
                if not create:
                    raise
            try:
                return create_private(self._path, _SAFELY), True
            except FileExistsError:
                # Another process has just created it.
                continue

    def _lock(self, descriptor: int, *, made: bool) -> bool:
        """Lock the open file. Return False if it is no longer the file at the path."""
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            self._refuse_foreign("is not a regular file")
        if not made:
            # Check before trying the lock: users who can open it can hold it, and could claim anything about the
            # holder. A new file is not checked, because some file systems show every file with a foreign owner or a
            # wide mode.
            refuse_untrusted(self._path, found, self._store)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._refuse(descriptor)
        found = os.fstat(descriptor)
        if not self._is_at_path(found):
            return False
        if found.st_nlink > 1:
            self._refuse_foreign("has another name, under which it may be another program's file")
        if not is_ours(os.pread(descriptor, _LONGEST, 0)):
            self._refuse_foreign("was not written by Headway")
        return True

    def _is_at_path(self, found: os.stat_result) -> bool:
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino)

    def _failed(self, error: OSError) -> StoreUnusable:
        return StoreUnusable(
            f"{self._path}, the store's lock, cannot be locked or written ({error.strerror}): "
            "make sure that its disk works and supports flock, or open another path"
        )

    def _refuse_foreign(self, what: str, cause: OSError | None = None) -> NoReturn:
        raise StoreUnusable(
            f"{self._path} {what}; the store's lock must be a file created by Headway: move it away, "
            "or open another path. Nothing was changed"
        ) from cause

    def _refuse(self, descriptor: int) -> NoReturn:
        content, found = os.pread(descriptor, _LONGEST, 0), os.fstat(descriptor)
        if is_this_process(content, found):
            self._refuse_own()
        holder = holder_text(content, found)
        raise OnlyReadable(
            f"{self._store} is held by {holder}; {_END_IT}. The lock ends with its holder: removing "
            f"{self._path} does not release it",
            f"{holder} has the store open",
        )

    def _refuse_own(self) -> NoReturn:
        raise OnlyReadable(
            f"{self._store} is open in this process already: use the store that is open, or open it again after its "
            f"block has ended. {NOTHING_TOUCHED}",
            "this process has the store open",
        )


def _inode_of(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _unlock(descriptor: int) -> None:
    # A process that was forked without Python's knowledge may have the same open file. Closing does not unlock it then.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_BEGINNING = b'{"pid": '


def this_process() -> bytes:
    """Return what this process writes into a lock that it holds."""
    program = f"{sys.executable} {sys.argv[0] if sys.argv else ''}".strip()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "program": program, "since": since}).encode()


def is_ours(content: bytes) -> bool:
    """Return True if the content is what a holder writes, or what a crash can leave of it."""
    written = content.rstrip(b"\0")
    return written.startswith(_BEGINNING) or _BEGINNING.startswith(written)


def is_this_process(content: bytes, found: os.stat_result) -> bool:
    """Return True if this process holds the lock with this content. ``found`` is the status of the locked file."""
    if str(os.getpid()) in _locking(found):
        return True
    with contextlib.suppress(ValueError, KeyError, TypeError):
        holder = json.loads(content)
        return bool(holder["pid"] == os.getpid() and holder["host"] == socket.gethostname())
    return False


def holder_text(content: bytes, found: os.stat_result) -> str:
    """Return who holds a lock, for an error. ``found`` is the status of the locked file."""
    try:
        holder = json.loads(content)
        pid, host = holder["pid"], holder["host"]
        named = f"process {pid} on {host} ({holder['program']}) since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        # The lock is taken shortly before its content is written, and a full disk may have no room for the content.
        return _processes(found) or "another process, which has not yet written its name"
    if host != socket.gethostname() or os.path.exists(f"/proc/{pid}") or not os.path.exists("/proc/self"):
        return named
    # It has ended, and a process that it forked has kept the descriptor.
    return f"{_processes(found) or 'another process'}, which got the lock from {named}, which has ended"


def locking_text(found: os.stat_result) -> str:
    """Return who has a lock on the file with this status, for an error."""
    return _processes(found) or "another process"


def _processes(found: os.stat_result) -> str:
    pids = [*_locking(found)]
    return f"process{'es' if len(pids) > 1 else ''} {' and '.join(pids)}" if pids else ""


def _locking(found: os.stat_result) -> Iterator[str]:
    """Yield the pids with a locked descriptor of a file, as far as this process may know (Linux)."""
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if any(_locks(pid, each, found) for each in os.listdir(f"/proc/{pid}/fd")):
                    yield pid


def _locks(pid: str, descriptor: str, found: os.stat_result) -> bool:
    # A descriptor may have been closed since it was listed.
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), found):
            with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
                return "FLOCK" in file.read()
    return False
