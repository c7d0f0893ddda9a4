"""Commands that read standard input: signals are handled while nothing arrives."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from headway.cli._running import read_stdin


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the descriptor that fills standard input."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        yield writer


async def test_reading_is_canceled_while_nothing_arrives(writer: int) -> None:
    """The loop goes on meanwhile: other tasks run, and so does the one that handles signals."""
    read = False

    async def read_all() -> None:
        nonlocal read
        await read_stdin()
        read = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all)
        os.write(writer, b"type: Team\n")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # The abandoned thread ends with its input.
    os.close(writer)
    assert not read


@pytest.mark.parametrize(
    ("given", "line"), [(b"token\nmore", b"token"), (b"token", b"token"), (b"x" * 40, b"x" * 16), (b"", b"")]
)
async def test_only_a_line_of_bounded_length_is_read(writer: int, given: bytes, line: bytes) -> None:
    """It ends at the end of the line, without waiting for more."""
    os.write(writer, given)
    if b"\n" not in given:
        os.close(writer)
    assert await read_stdin(line_of=16) == line
    if b"\n" in given:
        os.close(writer)


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_whole_is_read_until_its_end(writer: int, blocking: bool) -> None:
    """It may arrive in pieces, and its descriptor may be one that does not block."""
    os.set_blocking(sys.stdin.fileno(), blocking)

    async def write() -> None:
        for piece in (b"a" * 70_000, b"b\n", b"c"):
            await trio.to_thread.run_sync(os.write, writer, piece)
        os.close(writer)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        assert await read_stdin() == b"a" * 70_000 + b"b\nc"
