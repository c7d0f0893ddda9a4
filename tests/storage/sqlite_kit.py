"""Helpers for the tests of the SQLite store: a gate in a worker thread, and a plain connection to the file."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.resource import Position
from headway.storage import open_sqlite
from headway.testing.conformance import put, remove, thing


class Gate:
    """A function in a worker thread that blocks until it is released, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.calls += 1
        self._entered.release()
        assert self._open.wait(20), "nobody opened the gate"

    async def reached(self) -> None:
        assert await trio.to_thread.run_sync(lambda: self._entered.acquire(timeout=20)), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


@contextmanager
def opened_plainly(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def expect_unusable(attempt: Callable[[], object]) -> None:
    with pytest.raises(StoreUnusable):
        await attempt()  # type: ignore[misc]  # each of them is async


async def filled(path: Path) -> Position:
    """Make a store of n0 to n8, with n9 created and removed again, and return its position."""
    async with open_sqlite(path) as backend:
        for index in range(10):
            at = await put(backend, resource := thing(f"n{index}", "x" * 500))
        return await remove(backend, resource, str(at.revision))
