"""Quotas on etcd: commits that use one share transactions, and a restored cluster has room again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from headway.errors import QuotaExceeded
from headway.quotas import Use, list_uses, rule_of
from headway.resource import pb
from headway.storage import EtcdBackend
from headway.testing.conformance import EVERYTHING, KIND, put, read_back, refused, remove, thing, uid_of
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


async def uses(store: EtcdBackend) -> Use:
    [found] = await list_uses(store)
    return found.use


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
