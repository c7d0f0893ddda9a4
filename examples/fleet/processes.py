"""
Start, find, wait for and stop the processes of a fleet, so that none runs twice and none is lost.

This file knows processes and nothing of Headway. What lives is read from the lock files (`locks`), so it does not
matter which engine started a process: after a `kill -9` of the engine the next one finds all of them and goes on.
A process is in a session of its own; its pid is the id of its session and of its process group.

The engine must reap its own children: `wait_exit` and `stop` do, and `find` does it for those nobody waits for.
"""

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import trio

from examples.fleet import children, launcher, locks
from examples.fleet.locks import Process, State

__all__ = [
    "AlreadyRuns",
    "Process",
    "SpawnFailed",
    "State",
    "find",
    "forget",
    "last_lines",
    "spawn",
    "stop",
    "wait_exit",
]

START_LIMIT = 10.0
"""Seconds that a launcher may take to reach its command, before it is killed."""
_LOOK_AGAIN = 0.005
"""Seconds between two looks at a lock: the kernel tells nobody when a lock is released."""


class AlreadyRuns(Exception):
    """
    Nothing was started: somebody holds the instance's lock. Adopt `process`, or stop it if it is a remnant.

    Another engine, or a call of `spawn` at the same time, can have started it in this moment.
    """

    def __init__(self, process: Process) -> None:
        super().__init__(f"{process.uid} is held by process {process.pid} ({process.state.value})")
        self.process = process


class SpawnFailed(Exception):
    """The command was not executed, and nothing lives. `reason` says why, `log` has the last lines of the log file."""

    def __init__(self, uid: str, reason: str, log: Sequence[str] = ()) -> None:
        super().__init__(f"{uid}: {reason}")
        self.uid = uid
        self.reason = reason
        self.log = log


async def find(folder: str | Path, timeout: float = 1.0, uids: Iterable[str] | None = None) -> dict[str, Process]:
    """
    What lives in a folder, by uid: running processes, remnants, and those still starting after `timeout` seconds.

    With `uids` only these are looked for.

    No lock is taken, so a launcher that starts at this moment isn't disturbed. Cancelled: nothing has changed.
    """
    children.reap_unheard()
    folder = _resolve(folder)
    if uids is None:
        uids = [path.stem for path in folder.glob("*.lock") if locks.is_uid(path.stem)]
    return await _look(folder, uids, timeout)


def _resolve(folder: str | Path) -> Path:
    """Absolute and without links, as the kernel shows it to those who look for a lock's holders."""
    return Path(folder).resolve()


async def _look(folder: Path, uids: Iterable[str], timeout: float) -> dict[str, Process]:
    """Read the locks, and again those that say "starting", until none does or `timeout` seconds are over."""
    found: dict[str, Process] = {}
    deadline = trio.current_time() + timeout
    while True:
        await trio.lowlevel.checkpoint()
        for uid in uids:
            found.pop(uid, None)
            process = locks.read(folder, uid)
            if process is not None:
                found[uid] = process
        uids = [uid for uid, process in found.items() if process.state is State.STARTING]
        if not uids:
            return found
        if trio.current_time() >= deadline:
            return found | {uid: locks.with_holder(found[uid]) for uid in uids}
        await trio.sleep(_LOOK_AGAIN)


