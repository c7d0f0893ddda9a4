"""
Start launchers, and reap what this engine has started.

A child stays a zombie until its parent has asked how it ended. The engine is the parent of those it has started, and of
those alone: what it has adopted is reaped by init.
"""

import os
import signal
import sys

import trio

from examples.fleet import launcher

_unheard: set[int] = set()
# Invariant: the pids of children of this process that are not reaped and that nobody waits for. A pid in here can't be
# another process's, because it is not reaped.


class LaunchError(Exception):
    """
    The command was not executed, and the launcher is gone.

    `status` is the launcher's exit status (negative: a signal), None if it had to be killed because it took too long.
    """

    def __init__(self, status: int | None, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def launch(order: bytes, timeout: float) -> int:
    """
    The pid of a new child that has its lock and executes its command; it may take `timeout` seconds to get there.

    Cancelled: the child is killed with its group and reaped. When this returns, no cancellation is lost on the way out:
    there is no checkpoint after the child is known to have started.
    """
    pid, report = _start_launcher(order)
    said, status = b"", None
    deadline = trio.current_time() + timeout
    try:
        with trio.move_on_at(deadline):
            said = await _read_to_end(report)
        if said == launcher.READY:
            _unheard.add(pid)
            return pid
        with trio.move_on_at(deadline):
            status = await _end_of(pid)
    finally:
        os.close(report)
        if pid not in _unheard and status is None:
            await _kill(pid)
    if status is None:
        raise LaunchError(None, f"the launcher did not reach the command within {timeout:g} s")
    reason = said.removeprefix(launcher.READY).decode(errors="replace").strip()
    raise LaunchError(status, reason or f"the launcher ended with status {status}")


def _start_launcher(order: bytes) -> tuple[int, int]:
    """Its pid and the reading end of its report. Not by a Popen: that one wants to be kept until the process ends."""
    stdin = os.memfd_create("order")
    report, writer = os.pipe()
    try:
        os.write(stdin, order)
        os.lseek(stdin, 0, os.SEEK_SET)
        # The command's environment is in the order. As the launcher's own, Python would read it, and may change it.
        arguments = [sys.executable, "-I", "-S", launcher.__file__]
        actions = [(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in ((stdin, 0), (writer, 1), (writer, 2))]
        # In a session of its own from the first moment on, so that its group can be killed at any.
        pid = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions, setsid=True)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(stdin)
        os.close(writer)
    return pid, report


async def _read_to_end(descriptor: int) -> bytes:
    text = b""
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        part = os.read(descriptor, 65536)
        if not part:
            return text
        text += part


async def _end_of(pid: int) -> int | None:
    pidfd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(pidfd)
        return _reap(pidfd)
    finally:
        os.close(pidfd)


async def _kill(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)  # not reaped, so the pid is still its own
    with trio.CancelScope(shield=True):  # SIGKILL can't be refused: this takes milliseconds
        await _end_of(pid)


async def wait(pid: int, pidfd: int) -> int | None:
    """
    Wait until a process ends, and reap it if it is our child: its exit status then, negative for a signal, else None.

    Cancelled: it is left to the next who waits, or to `reap_unheard`.
    """
    is_unheard = pid in _unheard
    _unheard.discard(pid)
    try:
        await trio.lowlevel.wait_readable(pidfd)
    except BaseException:
        if is_unheard:
            _unheard.add(pid)
        raise
    return _reap(pidfd)


def _reap(pidfd: int) -> int | None:
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # another's child, or reaped already
        return None
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def reap_unheard() -> None:
    """Reap every child that has ended and that nobody waits for."""
    for pid in list(_unheard):
        try:
            has_ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
        except ChildProcessError:  # two have waited for it: one was cancelled, the other has reaped it
            has_ended = True
        if has_ended:
            _unheard.discard(pid)
