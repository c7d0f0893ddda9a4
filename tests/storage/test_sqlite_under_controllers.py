"""A store's file that is replaced by a backup, or by an older copy, while controllers in another process run on it.

Their server ends, the file is replaced, and a server begins again at the same address, over a real network.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from headway import events
from headway.errors import LeaseLost, StoreChanged, StoreWentBack
from headway.resource import resource_key
from headway.storage import Backend, Put, backup_store, open_sqlite, restore_store
from tests.helpers.pools import Pool

PATIENCE = 40


class Rig:
    """A server of one type, and a controller of it in what could be another process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a.db"
        self.address = f"unix:{folder}/socket"
        self.served = headway.App("pools")
        self.served.type("pools", "v1", "Pool", Pool)
        self.app = headway.App("pools")
        self.pool = self.app.type("pools", "v1", "Pool", Pool)
        self.reported: list[object] = []
        self._changed = trio.Event()
        # What each reconcile has seen: the whole cache, by name.
        self.seen: list[dict[str, str]] = []
        self.terms: list[int] = []

        @self.app.controller(manages=self.pool)
        async def look(rt: headway.Runtime, _: headway.Request) -> None:
            self.seen.append({each.name: each.version for each in rt.cache.list(self.pool)})
            self.terms.append(rt.term)
            self._beat()

    def _beat(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _report(self, event: object) -> None:
        self.reported.append(event)
        self._beat()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_engine(
            f"sqlite:{self.path}", self.served, listen=[self.address], insecure=True, report=lambda _: None
        ) as engine:
            yield engine

    @asynccontextmanager
    async def working(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_workers(
            self.address, self.app, process="w", report=self._report, lag_limit=1.0
        ) as engine:
            yield engine

    def ended_by(self) -> list[type[BaseException] | type[None]]:
        return [type(event.error) for event in self.reported if isinstance(event, events.RunEnded)]

    def streams_ended(self) -> list[str]:
        return [event.why for event in self.reported if isinstance(event, events.StreamEnded)]

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._changed.wait()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_controllers_begin_anew_on_a_store_that_was_restored(rig: Rig, tmp_path: Path) -> None:
    """Their runs end by name; the next ones see what the backup had and nothing of what came after it."""
    async with rig.working():
        async with rig.serving() as engine:
            await engine.client.write(rig.pool.new("kept"))
            await rig.until(lambda: "kept" in (rig.seen or [{}])[-1])
            await backup_store(f"sqlite:{rig.path}", tmp_path / "b")
            await engine.client.write(rig.pool.new("lost"))
            await rig.until(lambda: "lost" in rig.seen[-1])
        left = (await restore_store(tmp_path / "b", f"sqlite:{rig.path}", replace=True)).from_store
        before, term = len(rig.seen), max(rig.terms)
        async with rig.serving() as engine:
            await rig.until(lambda: any(f"not {left} any more" in why for why in rig.streams_ended()))
            await engine.client.write(rig.pool.new("new"))
            await rig.until(lambda: set(rig.seen[-1]) == {"kept", "new"})
    # Whichever is noticed first: the stream is another store's, or the lease isn't held there.
    assert set(rig.ended_by()) <= {StoreChanged, LeaseLost}
    assert not any("lost" in seen for seen in rig.seen[before:]), "what the backup doesn't have came into a run"
    assert min(rig.terms[before:]) > term + 2**31, "its lease and its fence are above all of the former store"


async def test_an_older_copy_stops_the_controllers(rig: Rig, tmp_path: Path) -> None:
    """Their position is refused by its incarnation; the store went back, so no run goes on until that is accepted."""
    async with rig.serving() as engine:
        await engine.client.write(rig.pool.new("kept"))
    shutil.copy(rig.path, tmp_path / "older")
    async with rig.working() as worker:
        async with rig.serving() as engine:
            for index in range(10):
                await engine.client.write(rig.pool.new(f"lost{index}"))
            await rig.until(lambda: len((rig.seen or [{}])[-1]) == 11)
        shutil.copy(tmp_path / "older", rig.path)
        before = len(rig.seen)
        async with rig.serving():
            await rig.until(lambda: StoreWentBack in rig.ended_by())
            assert len(rig.seen) == before, "a run went on with what the store doesn't have any more"
            assert worker.accept_store()
            await rig.until(lambda: len(rig.seen) > before)
    assert rig.seen[before:] == [{"kept": rig.seen[0]["kept"]}] * (len(rig.seen) - before)


async def test_an_older_copy_that_has_gone_on_past_it_is_found_out_all_the_same(rig: Rig, tmp_path: Path) -> None:
    """Its revisions are as high as those that were seen; only the incarnation says that it is another history."""
    async with rig.serving() as engine:
        await engine.client.write(rig.pool.new("kept"))
    shutil.copy(rig.path, tmp_path / "older")
    async with rig.working():
        async with rig.serving() as engine:
            await engine.client.write(rig.pool.new("lost"))
            changed = await engine.client.read(rig.pool, "kept")
            changed.metadata["by"] = "the lost history"
            lost = await engine.client.write(changed)
            await rig.until(lambda: (rig.seen or [{}])[-1].get("kept") == lost.version)
            frontier = int(lost.version)
        shutil.copy(tmp_path / "older", rig.path)
        async with open_sqlite(rig.path) as backend:
            await _go_on(backend, rig, frontier + 50)
        before = len(rig.seen)
        async with rig.serving():
            await rig.until(lambda: len(rig.seen[-1]) > 40)
        assert any("that this copy doesn't have" in why for why in rig.streams_ended())
    assert int(rig.seen[-1]["kept"]) < frontier, "what it has lost stays in the cache"
    assert all("lost" not in seen for seen in rig.seen[before:])


async def _go_on(backend: Backend, rig: Rig, revision: int) -> None:
    index = 0
    while backend.position.revision < revision:
        index += 1
        resource = rig.pool.new(f"other{index}").message()
        await backend.commit([Put(rig.pool.kind, resource_key(resource), resource, "")])
