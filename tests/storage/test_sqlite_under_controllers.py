"""A store's file that is replaced by a backup or an older copy while controllers in another process run on it.

Their server ends, the file is replaced, and a server begins again at the same address, over a real network.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headway.errors import LeaseLost, StoreChanged, StoreRolledBack
from headway.storage import backup_store, open_sqlite, restore_store
from tests.helpers.worker_rig import Rig
from tests.storage.sqlite_kit import set_limit


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(f"sqlite:{tmp_path / 'a.db'}", tmp_path)


def _file(rig: Rig) -> str:
    return rig.url.removeprefix("sqlite:")


async def test_controllers_start_over_on_a_restored_store(rig: Rig, tmp_path: Path) -> None:
    """Their runs end with an error that says why. The next runs see the backup and no later changes."""
    async with rig.working():
        async with rig.serving() as engine:
            await engine.client.write(rig.pool.new("kept"))
            await rig.until(lambda: "kept" in (rig.seen or [{}])[-1])
            await backup_store(rig.url, tmp_path / "b")
            await engine.client.write(rig.pool.new("lost"))
            await rig.until(lambda: "lost" in rig.seen[-1])
        left = (await restore_store(tmp_path / "b", rig.url, replace=True)).from_store
        before, term = len(rig.seen), max(rig.terms)
        async with rig.serving() as engine:
            await rig.until(lambda: any(f"no longer {left}" in why for why in rig.streams_ended()))
            await engine.client.write(rig.pool.new("new"))
            await rig.until(lambda: set(rig.seen[-1]) == {"kept", "new"})
    # The run may notice either of them first: the stream of another store, or the lease that is missing there.
    assert set(rig.ended_by()) <= {StoreChanged, LeaseLost}
    assert not any("lost" in seen for seen in rig.seen[before:]), "a run has seen state that the backup does not have"
    assert min(rig.terms[before:]) > term + 2**31, "a term is not above all terms of the replaced store"


async def test_older_copy_stops_the_controllers(rig: Rig, tmp_path: Path) -> None:
    """The store refuses their position by its incarnation: it was rolled back, so runs wait until that is accepted."""
    async with rig.serving() as engine:
        await engine.client.write(rig.pool.new("kept"))
    shutil.copy(_file(rig), tmp_path / "older")
    async with rig.working() as worker:
        async with rig.serving() as engine:
            for index in range(10):
                await engine.client.write(rig.pool.new(f"lost{index}"))
            await rig.until(lambda: len((rig.seen or [{}])[-1]) == 11)
        shutil.copy(tmp_path / "older", _file(rig))
        before = len(rig.seen)
        async with rig.serving():
            await rig.until(lambda: StoreRolledBack in rig.ended_by())
            assert len(rig.seen) == before, "a run continued with state that the store has lost"
            assert worker.accept_store()
            await rig.until(lambda: len(rig.seen) > before)
    assert rig.seen[before:] == [{"kept": rig.seen[0]["kept"]}] * (len(rig.seen) - before)


async def test_older_copy_with_new_commits_stops_the_controllers(rig: Rig, tmp_path: Path) -> None:
    """Its revisions are as high as those that were seen. Only the incarnation shows that its history is another one."""
    async with rig.serving() as engine:
        await engine.client.write(rig.pool.new("kept"))
    shutil.copy(_file(rig), tmp_path / "older")
    async with rig.working() as worker:
        async with rig.serving() as engine:
            await engine.client.write(rig.pool.new("lost"))
            changed = await engine.client.read(rig.pool, "kept")
            changed.metadata["by"] = "the lost history"
            lost = await engine.client.write(changed)
            await rig.until(lambda: (rig.seen or [{}])[-1].get("kept") == lost.version)
            frontier = int(lost.version)
        shutil.copy(tmp_path / "older", _file(rig))
        async with open_sqlite(_file(rig)) as backend:
            while backend.position.revision < frontier + 50:
                await rig.put(backend, f"other{backend.position.revision}")
        before = len(rig.seen)
        async with rig.serving():
            await rig.until(lambda: StoreRolledBack in rig.ended_by())
            assert len(rig.seen) == before, "a run continued with state that the store has lost"
            assert any("is not in the history of this copy" in why for why in rig.streams_ended())
            assert worker.accept_store()
            await rig.until(lambda: len(rig.seen) > before)
    assert int(rig.seen[-1]["kept"]) < frontier, "the cache still has state that the store has lost"
    assert len(rig.seen[-1]) > 40
    assert all("lost" not in seen for seen in rig.seen[before:])


async def test_store_that_forgot_the_last_opening_of_the_controllers_is_not_rolled_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server was restarted more often than the store remembers while they were away. They continue with its current
    state.
    """
    set_limit(monkeypatch, "SESSIONS_KEPT", 3)
    async with rig.working():
        async with rig.serving() as engine:
            await engine.client.write(rig.pool.new("kept"))
            await rig.until(lambda: "kept" in (rig.seen or [{}])[-1])
        for index in range(4):
            async with open_sqlite(_file(rig)) as backend:
                await rig.put(backend, f"other{index}")
        async with rig.serving():
            await rig.until(lambda: len(rig.seen[-1]) == 5)
    assert StoreRolledBack not in rig.ended_by()
