"""Run commands inside the test: in its process and its Trio loop, each with streams of its own.

A command is what click makes of the arguments and an async function; only who runs that function is another one here
than in a process. What is a process's own (signals, pipes, the exit code itself) has tests with real ones.
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
    """What a command writes; lines can be waited for."""

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
        """The next line."""
        with trio.fail_after(_PATIENCE):
            while (end := self._text.find("\n", self._read) + 1) == 0:
                await self._changed.wait()
        line, self._read = self._text[self._read : end], end
        return line


@dataclass
class Command:
    """A command that runs, or has run."""

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
        """All that it has said so far."""
        return str(self.out)

    @property
    def stderr(self) -> str:
        """All that it has complained of so far."""
        return str(self.errors)

    async def run(self) -> None:
        """Run it to its end."""
        _RUNNING.set(self)
        try:
            with self.scope:
                self.returncode = await self._code()
        finally:
            self.ended.set()

    async def wait(self) -> int | None:
        """Its exit code."""
        with trio.fail_after(_PATIENCE):
            await self.ended.wait()
        return self.returncode

    async def _code(self) -> int:
        try:
            # All that click does before the function is run, and with its errors, as in a process.
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
    """Stands for sys.stdout and the like, and is the stream of whichever command runs."""

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        stream: Stream = getattr(_RUNNING.get(), self._name)
        return stream.write(text)

    @property
    def buffer(self) -> io.BytesIO:
        return io.BytesIO(_RUNNING.get().stdin.encode(errors="surrogateescape"))


class Terminal:
    """Runs commands against a server."""

    def __init__(self, server: str, nursery: trio.Nursery) -> None:
        self._server = server
        self.nursery = nursery

    async def __call__(self, *arguments: str, stdin: str = "", server: str = "") -> Command:
        """Run a command to its end."""
        command = self.start(*arguments, stdin=stdin, server=server)
        await command.wait()
        return command

    def start(self, *arguments: str, stdin: str = "", server: str = "") -> Command:
        """Start a command, which goes on until the test ends."""
        command = Command(("--server", server or self._server, *arguments), stdin)
        self.nursery.start_soon(command.run)
        return command


def take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the functions of commands run by `Command`."""

    def note(function: Any, _: float | None) -> bool:
        _RUNNING.get().calls.append(function)
        return False

    monkeypatch.setattr(_running, "start", note)
    for name, stream in (("stdout", "out"), ("stderr", "errors"), ("stdin", "in")):
        monkeypatch.setattr(sys, name, _Switch(stream))
    # `serve` adds the working directory.
    monkeypatch.setattr(sys, "path", list(sys.path))


async def address(serving: Command) -> str:
    """The address that a server prints once it listens."""
    line = await serving.out.line()
    assert line.startswith("listening on "), line + serving.stderr
    return line.removeprefix("listening on ").strip()
