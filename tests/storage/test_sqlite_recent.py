"""A store in an SQLite file reads resources that were stored lately without a thread."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.resource import Key, pb
from headway.storage import SqliteBackend, VersionConflict, open_sqlite
from headway.testing.conformance import KIND, put, remove, thing
from tests.storage.sqlite_kit import (
    Gate,
    around_reads,
    fail_commits,
    hold_published,
    set_limit,
)

SQLITE_FULL = 13


@pytest.fixture
def read_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of reads in each transaction of reads."""
    seen: list[int] = []

    def counted(size: int, read: Callable[[], None]) -> None:
        seen.append(size)
        read()

    around_reads(monkeypatch, counted)
    return seen


def _key(name: str) -> Key:
    return ("default", "default", name)


def _thing(name: str, text: str = "") -> pb.Resource:
    return thing(name, text, uid=f"uid-{name}")


async def _version(backend: SqliteBackend, name: str) -> tuple[str, int]:
    resource, at = await backend.read(KIND, _key(name))
    return ("" if resource is None else resource.version), at.revision


async def test_stored_resource_is_read_without_the_file(tmp_path: Path, read_sizes: list[int]) -> None:
    """The read shows the last state, at the position of the last commit. What was never stored is read in the file."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, _thing("a"))
        await put(backend, _thing("b"))
        await put(backend, _thing("a"), "1")
        assert await _version(backend, "a") == ("3", 3)
        assert await _version(backend, "b") == ("2", 3)
        assert read_sizes == []
        assert await _version(backend, "c") == ("", 3)
        assert read_sizes == [1]


async def test_deleted_resource_is_read_in_the_file(tmp_path: Path, read_sizes: list[int]) -> None:
    """It does not come back."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, made := _thing("a"))
        await remove(backend, made, "1")
        assert await _version(backend, "a") == ("", 2)
        assert read_sizes == [1]


async def test_rejected_and_failed_commits_change_no_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_sizes: list[int]
) -> None:
    """Only what is stored counts."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, _thing("a"))
        with pytest.raises(VersionConflict):
            await put(backend, _thing("a"), "7")
        with monkeypatch.context() as failing:
            fail_commits(failing, SQLITE_FULL)
            with pytest.raises(StoreUnusable):
                await put(backend, _thing("a"), "1")
        assert await _version(backend, "a") == ("1", 1)
        assert read_sizes == []


async def test_oldest_resources_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_sizes: list[int]
) -> None:
    """The bound is in bytes. A resource that is stored again is among the newest."""
    set_limit(monkeypatch, "MOST_RECENT", 5000)
    async with open_sqlite(tmp_path / "a.db") as backend:
        for name in "abc":
            await put(backend, _thing(name))
        await put(backend, _thing("a"), "1")
        await put(backend, _thing("d"))
        assert [await _version(backend, name) for name in "acd"] == [("4", 5), ("3", 5), ("5", 5)]
        assert read_sizes == []
        assert await _version(backend, "b") == ("2", 5)
        assert read_sizes == [1]
        await put(backend, _thing("large", "x" * 5000))
        assert await _version(backend, "large") == ("6", 6)
        assert await _version(backend, "a") == ("4", 6)
        assert read_sizes == [1, 1, 1]


async def test_read_does_not_go_back_behind_a_commit_that_another_read_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of the file sees a commit before its writer has published it. A later read sees it too."""
    gate = Gate()
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, _thing("a"))
        await put(backend, _thing("b"))
        hold_published(monkeypatch, gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, backend, _thing("a"), "1")
            await gate.reached()
            seen = [await _version(backend, name) for name in ("a", "absent", "a", "b")]
            gate.open()
        assert seen == [("1", 2), ("", 3), ("3", 3), ("2", 3)]
        assert await _version(backend, "a") == ("3", 3)


async def test_read_without_a_wait(tmp_path: Path) -> None:
    """The service asks for it before a write."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        assert backend.read_nowait(KIND, _key("a")) is None
        await put(backend, made := _thing("a"))
        assert backend.read_nowait(KIND, _key("a")) == (made, backend.position)
    with pytest.raises(StoreUnusable, match="is closed"):
        backend.read_nowait(KIND, _key("a"))
