"""A server that runs as a process of the tests, which they start, stop, kill and freeze."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import trio

START = 30.0

_STARTER = ThreadPoolExecutor(1, "starter")
"""The thread that starts all processes and lasts as long as the tests. Trio's own threads end after some seconds."""


class ServerProcess(ABC):
    """A server and its process while it runs.

    Attributes:
        name: its name in errors.
        log: its standard error, over all its starts.
    """

    name: str
    log: Path
    _process: subprocess.Popen[bytes] | None = None
    _command: list[str]

    def _set_command(self, command: list[str]) -> None:
        setpriv = shutil.which("setpriv")
        # The process ends with the tests, however they end: with the thread that has started it, as Linux counts.
        self._command = [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else command

    @property
    def running(self) -> bool:
        """True if its process exists, stopped or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> int:
        """The id of its process."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self) -> None:
        """Start its process with its present data."""
        assert not self.running, f"{self.name} is already running"
        with self.log.open("ab") as log:
            self._process = _STARTER.submit(
                lambda: subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            ).result()

    def kill(self) -> None:
        """End its process as `kill -9` does, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START)

    def terminate(self) -> None:
        """Ask its process to end, by SIGTERM. It may serve for some time before it does."""
        self._signal(signal.SIGTERM)

    def pause(self) -> None:
        """Stop its process with SIGSTOP, and wait until all of its threads have stopped."""
        self._signal(signal.SIGSTOP)
        # `kill` returns before the signal is delivered. Until the last thread has stopped, the others still answer.
        os.waitid(os.P_PID, self.process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let its process continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.process, number)

    @abstractmethod
    def healthy(self, timeout: float = 1.0) -> bool:
        """Return True if it can serve. Block for up to ``timeout`` seconds."""

    def wait_healthy(self, seconds: float = START) -> None:
        """Wait until it can serve. Raise RuntimeError with the end of its log if it ends or time is up."""
        deadline = time.monotonic() + seconds
        while not self._looks_healthy(deadline - time.monotonic()):
            time.sleep(0.02)

    async def until_healthy(self, seconds: float = START) -> None:
        """Wait like `wait_healthy`, but without blocking, because it may need another server that is to be started."""
        await trio.to_thread.run_sync(self.wait_healthy, seconds, abandon_on_cancel=True)

    def _looks_healthy(self, left: float) -> bool:
        if self.healthy():
            return True
        if self.running and left > 0:
            return False
        raise RuntimeError(f"{self.name} does not serve; its log ends: {self.log.read_bytes()[-2000:].decode()}")
