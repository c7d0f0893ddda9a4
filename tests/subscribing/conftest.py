"""Subscribers of each kind of store, in the process and over the network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.storage import Backend, EtcdBackend, MemoryBackend
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.subscribing import (
    PLAIN,
    RATES,
    Subscriber,
    a_service,
    current,
    subscriber,
)
from tests.service.conftest import a_store

SETTINGS = [
    pytest.param(("memory", True), id="memory, network"),
    pytest.param(("sqlite", False), id="sqlite, in process"),
    pytest.param(("etcd", False), id="etcd, in process"),
    pytest.param(("memory", False), id="memory, in process", marks=pytest.mark.wide),
    pytest.param(("sqlite", True), id="sqlite, network", marks=pytest.mark.wide),
    pytest.param(("etcd", True), id="etcd, network", marks=pytest.mark.wide),
]


@asynccontextmanager
async def opened(store: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Backend]:
    if store == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        async with EtcdBackend(f"etcd://{server.endpoint}{server.new_prefix()}") as backend:
            yield backend
    else:
        async with a_store(store, folder) as backend:
            yield backend


@pytest.fixture(params=SETTINGS)
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subscriber]:
    """A subscriber of each kind of store, in the process and over the network. RATES is a topic of the service."""
    store, network = request.param
    RATES.reset()
    async with (
        opened(store, request, tmp_path) as backend,
        subscriber(backend, a_service(backend, {"rates": RATES, "plain": PLAIN}), network=network) as caller,
    ):
        yield caller
        assert caller.unexpected == []


@pytest.fixture
async def in_memory() -> AsyncIterator[Subscriber]:
    backend = MemoryBackend()
    async with backend, subscriber(backend, a_service(backend, {"rates": RATES, "plain": PLAIN})) as caller:
        yield caller
        assert caller.unexpected == []


@pytest.fixture(autouse=True)
def empty_state() -> None:
    current.clear()
