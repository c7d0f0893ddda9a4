"""The service on a store in etcd that others write to: what a Write believes, and what it refuses."""

import pytest
from grpclib.const import Status

from headway.storage import EtcdBackend
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, a_note, an_id, registry
from tests.storage.etcd_kit import lagging, rigged


@pytest.mark.parametrize("what", ["an update", "a creation", "an owner", "a refusal"])
async def test_a_write_is_never_decided_on_what_was_only_believed(what: str) -> None:
    """Its engine has not heard of another's commits: it succeeds, or is refused, as if it had."""
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


async def test_a_write_that_nobody_disturbs_is_one_call() -> None:
    """It asks etcd nothing before its transaction."""
    async with rigged() as rig:
        calls = Calls(rig.store, registry())
        stored = await calls.stored(a_note("a", "1"))
        await calls.names(NOTE)
        before = len(rig.fake.calls)
        await calls.write(a_note("a", "2", version=stored.version))
        assert rig.fake.calls[before:] == ["/etcdserverpb.KV/Txn"]


async def test_a_delete_that_nobody_disturbs_is_one_question_and_one_call() -> None:
    """What its commit has removed it doesn't look for."""
    async with rigged() as rig:
        calls = Calls(rig.store, registry())
        await calls.stored(a_note("a", "1"))
        await calls.names(NOTE)
        before = len(rig.fake.calls)
        assert (await calls.delete(an_id("a"))).resource is None
        assert rig.fake.calls[before:] == ["/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"]


async def test_what_another_engine_has_reached_may_be_settled_and_raised_in() -> None:
    """An engine that hasn't heard of the commits refuses neither the revision nor the term."""
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
        settled = await there.raise_fence()
        assert settled.settled_revision == reached
        said = "is above the store's, "
        await refused(there.record_checkpoint(settled.fence, here.revision + 10_000), Status.INVALID_ARGUMENT, said)
        assert here.unexpected == there.unexpected == []
