"""Each store keeps every promise of a store."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from headway.storage import Backend, EtcdBackend, MemoryBackend, SqliteBackend
from headway.testing import BACKEND_CHECKS, BackendCheck, OpenBackend, check_backend, run_backend_check
from tests.helpers.etcd_server import EtcdServer


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
    count = 0

    def opening(*, max_changes: int = 100_000) -> AbstractAsyncContextManager[Backend]:
        nonlocal count
        count += 1
        if request.param == "memory":
            return MemoryBackend(max_changes=max_changes)
        if request.param == "sqlite":
            return SqliteBackend(tmp_path / f"{count}.db", max_changes=max_changes)
        server: EtcdServer = request.getfixturevalue("etcd")
        return EtcdBackend(f"etcd://{server.endpoint}{server.new_prefix()}", max_changes=max_changes)

    return opening


def _name(check: BackendCheck) -> str:
    return getattr(check, "__name__", repr(check))


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=_name)
async def test_the_store_keeps_its_promise(check: BackendCheck, open_backend: OpenBackend) -> None:
    """The claim that the check's name makes holds of the store."""
    await run_backend_check(check, open_backend)


async def test_the_suite_runs_every_check_and_says_how_many() -> None:
    """`check_backend` runs each check on a store of its own."""
    opened: list[int] = []

    def opening(*, max_changes: int = 100_000) -> AbstractAsyncContextManager[Backend]:
        opened.append(max_changes)
        return MemoryBackend(max_changes=max_changes)

    assert await check_backend(opening) == len(BACKEND_CHECKS) == len(opened)
    assert len({_name(check) for check in BACKEND_CHECKS}) == len(BACKEND_CHECKS)
