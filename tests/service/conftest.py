"""Fixtures that open a service over each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from headway.resource import Registry
from headway.service import Permissions
from headway.storage import Backend, MemoryBackend, open_store
from tests.helpers.calls import PLACES, Calls, Interrupted, over_the_network
from tests.helpers.declared import registry

TABLE_PLACES = [
    pytest.param(each.values, id=each.id, marks=[pytest.mark.wide] * (each.id != "memory, in process"))
    for each in PLACES
]
"""The places of tests that are tables of hundreds of rows, by the fixture ``anywhere``: the default run uses one."""


def a_store(kind: str, folder: Path) -> AbstractAsyncContextManager[Backend]:
    return open_store("memory:" if kind == "memory" else f"sqlite:{folder / 'store.db'}")


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.wide)])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Return a store of each kind. Their differences are the conformance suite's, so the default run uses one."""
    async with a_store(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
async def calls(backend: Backend) -> AsyncIterator[Calls]:
    service = Calls(backend, registry())
    yield service
    assert service.unexpected == []


@pytest.fixture(params=[pytest.param(each.values, id=each.id, marks=each.marks) for each in PLACES])
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Calls]:
    """Return a service over each kind of store, called inside the process and over the network."""
    store, how = request.param
    async with a_store(store, tmp_path) as backend, reached(how, backend) as service:
        yield service
        assert service.unexpected == []


@asynccontextmanager
async def reached(
    how: str, backend: Backend, permissions: Permissions | None = None, *, types: Registry | None = None
) -> AsyncIterator[Calls]:
    """Return a service over a store, called inside the process or over the network."""
    known = types or registry()
    if how == "network":
        async with over_the_network(backend, known, permissions) as calls:
            yield calls
    else:
        yield Calls(backend, known, permissions)


@pytest.fixture
async def in_memory() -> AsyncIterator[Calls]:
    """Return a service over a store in memory, for requests that are refused before the store is used."""
    service = Calls(MemoryBackend(), registry())
    yield service
    assert service.unexpected == []


@pytest.fixture
async def interrupted(backend: Backend) -> Interrupted:
    return Interrupted(backend)


@pytest.fixture
async def racing(interrupted: Interrupted) -> AsyncIterator[Calls]:
    """Return a service over the same store, in which other writers can overtake every commit."""
    service = Calls(interrupted, registry())
    yield service
    assert service.unexpected == []
