"""A registrar, and the controller of registered workloads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from catalog import app
from catalog.controllers import registrars
from catalog.messages import Health, HealthStatus, Workload
from catalog.registrar import agent, definitions, marks
from catalog.types import HEALTH_STATUS, WORKLOAD
from tests.catalog.dns.dns_kit import poll
from tests.catalog.registrar.registrar_kit import LocalService, local_service, write_file

PATIENCE = 30.0
PASSING, CRITICAL = Health.HEALTH_PASSING.name, Health.HEALTH_CRITICAL.name
NAME = "host-1"


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrars, "POLL", 0.02)


class World:
    """A catalog, a local service, and the registrar that checks it."""

    def __init__(
        self, engine: headway.Engine, client: headway.Client, cache: headway.notify.PrimedCache, service: LocalService
    ) -> None:
        self.engine = engine
        self.client = client
        self.cache = cache
        self.service = service

    async def run(self, file: Path, ttl: float = 60.0) -> None:
        """Run a registrar until canceled."""
        await agent.run(self.client, NAME, definitions.load(file), ttl=ttl)

    def health(self, name: str = "web-1") -> str | None:
        """Return the health of a workload as its status tells it; None if it does not exist."""
        workload = self.cache.get(WORKLOAD, name)
        if workload is None:
            return None
        status = workload.status.get("consul.io/workload-health")
        return status.conditions[0].reason if status is not None else ""


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[tuple[World, trio.Nursery]]:
    """Run a catalog, and a local service."""
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        address = f"unix:{path}/catalog.sock"
        engine = await stack.enter_async_context(
            headway.open_engine("memory:", app, network=headway.Network([address], insecure=True))
        )
        client = await stack.enter_async_context(headway.connect(address, app))
        cache = await stack.enter_async_context(engine.open_cache(watches=[WORKLOAD, HEALTH_STATUS]))
        service, nursery = await stack.enter_async_context(local_service())
        yield World(engine, client, cache, service), nursery


async def test_workload_follows_its_check_from_the_first_success(tmp_path: Path) -> None:
    """It is registered when it works, and critical and passing as its check is."""
    async with world(tmp_path) as (there, nursery):
        there.service.status = 500
        file = write_file(tmp_path, there.service.port)
        nursery.start_soon(there.run, file)
        await _held(there.client)
        asked = there.service.asked
        # Enough for a first result, and for a write that it might lead to.
        await poll(lambda: there.service.asked >= asked + 8)
        assert there.health() is None
        there.service.status = 200
        await poll(lambda: there.health() == PASSING)
        workload = there.cache.get(WORKLOAD, "web-1")
        assert workload is not None
        assert workload.metadata["rack"] == "r1"
        assert workload.metadata[marks.REGISTRAR] == NAME
        there.service.stop()
        await poll(lambda: there.health() == CRITICAL)
        await nursery.start(there.service.serve)
        await poll(lambda: there.health() == PASSING)
        [check] = there.cache.list(HEALTH_STATUS)
        assert (check.data.type, check.data.description) == ("http", "alive")


async def _run_until_it_passes(there: World, nursery: trio.Nursery, file: Path) -> None:
    """Run a registrar that ends as soon as its workload passes, so that this becomes critical."""
    scope = trio.CancelScope()
    nursery.start_soon(_within, scope, there, file)
    await poll(lambda: there.health() == PASSING)
    scope.cancel()
    await poll(lambda: there.health() == CRITICAL)


async def test_workload_is_critical_without_its_registrar_and_then_deleted(tmp_path: Path) -> None:
    """Without `deregister_critical_after`, it stays critical. When the registrar is back, it is as its check is."""
    async with world(tmp_path) as (there, nursery):
        await _run_until_it_passes(there, nursery, write_file(tmp_path, there.service.port))
        assert there.cache.get(HEALTH_STATUS, "web-1-registrar") is not None

        second = trio.CancelScope()
        nursery.start_soon(_within, second, there, write_file(tmp_path, there.service.port, after="0.3s"))
        await poll(lambda: there.health() == PASSING)
        assert there.cache.get(HEALTH_STATUS, "web-1-registrar") is None
        second.cancel()
        await poll(lambda: there.health() == CRITICAL)
        await poll(lambda: there.health() is None)


@pytest.mark.wide
async def test_registrar_that_loses_its_lease_registers_again_in_a_higher_term(tmp_path: Path) -> None:
    async with world(tmp_path) as (there, nursery):
        # Short, because a registrar notices when it renews its lease.
        nursery.start_soon(there.run, write_file(tmp_path, there.service.port), 1.0)
        await poll(lambda: there.health() == PASSING)
        answer = await there.client.leases.acquire(marks.LEASES + NAME, NAME, 1.0)
        assert answer.acquired
        await poll(lambda: all(int(term) > answer.term for term in _terms(there)))
        await poll(lambda: there.health() == PASSING)


async def test_mark_stays_until_every_check_is_written_under_the_term_of_the_lease(tmp_path: Path) -> None:
    """A registrar can be killed between the write of a workload and those of its checks."""
    [registered] = definitions.load(write_file(tmp_path, 1))
    metadata = {**marks.REGISTERED, marks.REGISTRAR: NAME, marks.TERM: "1", marks.CHECKS: "1"}
    with trio.fail_after(PATIENCE):
        async with headway.open_engine("memory:", app) as engine:
            client = engine.client
            await client.create(WORKLOAD.new("web-1", registered.workload.data, metadata=metadata))
            mark = await headway.until(client, HEALTH_STATUS, marks.gone_name("web-1"), lambda found: found is not None)
            term = str((await client.leases.acquire(marks.LEASES + NAME, NAME, 60.0)).term)
            workload = await _add_metadata(client, {marks.TERM: term})
            await engine.wait_idle()
            assert mark is not None
            assert (await client.read(HEALTH_STATUS, mark.name)).uid == mark.uid
            check = HealthStatus(type="http", status=Health.HEALTH_PASSING)
            metadata = {**marks.REGISTERED, marks.REGISTRAR: NAME, marks.TERM: term}
            await client.create(HEALTH_STATUS.new("web-1-alive", check, owner=workload, metadata=metadata))
            await headway.until_gone(client, HEALTH_STATUS, mark.name)


async def _add_metadata(client: headway.Client, metadata: dict[str, str]) -> headway.Resource[Workload]:
    """Add metadata to the stored workload, whose status a controller may be writing."""
    stored = await client.read(WORKLOAD, "web-1")
    return await client.apply(WORKLOAD.new("web-1", stored.data, metadata={**stored.metadata, **metadata}))


async def _within(scope: trio.CancelScope, there: World, file: Path) -> None:
    with scope:
        await there.run(file)


async def _held(client: headway.Client) -> None:
    """Wait until the registrar has its lease."""
    while not await client.leases.list(marks.LEASES):  # noqa: ASYNC110  # only calls tell
        await trio.sleep(0.01)


def _terms(there: World) -> set[str]:
    return {each.metadata.get(marks.TERM, "") for each in there.cache.list(HEALTH_STATUS)}
