"""Quotas on stores that several engines have open: they keep one quota together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from headway.errors import QuotaExceeded
from headway.quotas import Use, list_uses, quotas_now, rule_of
from headway.resource import pb
from headway.storage import Backend, open_store, stored_size
from headway.testing.conformance import EVERYTHING, KIND, put, putting, read_back, refused, remove, thing, uid_of
from headway.testing.conformance.quotas import quota
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.postgres_server import PostgresServer

ENGINES, WRITERS = 3, 12


@pytest.fixture(params=["etcd", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a new store."""
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.new_url()
    etcd: EtcdServer = request.getfixturevalue("etcd")
    return f"etcd://{etcd.endpoint}{etcd.new_prefix()}"


@asynccontextmanager
async def open_keeping(url: str) -> AsyncIterator[Backend]:
    """Open a store that keeps quotas."""
    async with open_store(url) as backend:
        rule_of(backend)
        yield backend


async def replaced(store: Backend, resource: pb.Resource) -> None:
    """Replace a stored resource."""
    stored = await read_back(store, resource)
    assert stored is not None
    await put(store, resource, stored.version)


async def uses(store: Backend) -> Use:
    [found] = await list_uses(store)
    return found.use


@pytest.mark.parametrize(
    "room", [10, pytest.param(0, marks=pytest.mark.wide), pytest.param(150, marks=pytest.mark.wide)]
)
async def test_engines_never_exceed_a_quota_together(url: str, room: int) -> None:
    """Exactly as many creations succeed as there is room for, and every engine counts the same."""
    made = refusals = 0
    async with open_keeping(url) as first, open_keeping(url) as second, open_keeping(url) as third:
        stores = (first, second, third)
        await put(first, quota(resources=room))

        async def write(store: Backend, name: str) -> None:
            nonlocal made, refusals
            for index in range(4):
                try:
                    await put(store, thing(f"{name}-{index}", "x" * 50))
                    made += 1
                except QuotaExceeded as error:
                    refusals += (error.limit, error.use, error.adds) == (room, room, 1)

        async with trio.open_nursery() as nursery:
            for number, store in enumerate(stores):
                for writer in range(WRITERS):
                    nursery.start_soon(write, store, f"e{number}w{writer}")
        tried = ENGINES * WRITERS * 4
        assert (made, refusals) == (min(room, tried), max(tried - room, 0))
        found, _ = await second.list(KIND, EVERYTHING)
        assert len(found) == made
        counted = 0
        for store in stores:
            assert await uses(store) == Use(made, sum(map(stored_size, found)))
            counted += quotas_now(store)[0].refused
        # A commit that is decided several times is refused once.
        assert counted == refusals


async def test_quota_that_another_engine_declares_holds_at_once(url: str) -> None:
    """No creation of any engine is stored after the commit of a quota that forbids it."""
    made: list[int] = []
    async with open_keeping(url) as here, open_keeping(url) as there:

        async def write(name: str) -> None:
            for index in range(10):
                try:
                    made.append((await put(here, thing(f"{name}-{index}"))).revision)
                except QuotaExceeded:
                    return

        async with trio.open_nursery() as nursery:
            for writer in range(8):
                nursery.start_soon(write, f"w{writer}")
            declared = (await put(there, quota(resources=0))).revision
        assert all(revision < declared for revision in made)
        assert (await uses(here)).resources == len(made)


async def test_lowered_quota_is_seen_by_a_writer_that_has_not_heard_of_it(url: str) -> None:
    """A decision on an older state is made again, or not made at all."""
    async with open_keeping(url) as here, open_keeping(url) as there:
        await put(here, quota(resources=5))
        await put(here, thing("a"))
        for most in (1, 2, 1):
            await replaced(there, quota(resources=most))
            if most == 1:
                await refused(QuotaExceeded, put(here, thing("b")), "a creation above the lowered quota")
                continue
            await put(here, thing("b"))
            await remove(there, stored := await _found(there, "b"), stored.version)
        await remove(there, quota(resources=1), (await _found_quota(there)).version)
        await put(here, thing("b"))


async def _found(store: Backend, name: str) -> pb.Resource:
    found, _ = await store.list(KIND, EVERYTHING)
    return next(each for each in found if each.id is not None and each.id.name == name)


async def _found_quota(store: Backend) -> pb.Resource:
    found = await read_back(store, quota())
    assert found is not None
    return found


@pytest.mark.parametrize("between", ["nothing", "fence", "lease"])
async def test_commit_of_no_resource_hides_no_use(url: str, between: str) -> None:
    """An engine that raises a fence or acquires a lease has not counted what others have stored before it."""
    async with open_keeping(url) as here, open_keeping(url) as there:
        await put(there, thing("a"))
        await put(here, quota(resources=2))
        await put(here, thing("b"))
        for store in (here, there):
            if between == "fence":
                await store.raise_fence("c", "", 0, 0)
            elif between == "lease":
                await store.acquire_lease(f"l{store is here}", "web-1", 60.0)
            await refused(QuotaExceeded, put(store, thing("c")), "a creation above the quota")


async def test_use_is_counted_anew_by_an_engine_that_opens_the_store(url: str) -> None:
    """The store does not hold it, so a restart cannot make it wrong."""
    async with open_keeping(url) as store:
        await store.commit([putting(thing(f"n{number}", "x" * number)) for number in range(20)])
        await put(store, quota(resources=21, bytes=1 << 20))
        before = await uses(store)
        assert before.resources == 20
    async with open_keeping(url) as store:
        assert quotas_now(store) == []
        await put(store, last := thing("last"))
        assert await uses(store) == before.plus(Use(1, stored_size(last)))
        await refused(QuotaExceeded, put(store, thing("more")), "a creation above the quota")
        assert uid_of(last)
