"""A lock file beside a store's file, which names the store's only holder and ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import sys
from datetime import UTC, datetime
from typing import NoReturn

from headway.base import create_private
from headway.errors import StoreUnusable
from headway.storage.sqlite._inspect import OnlyReadable, refuse_untrusted

# Do not follow a link planted by another user, and do not block on a pipe.
_SAFELY = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_BEGINNING = b'{"pid": '
_LONGEST = 4096


class FileLock:
    """An exclusive flock on `<path>.lock`, taken without waiting.

    The kernel releases the lock when the holding process ends, however it ends. The content only names the holder.
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

    def take_if_there(self) -> None:
        """Take the lock if its file exists; otherwise no process holds it. Raises StoreUnusable naming the holder."""
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
            os.pwrite(self._descriptor, json.dumps(_this_process()).encode(), 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def discard(self) -> None:
        """Release the lock, and remove its file if this lock created it. Idempotent."""
        if self._descriptor is not None and self._made:
            # Removed while it is locked, so that no other process can hold it.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self.release()

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
            self._refuse(os.pread(descriptor, _LONGEST, 0))
        found = os.fstat(descriptor)
        if not self._is_at_path(found):
            return False
        if found.st_nlink > 1:
            self._refuse_foreign("has another name, under which it may be another program's file")
        if not _is_ours(os.pread(descriptor, _LONGEST, 0)):
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

    def _refuse(self, content: bytes) -> NoReturn:
        holder = _describe(content)
        raise OnlyReadable(
            f"{self._store} is held by {holder}; end that process, "
            "or use the store through its service. The lock ends with its holder: removing "
            f"{self._path} does not release it",
            f"{holder} has the store open",
        )


def _is_ours(content: bytes) -> bool:
    """Return True if the content is what a holder writes, or what a crash can leave of it."""
    written = content.rstrip(b"\0")
    return written.startswith(_BEGINNING) or _BEGINNING.startswith(written)


def _this_process() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": f"{sys.executable} {sys.argv[0] if sys.argv else ''}".strip(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        whose = "this process" if holder["pid"] == os.getpid() else f"process {holder['pid']}"
        return f"{whose} on {holder['host']} ({holder['program']}) since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        # The lock is taken shortly before its content is written, and a full disk may have no room for the content.
        return "another process, which has not yet written its name"
