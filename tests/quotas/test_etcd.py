"""Quotas on etcd: several engines keep one quota together, and commits that use it share transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from headway.errors import QuotaExceeded
from headway.quotas import Use, list_uses, quotas_now, rule_of
from headway.resource import pb
from headway.storage import EtcdBackend, stored_size
from headway.testing.conformance import EVERYTHING, KIND, put, putting, read_back, refused, remove, thing, uid_of
from headway.testing.conformance.quotas import quota
from tests.helpers.etcd_server import EtcdServer
from tests.storage.etcd_kit import is_write, rigged, until

ENGINES, WRITERS = 3, 12


@asynccontextmanager
async def open_keeping(url: str) -> AsyncIterator[EtcdBackend]:
    """Open a store that keeps quotas."""
    async with EtcdBackend(url) as backend:
        rule_of(backend)
        yield backend


async def replaced(store: EtcdBackend, resource: pb.Resource) -> None:
    """Replace a stored resource."""
    stored = await read_back(store, resource)
    assert stored is not None
    await put(store, resource, stored.version)


async def uses(store: EtcdBackend) -> Use:
    [found] = await list_uses(store)
    return found.use


@pytest.mark.parametrize(
    "room", [10, pytest.param(0, marks=pytest.mark.wide), pytest.param(150, marks=pytest.mark.wide)]
)
async def test_engines_never_exceed_a_quota_together(etcd: EtcdServer, room: int) -> None:
    """Exactly as many creations succeed as there is room for, and every engine counts the same."""
    url, made, refusals = f"etcd://{etcd.endpoint}{etcd.new_prefix()}", 0, 0
    async with open_keeping(url) as first, open_keeping(url) as second, open_keeping(url) as third:
        stores = (first, second, third)
        await put(first, quota(resources=room))

        async def write(store: EtcdBackend, name: str) -> None:
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
        # A commit that etcd decides several times is refused once.
        assert counted == refusals


async def test_quota_that_another_engine_declares_holds_at_once(etcd: EtcdServer) -> None:
    """No creation of any engine is stored after the commit of a quota that forbids it."""
    url, made = f"etcd://{etcd.endpoint}{etcd.new_prefix()}", []
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


async def test_lowered_quota_is_seen_by_a_writer_that_has_not_heard_of_it(etcd: EtcdServer) -> None:
    """A decision on an older state is rejected by etcd, and made again."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
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


async def _found(store: EtcdBackend, name: str) -> pb.Resource:
    found, _ = await store.list(KIND, EVERYTHING)
    return next(each for each in found if each.id is not None and each.id.name == name)


async def _found_quota(store: EtcdBackend) -> pb.Resource:
    found = await read_back(store, quota())
    assert found is not None
    return found


async def test_commits_that_use_a_quota_share_transactions() -> None:
    """Writers at the same time cost few transactions, as without a quota, and the last ones are refused."""
    async with rigged() as rig:
        rule_of(rig.store)
        await put(rig.store, quota(resources=40))
        # Until this store's watch has brought the quota, its transactions don't know of it.
        await _found_quota(rig.store)
        writes = 0
        before = rig.fake.on_txn

        def on_txn(request: object) -> None:
            nonlocal writes
            writes += is_write(request)  # type: ignore[arg-type]  # a TxnRequest
            before(request)  # type: ignore[arg-type]  # as above

        rig.fake.on_txn = on_txn
        refusals = 0

        async def write(number: int) -> None:
            nonlocal refusals
            try:
                await put(rig.store, thing(f"n{number}"))
            except QuotaExceeded:
                refusals += 1

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(write, number)
        assert refusals == 20
        assert writes < 15


async def test_use_is_counted_anew_by_an_engine_that_opens_the_store(etcd: EtcdServer) -> None:
    """The store does not hold it, so a restart cannot make it wrong."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
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


async def test_quota_has_room_again_in_a_cluster_that_was_restored() -> None:
    """The restored cluster is at lower revisions than those that this engine has written."""
    async with rigged() as rig:
        rule_of(rig.store)
        await put(rig.store, quota(resources=3))
        await put(rig.store, thing("kept"))
        saved = rig.fake.saved()
        for name in "abcdef":
            made = thing(name)
            await put(rig.store, made)
            await remove(rig.store, made, made.version)
        rig.fake.restore(saved)
        rig.fake.cancel_watches("restored")
        await until(lambda: rig.store.counts["other histories"] == 1)
        await until(lambda: rig.fake.watchers)
        for name in "xy":
            await put(rig.store, thing(name))
        await refused(QuotaExceeded, put(rig.store, thing("z")), "a creation above the quota")
        assert (await uses(rig.store)).resources == 3


async def test_update_has_room_in_one_limit_of_a_quota_above_its_other(etcd: EtcdServer) -> None:
    """A number that is above its limit does not keep a commit waiting that adds nothing to it."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    async with open_keeping(url) as store:
        for name in "ab":
            await put(store, thing(name))
        await put(store, quota(resources=1, bytes=1 << 20))
        stored = await _found(store, "a")
        with trio.fail_after(5):
            await put(store, thing("a", "x" * 300, uid=uid_of(stored)), stored.version)
