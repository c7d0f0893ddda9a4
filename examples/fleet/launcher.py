"""
Take an instance's lock, say who holds it, and become the instance's command.

A lock file is the one proof that an instance runs. The launcher locks `<folder>/<uid>.lock`, writes into it who it is,
and executes the command in its own place: pid, start time and the locked descriptor stay the same over `exec`, so the
lock is free when the process is gone, however it went.

It is started by file path, `python -I -S launcher.py`, so that it is fast, and imports nothing of the project. Its
order is a JSON object on stdin: folder, uid, command, environment, port. What it reports goes to stdout: `READY` just
before `exec`, and a sentence when something failed. The report ends (end of file) with the `exec`.

Exit codes: the constants below. Anything else is the command's own.

The lock is an open file description lock (`F_OFD_SETLK`): it belongs to the opened file, so it is kept over `exec`,
ends with the last descriptor, and can be *asked for* without being taken, so that asking never makes a launcher lose.
It has two bytes. Taking both at once means "starting"; the second is given back when the record is written. That is
why a reader never has to guess whether a record is of this holder or of the one before.

Two consequences to know. A child that the command forks without closing descriptors holds the lock too: the instance
counts as held until that child is gone, be the command dead or not (a "remnant", see `locks`). And a command that
closes descriptors it doesn't know, as some daemons do, gives its lock up: wrap such a command.
"""

import errno
import fcntl
import json
import os
import signal
import stat
import struct
import sys
import zlib
from contextlib import suppress

CANNOT_CREATE = 73
"""Exit code: the lock or log file can't be opened or written. Nothing was executed."""
LOCK_TAKEN = 75
"""Exit code: somebody else holds the instance's lock. Nothing was executed."""
NOBODY_ASKS = 76
"""Exit code: the engine that gave the order is gone. Nothing was executed."""
CANNOT_EXECUTE = 126
"""Exit code: the command is there but can't be executed."""
NOT_FOUND = 127
"""Exit code: there is no such command."""

READY = b"ready\n"
"""The report of a launcher that has the lock, has told who it is, and executes the command next."""

# `struct flock` of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def take(path: str) -> int | None:
    """
    Open and lock a lock file: its descriptor, or None when somebody else has the lock.

    Whoever asks is told "starting" until `tell`.
    """
    while True:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 2, 0))
            # Who clears away old lock files holds the lock while it does. A launcher that opened the file
            # before must not go on with a lock on a file that nobody else can find.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)


def open_own(path: str, flags: int) -> int:
    """Open a regular file of this user's that has no other name, or create it; links are not followed.

    Whatever else stands at the path may have been planted there, so that we write to it.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(descriptor)
    # A link count of 0 is a file that was removed just now: the caller looks whether it still stands at its path.
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink < 2:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EEXIST, "not a file of this user's alone", path)


def tell(descriptor: int, record: bytes) -> None:
    """Write who holds the lock, then end "starting"."""
    if os.pwrite(descriptor, record, 0) != len(record):
        raise OSError("the record was written in part only: is the disk full?")
    os.ftruncate(descriptor, len(record))
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 1, 1, 0))


def ask(descriptor: int) -> str:
    """Whether a lock file is "free", or its holder "starting" or "told", without taking any lock."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 2, 0)
    kind, _, _, length, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question))
    if kind == fcntl.F_UNLCK:
        return "free"
    return "starting" if length == 2 else "told"


def seal(fields: dict[str, object]) -> bytes:
    """One line of JSON behind its checksum: a reader that gets half of it, or halves of two, can tell."""
    line = json.dumps(fields).encode()
    return b"%08x %s\n" % (zlib.crc32(line), line)


def start_time(pid: int | str) -> int:
    """When a process started, in clock ticks since boot: field 22 of its stat. Fields count from the last bracket."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])


def boot_id() -> str:
    """The id of this boot: pids and start times of another one mean nothing."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _hold(folder: str, uid: str, command: list[str], port: int) -> int | None:
    descriptor = take(f"{folder}/{uid}.lock")
    if descriptor is not None:
        pid = os.getpid()
        who = {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}
        tell(descriptor, seal(who | {"port": port, "command": command}))
        # Not before: what `take` throws away must not outlive it.
        os.set_inheritable(descriptor, True)
    return descriptor


def _arrange_descriptors(folder: str, uid: str, keep: tuple[int, int]) -> None:
    log = open_own(f"{folder}/{uid}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    first, second = sorted(keep)
    os.closerange(3, first)
    os.closerange(first + 1, second)
    os.closerange(second + 1, os.sysconf("SC_OPEN_MAX"))


def _restore_signals() -> None:
    """Undo what Python, or the engine that started us, has set: ignored and blocked signals are kept over `exec`."""
    for number in signal.valid_signals():
        with suppress(OSError):  # SIGKILL and SIGSTOP can't be set
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _say(report: int, text: bytes) -> None:
    with suppress(OSError):  # the engine that asked is gone
        os.write(report, text)


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    folder, uid, command = order["folder"], order["uid"], order["command"]
    if os.getsid(0) != os.getpid():
        os.setsid()
    report = os.dup(1)  # closed by `exec`: that is how the spawner hears of it
    try:
        lock = _hold(folder, uid, command, order["port"])
        if lock is None:
            _say(report, b"somebody else holds the lock\n")
            os._exit(LOCK_TAKEN)
        _arrange_descriptors(folder, uid, (report, lock))
    except OSError as error:
        _say(report, f"cannot prepare {folder}/{uid}: {error}\n".encode())
        os._exit(CANNOT_CREATE)
    try:
        # With the lock held. An engine that is there to be told was there when we got the lock, so the next one finds
        # us by it. Had we gone on without: the next one may have looked already, and given the instance up.
        os.write(report, READY)
    except BrokenPipeError:
        os._exit(NOBODY_ASKS)
    _restore_signals()
    try:
        os.execvpe(command[0], command, order["environment"])
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        text = f"cannot run {command[0]!r}: {why}\n".encode(errors="backslashreplace")
        _say(report, text)
        _say(2, text)
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)


if __name__ == "__main__":
    main()
