"""Whatever bit of a store's file is wrong, its check ends in a report, which misses no damage to what is stored."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from headway.errors import StoreUnusable
from headway.storage import SqliteBackend, verify_file, verify_store
from headway.testing.conformance import put, remove, thing

PAGE = 4096
_HEADER = 100
_PAGE_HEADER = 12


async def _store(path: Path) -> int:
    """Make a small store, and return its size."""
    async with SqliteBackend(path) as backend:
        at = await put(backend, owner := thing("owner", uid="u-owner"))
        await put(backend, thing("owned", owner_uid="u-owner", uid="u-owned"))
        await put(backend, owner, str(at.revision))
        at = await put(backend, gone := thing("gone"))
        await remove(backend, gone, str(at.revision))
        await backend.raise_fence("c", "m", 0, 0)
        await backend.acquire_lease("c#held", "web-1", 3600)
    return os.stat(path).st_size


def _header_bits(size: int) -> list[tuple[int, int]]:
    """Return the place of each bit in the header of the file and in those of its pages, as (byte, bit)."""
    bytes = [
        *range(_HEADER + _PAGE_HEADER),
        *(page + at for page in range(PAGE, size, PAGE) for at in range(_PAGE_HEADER)),
    ]
    return [(at, bit) for at in bytes for bit in range(8)]


def _content(path: Path) -> list[object] | None:
    """Return all rows of all tables, or None if they cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            # SQLite does not compare the case of the type or the name, and uses a "taBle", or a blob, as what it is.
            listed = connection.execute(
                "SELECT CAST(name AS TEXT) FROM sqlite_master WHERE CAST(type AS TEXT) LIKE 'table'"
            )
            tables = [name for (name,) in listed]
            # Rows are compared by value: with a wrong letter in REAL, the column has 3600 where it had 3600.0.
            return [
                (each, sorted(connection.execute(f"SELECT * FROM {each}"), key=repr))
                for each in sorted(map(str.lower, tables))
            ]
    except (sqlite3.Error, UnicodeDecodeError):
        return None


async def _check_each(tmp_path: Path, chosen: Iterable[tuple[int, int]], *, compare: bool = True) -> int:
    """Check a store with one wrong bit at each of these places. Return the number of those with a finding.

    With ``compare``, what is stored may not have changed without a finding.
    """
    whole, damaged = tmp_path / "a.db", tmp_path / "damaged.db"
    intact, content = whole.read_bytes(), _content(whole)
    reported = 0
    for number, (at, bit) in enumerate(chosen):
        wrong = bytearray(intact)
        wrong[at] ^= 1 << bit
        for each in os.listdir(tmp_path):
            if each.startswith("damaged.db"):
                os.unlink(tmp_path / each)
        damaged.write_bytes(wrong)
        found = await verify_file(f"sqlite:{damaged}")
        reported += bool(found.problems)
        if compare and not found.problems:
            assert _content(damaged) == content, f"bit {bit} of byte {at} changes what is stored, without a finding"
        if number % 3 == 0:
            try:
                async with SqliteBackend(damaged) as backend:
                    await verify_store(backend)
            except StoreUnusable:
                assert found.problems, f"with bit {bit} of byte {at} the store cannot be opened, without a finding"
    return reported


@pytest.mark.wide
async def test_check_of_a_store_with_a_wrong_bit_ends_in_a_report(tmp_path: Path) -> None:
    size = await _store(tmp_path / "a.db")
    draw = random.Random(6)
    places = draw.sample(_header_bits(size), 70) + [(draw.randrange(size), draw.randrange(8)) for _ in range(50)]
    assert await _check_each(tmp_path, places) > 30


async def test_check_finds_a_column_with_a_wrong_name(tmp_path: Path) -> None:
    """SQLite opens such a file, and the engine reads all that it reads at its start. The first write would fail."""
    await _store(tmp_path / "a.db")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes((tmp_path / "a.db").read_bytes().replace(b"    time REAL", b"    tile REAL"))
    found = await verify_file(f"sqlite:{damaged}")
    assert [each for each in map(str, found.problems) if each.startswith("table history: its columns are [(")]


async def test_check_finds_a_text_that_is_none(tmp_path: Path) -> None:
    """The engine cannot open such a store: its id, with one wrong bit, is not UTF-8."""
    await _store(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("UPDATE meta SET value = CAST(x'61ad' AS TEXT) WHERE key = 'store_id'")
        connection.commit()
    found = await verify_file(f"sqlite:{tmp_path / 'a.db'}")
    assert [each for each in map(str, found.problems) if each.startswith("rows of table meta: a value is no text")]


@pytest.mark.deep
@pytest.mark.timeout(7200)
async def test_check_of_a_store_with_any_wrong_bit_of_a_header_ends_in_a_report(tmp_path: Path) -> None:
    """And with any wrong byte: but rows of the store itself, such as its head, have no seal and may have any value."""
    size = await _store(tmp_path / "a.db")
    assert await _check_each(tmp_path, _header_bits(size)) > 1000
    assert await _check_each(tmp_path, [(at, at % 8) for at in range(size)], compare=False) > 1000
