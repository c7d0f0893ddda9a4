"""A real Chromium for a test: the one of the system, driven by a process of its own (`chromium.py`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

PATIENCE = 60.0
"""The time that a condition of the page may take, in seconds. It only keeps a test from hanging."""
NO_BROWSER = "no Chromium: install Debian's package chromium, or name one by HEADWAY_CHROMIUM"


def need_chromium() -> str:
    """Return the path of a Chromium. Without one, skip the test, or fail it if HEADWAY_NEEDS_BROWSER is set."""
    named = os.environ.get("HEADWAY_CHROMIUM")
    found = named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found:
        return found
    if os.environ.get("HEADWAY_NEEDS_BROWSER"):
        pytest.fail(NO_BROWSER, pytrace=False)
    pytest.skip(NO_BROWSER)


class BrowserError(AssertionError):
    """A command failed, such as a wait whose time was over."""


class Chromium:
    """A browser. Each method is a command of `chromium.Driven`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._received = b""

    async def open(
        self, url: str, *, theme: str = "light", width: int = 1280, height: int = 860, phone: bool = False
    ) -> None:
        """Open a page, without cookies of an earlier one."""
        await self._do("open", url, theme, width, height, phone)

    async def goto(self, url: str) -> None:
        """Go to an address."""
        await self._do("goto", url)

    async def wait(self, expression: str) -> Any:
        """Wait until a JavaScript expression is truthy, and return its value."""
        return await self._do("wait", expression)

    async def shows(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        return await self._do("evaluate", expression)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._do("press", *keys)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self._do("type", text)

    async def click(self, selector: str) -> None:
        """Click the element of a selector."""
        await self._do("click", selector)

    async def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies."""
        found: list[dict[str, Any]] = await self._do("cookies")
        return found

    async def screenshot(self, path: Path, *, full: bool = False) -> None:
        """Write a picture of the page."""
        await self._do("screenshot", str(path), full)

    async def logs(self) -> list[str]:
        """Return the warnings and errors of the console since the last call, and violations of the page's policy."""
        found: list[str] = await self._do("logs")
        return found

    async def _do(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with trio.fail_after(PATIENCE + 30):
            await self._process.stdin.send_all(json.dumps(command).encode() + b"\n")
            while b"\n" not in self._received:
                some = await self._process.stdout.receive_some()
                if not some:
                    raise BrowserError("the browser's process has ended")
                self._received += some
        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(f"{command[0]} {command[1:]}: {answer['error']}")
        return answer["value"]


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Chromium]:
    """Run a browser while the block runs."""
    command = [sys.executable, "-m", "tests.helpers.chromium", need_chromium(), str(PATIENCE)]
    root = Path(__file__).parents[2]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
    try:
        yield Chromium(process)
    finally:
        with trio.move_on_after(PATIENCE, shield=True):
            assert process.stdin is not None
            # The end of its input ends the browser, and then itself.
            await process.stdin.aclose()
            await process.wait()
        if process.returncode is None:
            process.kill()
        if process.stdout is not None:
            await process.stdout.aclose()
