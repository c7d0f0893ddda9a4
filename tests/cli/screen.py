"""Run a command on a terminal, and read what a person sees on it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
import trio

ROOT = Path(__file__).parents[2]
_PATIENCE = 45


class Screen:
    """A terminal with a running command, emulated by pyte."""

    def __init__(self, process: trio.Process, number: int, columns: int, lines: int) -> None:
        self.process = process
        self._number = number
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._raw = b""

    @property
    def text(self) -> str:
        """What is on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    async def until(self, seen: str | Callable[[str], bool]) -> str:
        """Read until a text, or what a function accepts, is on the screen. Return what is there."""
        found = (lambda text: seen in text) if isinstance(seen, str) else seen
        with trio.move_on_after(_PATIENCE):
            while not found(self.text):
                if not await self._read():
                    break
        assert found(self.text), f"not on the screen: {seen}\n{self.text}"
        return self.text

    async def end(self) -> int:
        """Read until the command ends. Return its exit code."""
        with trio.fail_after(_PATIENCE):
            while await self._read():
                pass
            return await self.process.wait()

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._number, keys.encode())

    @property
    def cursor_is_visible(self) -> bool:
        """True unless the command has hidden the cursor and has not shown it again."""
        return not self._screen.cursor.hidden

    @property
    def has_screen_of_its_own(self) -> bool:
        """True while the command uses the alternate screen, which pyte doesn't have."""
        return self._raw.rfind(b"\x1b[?1049h") > self._raw.rfind(b"\x1b[?1049l")

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self._number)
        try:
            read = os.read(self._number, 65536)
        except OSError:
            # This is how Linux reports that the other side is closed.
            return False
        self._stream.feed(read)
        self._raw += read
        return bool(read)


@asynccontextmanager
async def open_screen(
    *arguments: str, server: str = "127.0.0.1:1", columns: int = 110, lines: int = 30
) -> AsyncIterator[Screen]:
    """Run `headway` with these arguments on a terminal of this size, in the working directory."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "engine"))),
        "HEADWAY_SERVER": server,
        "TERM": "xterm-256color",
    }
    process = await trio.lowlevel.open_process(
        [sys.executable, "-W", "error", "-m", "headway.cli", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(process, ours, columns, lines)
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        os.close(ours)
