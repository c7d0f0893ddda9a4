"""One holder for a store's file: a lock beside it that says who holds it and ends with its process."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from datetime import UTC, datetime
from typing import NoReturn

from headway.errors import StoreUnusable


class FileLock:
    """Holds `<path>.lock` by flock, without waiting.

    The lock is the kernel's, and gone with the process that held it, however that ended; the content only says who
    it is. The file is left when the lock is let go: were it removed, a process that has it open already could lock
    the removed file while another one makes and locks a new one, and both would hold "the" lock.
    """

    def __init__(self, path: str) -> None:
        self._store = path
        self._path = path + ".lock"
        self._descriptor: int | None = None

    def take_if_there(self) -> None:
        """Take the lock if its file exists; with none nobody holds it. Raises StoreUnusable naming the holder."""
        self._take(os.O_RDWR)

    def take(self) -> None:
        """Take the lock, unless it is taken already, and write down who holds it. Raises StoreUnusable."""
        if self._descriptor is None:
            self._take(os.O_RDWR | os.O_CREAT)
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(_this_process()).encode(), 0)

    def release(self) -> None:
        """Let go. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, flags: int) -> None:
        try:
            descriptor = os.open(self._path, flags, 0o666)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise StoreUnusable(f"{self._path}, the lock of the store, can't be made: no such directory") from None
            return
        except OSError as error:
            raise StoreUnusable(
                f"{self._path}, the lock of the store, can't be opened ({error.strerror}): "
                "give this process the right to write there, or open another path"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            content = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            self._refuse(content)
        self._descriptor = descriptor

    def _refuse(self, content: bytes) -> NoReturn:
        raise StoreUnusable(
            f"{self._store} is held by {_describe(content)}; end that process, "
            "or let this one reach the store through its service. The lock ends with its holder: removing "
            f"{self._path} by hand frees nothing"
        )


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
        # The lock is taken a moment before its content is written.
        return "another process, which has not yet said who it is"
