"""Helpers for the tests of the fleet's processes: a folder of instances, other engines, and locks held by a test."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import trio

from examples.fleet import launcher, locks
from examples.fleet.processes import Process, find, spawn, stop

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PATH": os.environ["PATH"]}
SLEEP = ("sleep", "1000")
PATIENCE = 40.0
"""The seconds after which a condition that should hold within milliseconds counts as never met."""

ENGINE = """
import sys, trio
from examples.fleet.processes import AlreadyRuns, spawn

async def main(folder, uid, *command):
    try:
        process = await spawn(folder, uid, command, {"PATH": "/usr/bin:/bin"}, 7)
        print("started", process.pid, flush=True)
    except AlreadyRuns as error:
        print("refused", error.process.pid, flush=True)
    await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


class Fleet:
    """A folder of instances, a fifo to which their commands can write, and engines in other processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.fifo = folder / "fifo"
        os.mkfifo(self.fifo)
        # Opened for reading and writing, so that neither side waits for the other.
        self._fifo_reader = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pythons: list[subprocess.Popen[bytes]] = []
        self._earlier_children = children_of_this_process()

    async def spawn(self, uid: str = "one", command: tuple[str, ...] = SLEEP, port: int = 0) -> Process:
        return await spawn(self.folder, uid, command, ENVIRONMENT, port)

    async def spawn_script(self, text: str, uid: str = "one") -> Process:
        """Spawn a shell that runs `text`. `read_fifo` returns what it writes to $FIFO."""
        return await spawn(self.folder, uid, ("sh", "-c", text), ENVIRONMENT | {"FIFO": str(self.fifo)}, 0)

    async def read_fifo(self) -> str:
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(self._fifo_reader)
        return os.read(self._fifo_reader, 4096).decode().strip()

    def start_engine(self, uid: str, *command: str) -> subprocess.Popen[bytes]:
        """Start another engine, which spawns `uid` and then waits to be killed."""
        return self.start_python(ENGINE, str(self.folder), uid, *command)

    def start_python(self, text: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start another Python process. It is killed at the end of the test."""
        python = subprocess.Popen([sys.executable, "-c", text, *arguments], cwd=ROOT, stdout=subprocess.PIPE)
        self._pythons.append(python)
        return python

    def has_children(self) -> bool:
        """Return True if this process has a child from this test that is not reaped."""
        return bool(children_of_this_process() - self._earlier_children)

    async def close(self) -> None:
        with trio.CancelScope(shield=True):
            for python in self._pythons:
                python.kill()
                python.communicate()
            for process in (await find(self.folder)).values():
                if process.pid != os.getpid():
                    await stop(process, grace=0)
            os.close(self._fifo_reader)
            assert await find(self.folder) == {}


async def line_of(engine: subprocess.Popen[bytes]) -> list[str]:
    assert engine.stdout is not None
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(engine.stdout)
    return engine.stdout.readline().decode().split()


async def wait_ended(pid: int) -> None:
    """Wait until a process that need not be our child has ended. Return at once if it does not exist."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def kill(process: Process) -> None:
    """Kill a process with SIGKILL, and block until it has ended. Do not reap it, and do not let other tasks run."""
    with locks.pinned(process) as pidfd:
        assert pidfd is not None
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], PATIENCE)


def children_of_this_process() -> set[int]:
    """Return the pids of this process's children, running or zombies."""
    lists = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for text in lists for pid in text.split()}


def this_process(fleet: Fleet, uid: str) -> Process:
    pid = os.getpid()
    return Process(uid, pid, launcher.start_time(pid), launcher.boot_id(), 7, ("test",), fleet.folder)


def record_of(process: Process) -> bytes:
    fields = ("pid", "start_time", "boot_id", "port", "command")
    return launcher.seal({name: getattr(process, name) for name in fields})


def take_lock(fleet: Fleet, uid: str) -> int:
    """Hold a lock in this process, as a launcher does before it has written its record."""
    fleet.folder.mkdir(mode=0o700, exist_ok=True)
    lock = launcher.take(str(locks.lock_path(fleet.folder, uid)))
    assert lock is not None
    return lock
