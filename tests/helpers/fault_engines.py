"""The engine processes of the fault tests: start, kill, stop, and follow their progress."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from headway.testing import History

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class EngineProcess:
    """A process that runs `fault_program` and can be restarted. Each life has its own file of facts.

    Attributes:
        life: the number of lives so far.
    """

    def __init__(self, name: str, store: str, folder: Path, seed: int) -> None:
        self.name = name
        self.life = 0
        self._store = store
        self._folder = folder
        self._seed = seed
        self._process: trio.Process | None = None
        self._lines: list[str] = []
        self._changed = trio.Event()

    @property
    def log(self) -> Path:
        """The file with its standard error, over all its lives."""
        return self._folder / f"{self.name}.log"

    async def start(self, nursery: trio.Nursery) -> None:
        """Start its next life."""
        self.life += 1
        who = f"{self.name}#{self.life}"
        command = [sys.executable, "-m", "tests.helpers.fault_program", self._store, self.name, who]
        command += [str(self._folder / f"{who}.facts"), str(self._seed + self.life)]
        with self.log.open("ab") as log:
            run = partial(trio.run_process, command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._process = await nursery.start(partial(run, stderr=log, check=False))
        self._lines = []
        nursery.start_soon(self._listen, self._process)

    async def _listen(self, process: trio.Process) -> None:
        rest = b""
        assert process.stdout is not None
        async for part in process.stdout:
            *lines, rest = (rest + part).split(b"\n")
            self._lines += [line.decode() for line in lines]
            self._wake()
        self._lines.append("ended")
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_line(self, text: str) -> str:
        """Wait for the next line with this prefix, and return the rest of it.

        Raises RuntimeError with the end of its log if the process ends or time is up.
        """
        with trio.move_on_after(PATIENCE):
            while True:
                for number, line in enumerate(self._lines):
                    if line.startswith(text):
                        del self._lines[: number + 1]
                        return line.removeprefix(text).strip()
                if "ended" in self._lines:
                    break
                await self._changed.wait()
        raise RuntimeError(f"{self.name} has not printed {text!r} but {self._lines}; {self.log.read_text()[-3000:]}")

    async def send(self, text: str) -> None:
        """Send it a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{text}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """End it regularly, and wait for its exit."""
        await self.send("end")
        await self.wait_line("ended")

    def read_into(self, history: History) -> None:
        """Add the facts of all its lives to a history."""
        for life in range(1, self.life + 1):
            path = self._folder / f"{self.name}#{life}.facts"
            if path.exists():
                with path.open() as lines:
                    history.read(lines)
