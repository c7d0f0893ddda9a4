"""A standard output that is full, closed, or without a reader: no traceback, and an exit code of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
import trio

from tests.cli.conftest import HEADWAY, ROOT

SAID = b"Error: standard output cannot be written: No space left on device\n"
GRAPH = ("graph", "tests.cli.served:app")


async def run(arguments: tuple[str, ...], output: int, **environment: str) -> tuple[int, bytes]:
    """Return the exit code of a command, and what it says on standard error."""
    with trio.fail_after(50):
        done = await trio.run_process(
            [*HEADWAY, *arguments],
            stdout=output,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
    return done.returncode, done.stderr


@pytest.fixture
def full() -> Iterator[int]:
    """Return a descriptor to which nothing can be written."""
    with open("/dev/full", "wb") as opened:
        yield opened.fileno()


@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [(("store", "--help"), ""), pytest.param(GRAPH, "1", marks=pytest.mark.wide)]
)
async def test_full_output_is_one_sentence(full: int, arguments: tuple[str, ...], unbuffered: str) -> None:
    """While arguments are parsed, and while a command runs. Without a buffer, the error comes at another place."""
    assert await run(arguments, full, PYTHONUNBUFFERED=unbuffered) == (74, SAID)


@pytest.mark.wide
async def test_output_without_a_reader_ends_a_command_silently() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert await run(GRAPH, writer) == (141, b"")
    finally:
        os.close(writer)


def test_closed_output_is_no_error() -> None:
    """What the command prints is dropped."""
    shell = ["sh", "-c", '"$@" >&-', "sh", *HEADWAY, *GRAPH]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
