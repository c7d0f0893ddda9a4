"""The fixtures of the service, whose types have converters here, and one that opens a store of each kind repeatedly."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.storage import EtcdBackend, MemoryBackend, open_store
from tests.helpers.fake_etcd import serving_etcd
from tests.service.conftest import backend as backend
from tests.service.conftest import in_memory as in_memory
from tests.versions.schema_kit import Reopened


@pytest.fixture(params=["sqlite", *(pytest.param(each, marks=pytest.mark.wide) for each in ("memory", "etcd"))])
async def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopened]:
    """Return a function that opens a store of each kind as often as it is called."""
    if request.param == "etcd":
        async with serving_etcd() as (_, endpoint):
            yield lambda: EtcdBackend(f"etcd://{endpoint}/staff")
        return
    memory = MemoryBackend()
    yield lambda: memory if request.param == "memory" else open_store(f"sqlite:{tmp_path / 'staff.db'}")
