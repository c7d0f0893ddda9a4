"""A server of the tests' apps, and ways to run commands against it: in the test's process, and as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from headway.engine import Network, open_engine
from tests.cli.served import apps
from tests.cli.terminal import Terminal, take_over

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

Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Return the address of a server of both apps, which runs in the test's loop."""
    async with open_engine("memory:", *apps, network=Network(["127.0.0.1:0"], insecure=True)) as engine:
        yield engine.addresses[0]


@pytest.fixture
async def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nursery: trio.Nursery) -> Terminal:
    """Return a terminal in a temporary directory, which runs commands in the test's loop, without a server."""
    monkeypatch.chdir(tmp_path)
    take_over(monkeypatch)
    return Terminal("127.0.0.1:1", nursery)


@pytest.fixture
async def headway(terminal: Terminal, server: str) -> Terminal:
    """Return a terminal that runs commands against the server."""
    return Terminal(server, terminal.nursery)


@contextmanager
def starting(folder: Path) -> Iterator[Started]:
    """Yield a function that starts a command as a process. Running processes are killed when the block ends."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, server: str = "127.0.0.1:1") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*HEADWAY, *arguments],
            cwd=folder,
            # The code of this checkout, wherever the one that is installed comes from.
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "engine"))),
                "HEADWAY_SERVER": server,
                "PYTHONUNBUFFERED": "1",
            },
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
def start(tmp_path: Path) -> Iterator[Started]:
    """Return a function that starts a command as a process in a temporary directory."""
    with starting(tmp_path) as begin:
        yield begin


def address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that a server prints when it listens."""
    return announced(process, "listening on ")


def announced(process: subprocess.Popen[str], beginning: str) -> str:
    """Return the rest of the next line that begins so. On a busy machine, lines of the log may come before it."""
    assert process.stdout is not None
    for line in iter(process.stdout.readline, ""):
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip()
    raise AssertionError(process.stderr.read() if process.stderr else "the process has ended")


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Send SIGINT, and return the exit code and the remaining output."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    return process.returncode, out, errors
