"""Fixtures that hold a store's commits until a test releases them, and that open a store of each kind repeatedly."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headway.storage import EtcdBackend, MemoryBackend, open_store
from tests.helpers.fake_etcd import serving_etcd
from tests.storage.schema_kit import Reopened
from tests.storage.sqlite_kit import Gate, hold_commits


@pytest.fixture
def commit_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold every transaction just before its COMMIT."""
    gate = Gate()
    hold_commits(monkeypatch, gate)
    yield gate
    gate.open()


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopened]:
    """Return a function that opens a store of each kind as often as it is called."""
    if request.param == "etcd":
        async with serving_etcd() as (_, endpoint):
            yield lambda: EtcdBackend(f"etcd://{endpoint}/staff")
        return
    memory = MemoryBackend()
    yield lambda: memory if request.param == "memory" else open_store(f"sqlite:{tmp_path / 'staff.db'}")
