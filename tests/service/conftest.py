"""A service over each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.storage import Backend, MemoryBackend, open_store
from tests.helpers.calls import Calls, Interrupted
from tests.helpers.declared import registry


@pytest.fixture(params=["memory", "sqlite"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with open_store("memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
async def calls(backend: Backend) -> AsyncIterator[Calls]:
    service = Calls(backend, registry())
    yield service
    assert service.unexpected == []


@pytest.fixture
async def in_memory() -> AsyncIterator[Calls]:
    """For what is refused before any store is asked."""
    service = Calls(MemoryBackend(), registry())
    yield service
    assert service.unexpected == []


@pytest.fixture
async def interrupted(backend: Backend) -> Interrupted:
    return Interrupted(backend)


@pytest.fixture
async def racing(interrupted: Interrupted) -> AsyncIterator[Calls]:
    """A service over the same store, whose every commit others can get ahead of."""
    service = Calls(interrupted, registry())
    yield service
    assert service.unexpected == []
