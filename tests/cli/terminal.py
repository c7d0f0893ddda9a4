"""Run commands inside the test: in its process and its Trio loop, each with its own streams.

Click parses the arguments and calls the command, as in a process. Only the async function of the command is run here by
the test. Signals, pipes and the exit code of the process have tests with real processes.
"""

from __future__ import annotations

import io
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import click
import pytest
import trio

from headway.cli import _running, main

_PATIENCE = 20


class Stream(io.TextIOBase):
    """The output of a command. A test can wait for its next line."""

    def __init__(self) -> None:
        self._text = ""
        self._read = 0
        self._changed = trio.Event()

    def write(self, text: str) -> int:
        self._text += text
        self._changed.set()
        self._changed = trio.Event()
        return len(text)

    def __str__(self) -> str:
        return self._text

    async def line(self) -> str:
        """Wait for the next line and return it."""
        with trio.fail_after(_PATIENCE):
            while (end := self._text.find("\n", self._read) + 1) == 0:
                await self._changed.wait()
        line, self._read = self._text[self._read : end], end
        return line


@dataclass
class Command:
    """A command that is running or has ended."""

    arguments: tuple[str, ...]
    stdin: str = ""
    returncode: int | None = None
    out: Stream = field(default_factory=Stream)
    errors: Stream = field(default_factory=Stream)
    calls: list[Any] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def stdout(self) -> str:
        """The output on stdout so far."""
        return str(self.out)

    @property
    def stderr(self) -> str:
        """The output on stderr so far."""
        return str(self.errors)

    async def run(self) -> None:
        """Run the command to its end."""
        _RUNNING.set(self)
        try:
            with self.scope:
                self.returncode = await self._code()
        finally:
            self.ended.set()

    async def wait(self) -> int | None:
        """Wait for the end of the command and return its exit code."""
        with trio.fail_after(_PATIENCE):
            await self.ended.wait()
        return self.returncode

    async def _code(self) -> int:
        try:
            # Click does the same as in a process, up to the call of the function, and reports its own errors.
            main(self.arguments, prog_name="headway")
        except SystemExit as end:
            if end.code or not self.calls:
                return int(end.code or 0)
        [call] = self.calls
        try:
            with _running.ending():
                await call()
        except SystemExit as end:
            return int(end.code or 0)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        return 0


_RUNNING: ContextVar[Command] = ContextVar("running")


class _Switch(io.TextIOBase):
    """A replacement of sys.stdout, sys.stderr or sys.stdin that uses the stream of the running command."""

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        running = _RUNNING.get(None)
        if running is None:
            # The thread of the loop's watchdog belongs to no command. On a busy machine it may have something to say.
            return len(text)
        stream: Stream = getattr(running, self._name)
        return stream.write(text)

    @property
    def buffer(self) -> io.BytesIO:
        return io.BytesIO(_RUNNING.get().stdin.encode(errors="surrogateescape"))


class Terminal:
    """A terminal that runs commands against a server."""

    def __init__(self, server: str, nursery: trio.Nursery) -> None:
        self._server = server
        self.nursery = nursery

    async def __call__(self, *arguments: str, stdin: str = "", server: str = "") -> Command:
        """Run a command to its end."""
        command = self.start(*arguments, stdin=stdin, server=server)
        await command.wait()
        return command

    def start(self, *arguments: str, stdin: str = "", server: str = "") -> Command:
        """Start a command, which runs until it ends or the test ends."""
        command = Command(("--server", server or self._server, *arguments), stdin)
        self.nursery.start_soon(command.run)
        return command


def take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `Command` run the functions of commands, and replace the standard streams."""

    def note(function: Any, _: float | None) -> bool:
        _RUNNING.get().calls.append(function)
        return False

    monkeypatch.setattr(_running, "start", note)
    for name, stream in (("stdout", "out"), ("stderr", "errors"), ("stdin", "in")):
        monkeypatch.setattr(sys, name, _Switch(stream))
    # `serve` adds the working directory.
    monkeypatch.setattr(sys, "path", list(sys.path))


async def address(serving: Command) -> str:
    """Return the address that a server prints when it listens."""
    line = await serving.out.line()
    assert line.startswith("listening on "), line + serving.stderr
    return line.removeprefix("listening on ").strip()
