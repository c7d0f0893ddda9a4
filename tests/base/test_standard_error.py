"""Output to a pipe that nothing reads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from headway.base import Output


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def fill(writer: int) -> None:
    """Fill the pipe to the last byte, as another process with the same descriptor would."""
    other = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        for piece in (b"x" * 4096, b"x"):
            while True:
                try:
                    os.write(other, piece)
                except BlockingIOError:
                    break
    finally:
        os.close(other)


def test_write_does_not_block_when_another_writer_takes_the_room(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Room:
        """A poll after which the other writer fills the pipe first."""

        def register(self, *_: object) -> None: ...

        def poll(self, *_: object) -> list[object]:
            fill(pipe[1])
            return [pipe[1]]

    monkeypatch.setattr("select.poll", Room)
    output = Output(pipe[1])
    fill(pipe[1])
    written: list[int] = []
    thread = threading.Thread(target=lambda: written.append(output.write(b"one line\n")), daemon=True)
    thread.start()
    thread.join(20)
    assert written == [0]
    output.close()


def test_write_continues_when_the_pipe_has_room_again(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    fill(pipe[1])
    assert not output.write(b"lost")
    os.read(pipe[0], 1 << 20)
    assert output.write(b"kept")
    assert os.read(pipe[0], 1 << 20) == b"kept"
    output.close()


def test_descriptor_stays_blocking_for_other_processes(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    assert os.get_blocking(pipe[1])
    output.close()
    os.write(pipe[1], b"still open")
