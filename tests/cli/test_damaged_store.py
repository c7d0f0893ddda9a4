"""`headway store check` of a damaged store reports the damage and exits with 7, wherever it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from headway.storage import SqliteBackend
from headway.testing.conformance import put, thing
from tests.cli.terminal import Terminal


def _flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 4]))


HEADERS = {"the magic": 3, "the size of its pages": 16, "its format": 63, "its owner": 69}


async def _store() -> None:
    async with SqliteBackend("a.db") as backend:
        await put(backend, thing("owned"))
        await backend.raise_fence("c", "m", 0, 0)


@pytest.mark.parametrize("at", HEADERS.values(), ids=HEADERS)
async def test_damaged_header_of_a_store_is_reported(terminal: Terminal, at: int) -> None:
    """The file is not taken for another program's, or a newer Headway's. The exit code is 7."""
    await _store()
    _flip("a.db", at)
    done = await terminal("store", "check", "sqlite:a.db")
    assert done.returncode == 7, done.stderr
    assert "problems found: " in done.stdout


async def test_damaged_text_of_a_row_is_reported(terminal: Terminal) -> None:
    """A name that is no text, where SQLite itself finds nothing wrong, and a number that has become a text."""
    await _store()
    with closing(sqlite3.connect("a.db", isolation_level=None)) as connection:
        connection.execute("UPDATE fences SET controller = CAST(x'ff' AS TEXT), term = 'x'")
    done = await terminal("store", "check", "sqlite:a.db")
    assert done.returncode == 7, done.stderr
    assert "problems found: " in done.stdout
