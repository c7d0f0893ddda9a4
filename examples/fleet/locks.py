"""
Read from the lock files what lives.

Three things count, in this order: whether the lock is held, what its record says, and whether a process of
that pid, start time and boot is alive. The pid alone counts for nothing: it may have been given to somebody
else.

The same holds for signals: a process is first pinned by a pidfd, then compared, then signalled through the
pidfd.
"""

import enum
import errno
import json
import os
import re
import select
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examples.fleet import launcher

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

PROCESS_GROUP = 4
"""`PIDFD_SIGNAL_PROCESS_GROUP` (Linux 6.9): the signal goes to the group that the pidfd's process leads or led."""


class State(enum.Enum):
    """What the lock and its record say together."""

    RUNNING = "running"
    """The lock is held and the recorded process is alive."""
    STARTING = "starting"
    """The lock is held by one who has not yet said who it is. Pid and start time, where they are not 0,
    were found by looking for the holder; port and command are unknown."""
    REMNANT = "remnant"
    """The recorded process is dead, and something that it forked still holds its lock; or the record was
    damaged (then the pid is 0). There is nothing to adopt, and nothing can start: `stop` it."""


@dataclass(frozen=True, slots=True)
class Process:
    """One run of one instance: the pid with what makes it unique."""

    uid: str
    pid: int
    start_time: int
    """In clock ticks since boot, as in field 22 of `/proc/<pid>/stat`."""
    boot_id: str
    port: int
    command: tuple[str, ...]
    folder: Path
    state: State = State.RUNNING

    @property
    def identity(self) -> tuple[int, int, str]:
        """What no other process ever has: pid, start time, boot."""
        return self.pid, self.start_time, self.boot_id


def is_uid(text: str) -> bool:
    """Whether this can be a uid: letters, digits, _ and -, so that it can be a file's name."""
    return _UID.fullmatch(text) is not None


def lock_path(folder: Path, uid: str) -> Path:
    """Where an instance's lock is; ValueError for a uid that can't be a file's name."""
    if not is_uid(uid):
        raise ValueError(f"{uid!r} can't name a lock: letters, digits, _ and - only")
    return folder / f"{uid}.lock"


def log_path(folder: Path, uid: str) -> Path:
    """Where an instance's output goes."""
    return lock_path(folder, uid).with_suffix(".log")


def read(folder: Path, uid: str) -> Process | None:
    """
    Who holds an instance's lock at this moment, None when nobody does.

    The answer is never RUNNING or REMNANT by a record that another holder has left. STARTING usually lasts
    well under a millisecond; ask again before you believe it, and `with_holder` names who it is.
    """
    try:
        descriptor = os.open(lock_path(folder, uid), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        while True:
            said = launcher.ask(descriptor)
            if said == "free":
                return None
            unknown = Process(uid, 0, 0, launcher.boot_id(), 0, (), folder, State.STARTING)
            if said == "starting":
                return unknown
            record = _record(descriptor)
            process = _unseal(folder, uid, record) or unknown
            if is_alive(process):
                return process
            # Dead. It is a remnant if the lock is still held, and was not taken anew while we looked.
            if launcher.ask(descriptor) == "told" and _record(descriptor) == record:
                return replace(process, state=State.REMNANT)
    finally:
        os.close(descriptor)


def _record(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _unseal(folder: Path, uid: str, record: bytes) -> Process | None:
    """The sealed record's process; None for what is empty, torn, or not a record."""
    try:
        checksum, line = record.rstrip(b"\n").split(b" ", 1)
        if int(checksum, 16) != zlib.crc32(line):
            return None
        fields: dict[str, Any] = json.loads(line)
        command = tuple(fields["command"])
        return Process(uid, fields["pid"], fields["start_time"], fields["boot_id"], fields["port"], command, folder)
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def pinned(process: Process) -> Iterator[int | None]:
    """
    Hold a pidfd of exactly this process; None when it is gone, or its pid belongs to another one now.

    The pidfd comes first and the comparison second: the other way round, the pid could change hands in
    between.
    """
    descriptor = _open_pidfd(process.pid)
    try:
        if descriptor is not None and not _is_of(process):
            os.close(descriptor)
            descriptor = None
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_pidfd(pid: int) -> int | None:
    if pid <= 0:  # not found: see State.STARTING
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # The first: nobody has the pid. The others: it was given to a thread.
        if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
            return None
        raise


def _is_of(process: Process) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):  # reaped by somebody else
        return (launcher.start_time(process.pid), launcher.boot_id()) == process.identity[1:]
    return False


def has_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd has ended, reaped or not, with all its threads."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def is_alive(process: Process) -> bool:
    """Whether exactly this process runs. One that has ended and is not yet reaped does not."""
    with pinned(process) as pidfd:
        return pidfd is not None and not has_ended(pidfd)


def is_held_by(process: Process) -> bool:
    """Whether the lock is held by this run, or by what it has left, and not by a later run of the same instance."""
    holder = read(process.folder, process.uid)
    # What a run leaves behind is never starting: that is a later run, or the process itself, which its pidfd tells.
    return holder is not None and holder.state is not State.STARTING and holder.identity == process.identity


def with_holder(process: Process) -> Process:
    """A STARTING process with the pid and start time of the session leader that holds its lock, if one is seen."""
    for pid in _holding_pids(process):
        with suppress(OSError):
            if os.getsid(pid) == pid:
                return replace(process, pid=pid, start_time=launcher.start_time(pid))
    return process


def signal_group(pidfd: int, process: Process, number: signal.Signals) -> None:
    """Send a signal to the process group that a pinned process leads or led. Nothing happens if it is empty."""
    with suppress(ProcessLookupError):
        try:
            signal.pidfd_send_signal(pidfd, number, None, PROCESS_GROUP)
        except OSError as error:
            # An older kernel. While the leader lives its pid can't be another group's; afterwards nobody
            # knows.
            if isinstance(error, ProcessLookupError) or has_ended(pidfd):
                return
            os.killpg(process.pid, number)


def signal_holders(process: Process, number: signal.Signals) -> None:
    """Send a signal to everything that holds the lock of this run, in whatever session and group it is by now."""
    for pid in _holding_pids(process):
        holder = _open_pidfd(pid)
        if holder is None:
            continue
        try:
            # In this order: it is pinned; it holds the lock; and the lock is still this run's. Then it is
            # of this run.
            if _holds_lock(pid, process) and is_held_by(process):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(holder, number)
        finally:
            os.close(holder)


def _holding_pids(process: Process) -> list[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return [pid for pid in pids if _holds_lock(pid, process)]


def _holds_lock(pid: int, process: Process) -> bool:
    """Whether one of a process's descriptors carries the lock. Those who merely have the file open don't count."""
    path = str(lock_path(process.folder, process.uid))
    # Not ours to see, or gone meanwhile: then it is not the one we look for.
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{number}") == path:
                    with open(f"/proc/{pid}/fdinfo/{number}") as info:
                        if "OFDLCK" in info.read():
                            return True
    return False
