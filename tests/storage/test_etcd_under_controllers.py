"""An etcd that is rolled back while an engine uses it and controllers in another process use that engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import StoreRolledBack
from headway.storage import EtcdBackend, _timeline
from headway.storage.etcd.layout import _keys
from tests.helpers.fake_etcd import serving_etcd
from tests.helpers.worker_rig import Rig
from tests.storage.etcd_kit import PREFIX


@pytest.mark.parametrize("server_stays", [True, False])
async def test_rolled_back_etcd_stops_the_controllers(tmp_path: Path, server_stays: bool) -> None:
    """Their runs end when their engine detects it, or when a new engine has revisions as high as those seen.

    After an operator has accepted the rollback, the cache has nothing of the lost history.
    """
    async with serving_etcd() as (fake, endpoint):
        rig = Rig(f"etcd://{endpoint}{PREFIX}", tmp_path)
        async with rig.working() as worker:
            async with rig.serving() as engine:
                await engine.client.write(rig.pool.new("kept"))
                await rig.until(lambda: "kept" in (rig.seen or [{}])[-1])
                kept, older = rig.seen[-1]["kept"], fake.saved()
                changed = await engine.client.read(rig.pool, "kept")
                changed.metadata["by"] = "the lost history"
                lost = await engine.client.write(changed)
                await engine.client.write(rig.pool.new("lost"))
                await rig.until(lambda: "lost" in rig.seen[-1])
                before = len(rig.seen)
                if server_stays:
                    fake.restore(older)
                    await rig.until(lambda: StoreRolledBack in rig.ended_by())
            if not server_stays:
                fake.restore(older)
                async with EtcdBackend(rig.url) as other:
                    while other.position.revision < int(lost.version) + 20:
                        await rig.put(other, f"other{other.position.revision}")
            async with rig.serving():
                await rig.until(lambda: StoreRolledBack in rig.ended_by())
                assert len(rig.seen) == before, "a run continued with state that the store has lost"
                assert worker.accept_store()
                await rig.until(lambda: len(rig.seen) > before)
        assert all("lost" not in seen and seen["kept"] == kept for seen in rig.seen[before:])


async def test_store_that_forgot_the_last_opening_of_the_controllers_is_not_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened more often than it remembers while they were away. They continue with its current state."""
    for module in (_keys, _timeline):
        monkeypatch.setattr(module, "KNOWN_SESSIONS", 3)
    async with serving_etcd() as (_, endpoint):
        rig = Rig(f"etcd://{endpoint}{PREFIX}", tmp_path)
        async with rig.working():
            async with rig.serving() as engine:
                await engine.client.write(rig.pool.new("kept"))
                await rig.until(lambda: "kept" in (rig.seen or [{}])[-1])
            for index in range(5):
                async with EtcdBackend(rig.url) as other:
                    await rig.put(other, f"other{index}")
            async with rig.serving():
                await rig.until(lambda: len(rig.seen[-1]) == 6)
        assert StoreRolledBack not in rig.ended_by()
