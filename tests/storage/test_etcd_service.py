"""The service on a store in etcd that other engines write to: optimistic reads, and rejections."""

import pytest
from grpclib.const import Status

from headway.resource import NAMESPACE, pb
from headway.storage import EtcdBackend
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, a_note, an_id, registry
from tests.storage.etcd_kit import lagging, rigged


@pytest.mark.parametrize("what", ["an update", "a creation", "an owner", "a refusal"])
async def test_write_is_never_decided_on_an_unverified_read(what: str) -> None:
    """The mirror lacks another engine's commits, but the write succeeds or fails as if the mirror had them."""
    async with rigged() as rig, EtcdBackend(rig.url) as behind:
        here, there = Calls(rig.store, registry()), Calls(behind, registry())
        first = await here.stored(a_note("first", "1"))
        await there.names(NOTE)
        rig.fake.muted = rig.fake.watches[-1]
        second = await here.stored(a_note("first", "2", version=first.version))
        await here.stored(a_note("boss"))
        if what == "a creation":
            await here.delete(an_id("first"))
        heard = behind.position.revision
        assert heard < rig.store.position.revision
        rig.fake.muted = None
        rig.fake.on_range = lagging(rig.fake)
        if what == "an update":
            await there.write(a_note("first", "3", version=second.version))
        elif what == "a creation":
            assert (await there.stored(a_note("first", "3"))).id != first.id
        elif what == "an owner":
            await there.write(a_note("child", owner=an_id("boss")))
        else:
            await refused(there.write(a_note("first", "3", version=first.version)), Status.ABORTED, "not")
        assert here.unexpected == there.unexpected == []


async def test_undisturbed_write_is_one_call() -> None:
    """Nothing is read before the transaction."""
    async with rigged() as rig:
        calls = Calls(rig.store, registry())
        stored = await calls.stored(a_note("a", "1"))
        await calls.names(NOTE)
        before = len(rig.fake.calls)
        await calls.write(a_note("a", "2", version=stored.version))
        assert rig.fake.calls[before:] == ["/etcdserverpb.KV/Txn"]


async def test_undisturbed_delete_is_one_read_and_one_transaction() -> None:
    """It does not read again what its commit has removed."""
    async with rigged() as rig:
        calls = Calls(rig.store, registry())
        await calls.stored(a_note("a", "1"))
        await calls.names(NOTE)
        before = len(rig.fake.calls)
        assert (await calls.delete(an_id("a"))).resource is None
        assert rig.fake.calls[before:] == ["/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"]


async def test_revision_and_term_of_another_engine_are_accepted() -> None:
    """An engine that has not received the commits accepts a checkpoint at that revision, and a fence of that term."""
    async with rigged() as rig, EtcdBackend(rig.url) as behind:
        here, there = Calls(rig.store, registry()), Calls(behind, registry())
        await there.names(NOTE)
        rig.fake.muted = rig.fake.watches[-1]
        fence = (await here.raise_fence()).fence
        assert fence is not None
        await here.write(a_note())
        reached = here.revision
        assert behind.position.revision < reached
        rig.fake.muted = None
        rig.fake.on_range = lagging(rig.fake)
        await there.record_checkpoint(fence, reached)
        await there.raise_fence(term=fence.term, number=1)
        raised = await there.raise_fence()
        assert raised.settled_revision == reached
        said = "is above the store's, "
        await refused(there.record_checkpoint(raised.fence, here.revision + 10_000), Status.INVALID_ARGUMENT, said)
        assert here.unexpected == there.unexpected == []


async def test_update_requires_that_its_namespace_stays() -> None:
    """Another engine deletes the namespace. An engine that has not received this refuses an update all the same."""
    async with rigged() as rig, EtcdBackend(rig.url) as behind:
        here, there = Calls(rig.store, registry()), Calls(behind, registry())
        await here.write(pb.Resource(id=an_id("up", NAMESPACE)))
        await here.write(a_note("first", "1", namespace="up"))
        await there.names(NOTE)
        rig.fake.muted = rig.fake.watches[-1]
        await here.delete(an_id("up", NAMESPACE))
        assert behind.position.revision < rig.store.position.revision
        rig.fake.muted = None
        rig.fake.on_range = lagging(rig.fake)
        said = "namespace 'up' is marked for deletion"
        await refused(there.write(a_note("first", "2", namespace="up")), Status.INVALID_ARGUMENT, said)
        assert here.unexpected == there.unexpected == []
