"""A server of the tests' app, in a process of its own, and a way to run commands against it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADWAY = [sys.executable, "-W", "error", "-m", "headway.cli"]
CORE = """\
type: staff.v1.Team
name: core
data:
  members:
  - login: ada
    rank: SENIOR
  - login: grace
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Start a command; what still runs when the test ends is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, server: str = "127.0.0.1:1") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*HEADWAY, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "HEADWAY_SERVER": server, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def server(start: Started) -> str:
    """The address of a server of both apps."""
    return address_of(start("serve", "tests.cli.served:apps", "--listen", "127.0.0.1:0"))


@pytest.fixture
def headway(start: Started, server: str) -> Command:
    """Run a command against the server to its end."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        process = start(*arguments, server=server)
        out, errors = process.communicate(stdin, timeout=30)
        return subprocess.CompletedProcess(arguments, process.returncode, out, errors)

    return run


def address_of(process: subprocess.Popen[str]) -> str:
    """The address that a server prints once it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), line + (process.stderr.read() if process.stderr else "")
    return line.removeprefix("listening on ").strip()


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What Ctrl-C does: the exit code, and what was still to be read."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    return process.returncode, out, errors