async def spawn(
    folder: str | Path, uid: str, command: Sequence[str], environment: Mapping[str, str], port: int
) -> Process:
    """
    Start an instance's command, and return when it has its lock and is being executed.

    However many call this at once, in however many engines: one gets the process, the others AlreadyRuns.
    `environment` is all that the command gets: with no PATH in it, the command is looked for in the system's default.
    `port` is only recorded. A command that ends at once was started all the same: see `wait_exit`.

    Cancelled: what this call has started is killed and reaped, and nothing lives. Should the engine be killed instead,
    there is nothing, or a process that `find` finds as soon as it has the lock.

    Raises:
        AlreadyRuns: the lock is held.
        SpawnFailed: the command isn't there or can't be executed, or the folder can't be used.
    """
    folder = _resolve(folder)
    locks.lock_path(folder, uid)  # refuses a bad uid
    if not command:
        raise SpawnFailed(uid, "the command is empty")
    _make(folder, uid)
    order = {"folder": str(folder), "uid": uid, "command": list(command), "port": port}
    order_bytes = json.dumps(order | {"environment": dict(environment)}).encode()
    deadline = trio.current_time() + START_LIMIT
    while trio.current_time() < deadline:
        held = await _look(folder, [uid], timeout=1.0)
        if held:
            raise AlreadyRuns(held[uid])
        try:
            pid = await children.launch(order_bytes, START_LIMIT)
        except children.LaunchError as error:
            if error.status == launcher.LOCK_TAKEN:
                continue  # by one that the next look shows, or that is gone by then
            raise SpawnFailed(uid, str(error), last_lines(folder, uid)) from error
        # No checkpoint from here on: a process that has started is returned. It is not reaped, so /proc has it.
        return Process(uid, pid, launcher.start_time(pid), launcher.boot_id(), port, tuple(command), folder)
    raise SpawnFailed(uid, "the lock is taken again and again, by nobody who stays", last_lines(folder, uid))


def _make(folder: Path, uid: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SpawnFailed(uid, f"cannot make the folder: {error}") from error


async def wait_exit(process: Process) -> int | None:
    """
    Return when the process has ended, at once if it already has or if its pid is another's by now.

    Returns its exit status, negative for a signal, if this engine started it and nobody has asked before. The status of
    an adopted process is told to init alone: None. For a remnant this returns at once, because its process is dead.
    Cancelled: the process goes on, and whoever asks next is told the same.
    """
    with locks.pinned(process) as pidfd:
        if pidfd is None:
            await trio.lowlevel.checkpoint()
            return None
        return await children.wait(process.pid, pidfd)


async def stop(process: Process, grace: float) -> None:
    """
    End a process and all of its group, and return when its lock is free: SIGTERM, and after `grace` seconds SIGKILL.

    Of a remnant, and of what has left the group, whatever holds the lock is ended too. What is left of the group when
    the lock is free gets SIGKILL at once. Not touched are a later run of the instance, and whoever has the pid by now.
    Cancelled: the signals that were sent stay sent; a second call goes on.
    """
    with locks.pinned(process) as leader:
        if leader is not None and not locks.has_ended(leader):
            locks.signal_group(leader, process, signal.SIGTERM)
        else:
            locks.signal_holders(process, signal.SIGTERM)
        with trio.move_on_after(grace):
            await _released(process, leader)
        while True:
            if leader is not None:
                locks.signal_group(leader, process, signal.SIGKILL)
            if not locks.is_held_by(process):
                break
            locks.signal_holders(process, signal.SIGKILL)
            # Again and again: one that forks can slip through between the look and the signal.
            with trio.move_on_after(0.1):
                await _released(process, leader)
        if leader is not None:
            await trio.lowlevel.wait_readable(leader)
    children.reap_unheard()


async def _released(process: Process, leader: int | None) -> None:
    if leader is not None:
        await trio.lowlevel.wait_readable(leader)
    pause = 0.0
    while True:
        await trio.sleep(pause)
        if not locks.is_held_by(process):
            return
        pause = _LOOK_AGAIN


def forget(folder: str | Path, uid: str) -> bool:
    """Remove the lock and log files of an instance that won't come back; False, and nothing happens, if it lives."""
    folder = _resolve(folder)
    lock = launcher.take(str(locks.lock_path(folder, uid)))
    if lock is None:
        return False
    try:
        locks.log_path(folder, uid).unlink(missing_ok=True)
        # With the lock held: a launcher that has the file open, and locks it next, sees that it is gone.
        locks.lock_path(folder, uid).unlink()
    finally:
        os.close(lock)
    return True


def last_lines(folder: str | Path, uid: str, count: int = 5) -> list[str]:
    """The last lines that an instance has written, of all its runs, from at most 4 KiB; none if there is no log."""
    try:
        with open(locks.log_path(Path(folder), uid), "rb", opener=_without_links) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            return log.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def _without_links(path: str, flags: int) -> int:
    # A link could lead to what only this process may read.
    return os.open(path, flags | os.O_NOFOLLOW)
