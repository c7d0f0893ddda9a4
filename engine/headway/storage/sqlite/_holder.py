"""The holder of a store's lock: what it writes into the lock file, and which process really holds it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

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
