"""The answers of a DNS server while the catalog cannot be reached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from catalog import app
from catalog.dns import Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.types import SERVICE
from tests.catalog.dns.dns_kit import PATIENCE, Catalog, outcome, poll

NAME = "web.service.consul"


@asynccontextmanager
async def served(store: str, address: str) -> AsyncIterator[str]:
    """Serve a catalog in this process, as long as the block runs."""
    async with headway.open_engine(store, app, network=headway.Network([address], insecure=True)) as engine:
        yield engine.addresses[0]


@asynccontextmanager
async def following(
    address: str, *, stale_limit: float, ask: Callable[[], Awaitable[object]] | None = None
) -> AsyncIterator[Catalog]:
    """Run a DNS server that answers from the catalog at an address. By default, it asks this catalog."""
    source = Source("consul", stale_limit=stale_limit)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(headway.connect(address, app))
        nursery = await stack.enter_async_context(trio.open_nursery())
        opening = headway.open_cache(address, app, watches=WATCHES, indexes=INDEXES)
        nursery.start_soon(source.follow, opening, ask or (lambda: client.get(SERVICE, "none")))
        yield Catalog(client, None, source)  # type: ignore[arg-type]  # its cache is opened later
        nursery.cancel_scope.cancel()


@pytest.mark.wide
async def test_servfail_until_primed_and_when_cut_off_for_too_long(tmp_path: Path) -> None:
    """A server with patience goes on with what it has, one without answers SERVFAIL. Later both are current again."""
    store, address = f"sqlite:{tmp_path}/catalog.db", f"unix:{tmp_path}/catalog.sock"
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        strict = await stack.enter_async_context(following(address, stale_limit=0.2))
        patient = await stack.enter_async_context(following(address, stale_limit=10 * PATIENCE))
        assert outcome(strict.ask(NAME)) == outcome(patient.ask(NAME)) == "SERVFAIL"
        async with served(store, address):
            for each in (strict, patient):
                await each.until_outcome("no.service.consul", "NXDOMAIN")
            service = await strict.client.create(SERVICE.new("web"))
            for each in (strict, patient):
                await each.until_outcome(NAME, "NODATA")
        await strict.until_outcome(NAME, "SERVFAIL")
        assert outcome(patient.ask(NAME)) == "NODATA"
        async with served(store, address):
            await strict.until_outcome(NAME, "NODATA")
            await strict.client.delete(service)
            for each in (strict, patient):
                await each.until_outcome(NAME, "NXDOMAIN")


async def test_servfail_when_the_streams_are_gone_although_calls_are_answered(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/catalog.sock"
    with trio.fail_after(PATIENCE):
        async with following(address, stale_limit=0.2, ask=trio.lowlevel.checkpoint) as catalog:
            async with served("memory:", address):
                await catalog.until_outcome("no.service.consul", "NXDOMAIN")
            await catalog.until_outcome("no.service.consul", "SERVFAIL")


async def test_servfail_when_calls_are_not_answered_although_the_streams_are_open() -> None:
    """A server that hangs keeps its connections."""
    source = Source("consul", stale_limit=0.2)
    hangs = False

    async def ask() -> None:
        if hangs:
            await trio.sleep_forever()

    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        engine = await stack.enter_async_context(headway.open_engine("memory:", app))
        nursery = await stack.enter_async_context(trio.open_nursery())
        opening = engine.open_cache(watches=WATCHES, indexes=INDEXES)
        nursery.start_soon(source.follow, opening, ask)
        await poll(lambda: source.zone() is not None)
        hangs = True
        await poll(lambda: source.zone() is None)
        hangs = False
        await poll(lambda: source.zone() is not None)
        nursery.cancel_scope.cancel()
