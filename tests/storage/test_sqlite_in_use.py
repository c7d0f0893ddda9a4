"""The store in an SQLite file: reads during writes, closing, and its url."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import InvalidArgument, StoreUnusable
from headway.resource import EndOfSnapshot, Position
from headway.storage import MemoryBackend, SqliteBackend, open_sqlite, open_store
from headway.testing.conformance import EVERYTHING, KIND, names, put, putting, reading, summary, thing
from tests.storage.sqlite_kit import Gate, expect_unusable, hold_published


async def test_snapshot_may_stand_at_an_unpublished_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read has shown the commit before it is published, so a later watch must contain it.

    The commit is not delivered again when it is published, and a watch can resume at its position.
    """
    gate = Gate()
    async with open_sqlite(tmp_path / "a.db") as backend:
        hold_published(monkeypatch, gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, backend, thing("a"))
            await gate.reached()
            assert await names(backend) == ["a"]
            reader = await reading(backend)
            at = await reader.until_snapshot()
            assert (at.revision, len(reader.held)) == (1, 1)
            resumed = await reading(backend, after=at)
            assert backend.position == at, "the store's position is below its snapshot's"
            gate.open()
        last = await put(backend, thing("b"))
        for each in (reader, resumed):
            await each.until(last.revision)
            assert summary(each.changes) == [(2, "b", False)]


async def test_large_store_can_be_read_during_writes(tmp_path: Path) -> None:
    """Reads wait for a free connection, and each sees one complete commit."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        version = str((await backend.commit([putting(thing(f"n{i}", uid=f"n{i}")) for i in range(50)])).revision)

        async def read() -> None:
            for _ in range(5):
                found, at = await backend.list(KIND, EVERYTHING)
                assert {each.version for each in found} == {str(at.revision)}

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read)
            for _ in range(10):
                changes = [putting(thing(f"n{i}", uid=f"n{i}"), version) for i in range(50)]
                version = str((await backend.commit(changes)).revision)


async def test_closing_completes_commits_and_wakes_watches_with_an_error(tmp_path: Path, commit_gate: Gate) -> None:
    """A commit in flight is acknowledged. Waiting watches and later calls get StoreUnusable."""
    acknowledged: list[Position] = []

    async def write() -> None:
        acknowledged.append(await put(backend, thing("a")))

    backend = SqliteBackend(tmp_path / "a.db")
    async with trio.open_nursery() as nursery:
        async with backend:
            watch = await backend.watch(KIND, EVERYTHING)
            assert isinstance(await watch.next(), EndOfSnapshot)
            nursery.start_soon(expect_unusable, watch.next)
            nursery.start_soon(write)
            await commit_gate.reached()
            nursery.start_soon(_open_when_blocked, commit_gate)
        assert len(acknowledged) == 1 or await _soon(lambda: len(acknowledged) == 1)
    for attempt in (lambda: put(backend, thing("b")), lambda: names(backend), lambda: reading(backend)):
        with pytest.raises(StoreUnusable, match="is closed"):
            await attempt()
    async with backend:
        assert await names(backend) == ["a"]


async def _open_when_blocked(gate: Gate) -> None:
    await trio.testing.wait_all_tasks_blocked()
    gate.open()


async def _soon(condition: Callable[[], bool]) -> bool:
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    return condition()


async def test_number_beyond_the_range_of_sqlite_is_rejected_alone(tmp_path: Path) -> None:
    """Numbers have 64 bits on the wire and 63 in SQLite: the write is an InvalidArgument and stores nothing."""
    async with open_sqlite(tmp_path / "a.db") as backend:
        raised = await backend.raise_fence("c", "m", 2**63 - 1, 0)
        for attempt in (
            lambda: backend.raise_fence("c", "m", 2**63, 0),
            lambda: backend.raise_fence("c", "m", 0, 0),
            lambda: backend.record_checkpoint(raised.fence, 2**63),
        ):
            with pytest.raises(InvalidArgument, match="the maximum"):
                await attempt()
        assert backend.position == raised.position


async def test_url_selects_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``memory:`` and ``sqlite:PATH`` work, relative or absolute. For another url the error lists the known ones."""
    monkeypatch.chdir(tmp_path)
    async with open_store("memory:") as backend:
        assert isinstance(backend, MemoryBackend)
    async with open_store("sqlite:relative.db") as backend:
        await put(backend, thing("a"))
    async with open_store(f"sqlite:{tmp_path}/relative.db") as backend:
        assert await names(backend) == ["a"]
    for url in ("", "memory", "memory:x", "sqlite:", "sqlite", "staff.db", "consul:x", "mysql://x"):
        with pytest.raises(InvalidArgument, match='expected "memory:", "sqlite:PATH"'):
            open_store(url)
