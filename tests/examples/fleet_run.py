"""`python -m examples.fleet` as a user runs it: a real process, its output line by line, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.examples import fleet_program
from tests.examples.fleet_kit import ROOT
from tests.examples.fleet_observer import MARK

PATIENCE = 50.0
STARTS = "starts"


class FleetRun:
    """A running fleet, and the lines of its output so far, on stdout and stderr."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = trio.Condition()
        self.ended = False

    async def line(self, *words: str, after: int = 0) -> int:
        """Wait for a line with all of these words at or after a position. Return the position behind that line."""
        with trio.fail_after(PATIENCE):
            async with self._changed:
                while True:
                    for position in range(after, len(self.lines)):
                        if all(word in self.lines[position] for word in words):
                            return position + 1
                    assert not self.ended, f"the process has ended without a line with {words}: {self.lines}"
                    await self._changed.wait()

    async def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, if one is given, and wait for the end. Return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        with trio.fail_after(PATIENCE):
            async with self._changed:
                while not self.ended:
                    await self._changed.wait()
            return await self.process.wait()

    @property
    def text(self) -> str:
        """The complete output so far."""
        return "\n".join(self.lines)

    async def read(self) -> None:
        """Read the output until the end of the process."""
        rest = b""
        assert self.process.stdout is not None
        async for part in self.process.stdout:
            *lines, rest = (rest + part).split(b"\n")
            async with self._changed:
                self.lines += [line.decode() for line in lines]
                self._changed.notify_all()
        async with self._changed:
            self.ended = True
            self._changed.notify_all()


class Folder:
    """A fleet's folder and manifest."""

    def __init__(self, path: Path) -> None:
        # Ports are chosen by name, and other runs of the tests on this machine should have other ports.
        self.path = path / f"fleet-{os.getpid()}"
        self.path.mkdir()
        self.starts = self.path / STARTS
        self.manifest = path / "fleet.yaml"

    def name(self, app: str) -> str:
        """Return the name of an app in the store."""
        return f"{app}-{os.getpid()}"

    def web(self) -> list[str]:
        """Return the command of a healthy program, which sends its pid to every connection."""
        return [sys.executable, "-I", "-S", str(Path(fleet_program.__file__)), str(self.starts)]

    def declare(self, replicas: int = 1, **commands: list[str]) -> None:
        """Write a manifest that declares each app with its command."""
        documents = [
            {
                "type": "fleet.v1.App",
                "name": self.name(app),
                "data": {"command": command, "replicas": replicas, "environment": {MARK: str(self.path)}},
            }
            for app, command in commands.items()
        ]
        self.manifest.write_text("\n---\n".join(json.dumps(document) for document in documents))  # JSON is YAML

    @asynccontextmanager
    async def run(self, *arguments: str) -> AsyncIterator[FleetRun]:
        """Run the fleet. Kill its engine at the end of the block, unless it has ended."""
        options = ["--folder", str(self.path), "--manifest", str(self.manifest), *arguments]
        start = partial(
            trio.run_process,
            [sys.executable, "-m", "examples.fleet", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        async with trio.open_nursery() as nursery:
            run = FleetRun(await nursery.start(start))
            nursery.start_soon(run.read)
            try:
                yield run
            finally:
                run.process.kill()
