"""A client on the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headway.client import Client
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.declared import registry


@pytest.fixture
async def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def calls(backend: MemoryBackend) -> AsyncIterator[Calls]:
    service = Calls(backend, registry())
    yield service
    assert service.unexpected == []


@pytest.fixture
async def client(calls: Calls) -> Client:
    return Client(calls.channel, registry())
