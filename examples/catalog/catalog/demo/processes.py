"""Processes that are started, killed and started again. Their output is in files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import trio

_LOOK = 0.02


class Process:
    """One process, under one name.

    Args:
        name: the name, and that of its log.
        folder: the folder of the log.
        ready: the beginning of the line that it prints when it is ready.
        command: the arguments of the program.
        program: the program, Python unless given.
    """

    def __init__(self, name: str, folder: Path, ready: str, *command: str, program: str = sys.executable) -> None:
        self.name = name
        self.command = command
        self._program = program
        self._log = folder / f"{name}.log"
        self._ready = ready
        self._process: trio.Process | None = None

    @property
    def running(self) -> bool:
        """True from `start` until it has ended."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> str:
        """Start the process, and wait until it is ready. Return the rest of the line after ``ready``.

        Raises:
            RuntimeError: it has ended before. The error has its last lines.
        """
        begin = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            command = (self._program, *self.command)
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env={**os.environ}
            )
        self._process = process
        while True:
            said = self._log.read_bytes()[begin:].decode(errors="replace")
            for line in said.splitlines(keepends=True):
                if line.startswith(self._ready) and line.endswith("\n"):
                    return line.removeprefix(self._ready).strip()
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} has ended with status {process.returncode}: {said[-2_000:]}")
            await trio.sleep(_LOOK)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        """Kill it with -9, and wait until it has ended."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not do so within 5 seconds."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(5):
                await self._end(signal.SIGTERM)
                return
            await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with trio.CancelScope(shield=number == signal.SIGKILL):
                self._process.send_signal(number)
                await self._process.wait()
