"""The remover deletes a marked resource without finalizers, whoever removed the last finalizer."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.events import Reconciled
from headway.protobuf import copy_message
from headway.resource import DELETION_TIMESTAMP, TOMBSTONE
from headway.storage import MemoryBackend
from headway.versions import migrate
from tests.builtin.test_reaper import Crashing, engine_on, everything, wait_idle
from tests.helpers.calls import Calls
from tests.helpers.declared import CHILD, HOOKED, NOTE, PLANET, REGION, Note, id_of, registry
from tests.helpers.versions import V1, V3, a_team, roster, versions, without_converters


async def held(client: headway.Client, type: headway.ResourceType[Note] = NOTE) -> headway.Resource[Note]:
    """Return a marked resource with two finalizers."""
    made = await client.write(type.new("held", metadata={"finalizers": "a b"}))
    marked = await client.delete(made)
    assert marked is not None
    return marked


async def release(client: headway.Client, resource: headway.Resource[Note]) -> headway.Resource[Note]:
    while resource.finalizers:
        resource.finalizers = sorted(resource.finalizers)[1:]
        resource = await client.write(resource)
    return resource


@pytest.mark.parametrize("type", [NOTE, REGION, PLANET, HOOKED], ids=lambda each: each.name.kind)
async def test_marked_resource_is_removed_after_its_last_finalizer(
    autojump_clock: MockClock, type: headway.ResourceType[Note]
) -> None:
    """It is removed one to five seconds later, together with its pending removal."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        await release(engine.client, await held(engine.client, type))
        began = trio.current_time()
        with trio.fail_after(5):
            await headway.until_gone(engine.client, type, "held")
        assert trio.current_time() - began >= 1
        await wait_idle(engine)
        assert await engine.client.list(TOMBSTONE) == []


async def test_resource_with_a_finalizer_or_without_a_mark_stays(autojump_clock: MockClock) -> None:
    """A resource stays while it has one finalizer left of two, or if it has none but is not deleted."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        marked = await held(engine.client)
        marked.finalizers = ["b"]
        await engine.client.write(marked)
        free = await engine.client.write(NOTE.new("free", metadata={"finalizers": "a"}))
        free.finalizers = []
        await engine.client.write(free)
        assert await engine.client.list(TOMBSTONE) == []
        await trio.sleep(60)
        assert await everything(engine.client) == ["free", "held"]


async def test_second_delete_succeeds(autojump_clock: MockClock) -> None:
    """It succeeds before and after the removal. The same commit deletes the pending removal."""
    store = MemoryBackend()
    consul = Calls(store, registry()).as_consul()
    async with engine_on(autojump_clock, store) as engine:
        for wait in (0.0, 0.5, 10.0):
            left = await release(engine.client, await held(engine.client))
            assert await engine.client.read(NOTE, "held") == left
            await trio.sleep(wait)
            reply = await consul.delete(id_of(left.message()))
            assert reply.resource is None
            assert await engine.client.get(NOTE, "held") is None
            assert await engine.client.list(TOMBSTONE) == []
            await wait_idle(engine)


async def test_another_incarnation_of_the_name_is_never_removed(autojump_clock: MockClock) -> None:
    """The name is reused within a second, and the new resource is even marked and has a finalizer."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        left = await release(engine.client, await held(engine.client))
        await engine.client.delete(left)
        again = await held(engine.client)
        await trio.sleep(60)
        assert (await engine.client.read(NOTE, "held")).uid == again.uid


async def test_concurrent_status_write_does_not_prevent_the_removal(autojump_clock: MockClock) -> None:
    """The removal compares the version that was read; after a conflict it reads again."""
    heard: list[object] = []
    async with engine_on(autojump_clock, MemoryBackend(), heard=heard) as engine:
        left = await release(engine.client, await held(engine.client))
        condition = headway.Condition(type="Ready", state=headway.ConditionState.FALSE, reason="Going")
        await trio.sleep(0.5)
        await engine.client.write_status(left, "tests", [condition])
        with trio.fail_after(5):
            await headway.until_gone(engine.client, NOTE, "held")
    assert not [each for each in heard if isinstance(each, Reconciled) and each.error is not None]


@pytest.mark.parametrize("commits", range(5))
async def test_removal_resumes_after_a_crash_between_any_two_steps(autojump_clock: MockClock, commits: int) -> None:
    """The write that released the resource stored the pending removal, so the next start finds it."""
    store = Crashing()
    with store.crash:
        async with engine_on(autojump_clock, store) as engine:
            marked = await held(engine.client)
            await wait_idle(engine)
            store.left = commits
            await release(engine.client, marked)
            await trio.sleep(60)
            store.crash.cancel()
            await trio.sleep_forever()
    store.left = None
    async with engine_on(autojump_clock, store) as engine:
        left = await engine.client.get(NOTE, "held")
        if left is not None:
            await release(engine.client, left)
        await trio.sleep(60)
        await wait_idle(engine)
        assert await everything(engine.client) == []
        assert await engine.client.list(TOMBSTONE) == []


async def test_removal_of_an_unregistered_type_waits_for_a_program_that_knows_it(autojump_clock: MockClock) -> None:
    """The pending removal stays in the store until then."""
    store = MemoryBackend()
    calls = Calls(store, registry())
    async with engine_on(autojump_clock, store, CHILD) as engine:
        made = await calls.stored(NOTE.new("held", metadata={"finalizers": "a"}).message())
        left = (await calls.delete(id_of(made))).resource
        assert left is not None
        marked = copy_message(left)
        del marked.metadata["finalizers"]
        await calls.write(marked)
        await trio.sleep(60)
        assert len(await engine.client.list(TOMBSTONE)) == 1
    async with engine_on(autojump_clock, store, NOTE) as engine:
        await trio.sleep(5)
        assert await engine.client.list(NOTE) == []
        assert await engine.client.list(TOMBSTONE) == []


async def test_resource_is_removed_in_another_version_of_its_type(autojump_clock: MockClock) -> None:
    """After a migration, a program may no longer declare the version that the removal names."""
    store = MemoryBackend()
    old = Calls(store, without_converters())
    made = await old.stored(a_team(V1, roster("ada"), metadata={"finalizers": "a"}))
    left = (await old.delete(id_of(made))).resource
    assert left is not None
    marked = copy_message(left)
    del marked.metadata["finalizers"]
    await old.write(marked)
    assert (await migrate(store, versions())).rewritten == 1
    async with engine_on(autojump_clock, store, V3) as engine:
        assert len(await engine.client.list(V3)) == 1
        await trio.sleep(30)
        assert await engine.client.list(V3) == []
        assert await engine.client.list(TOMBSTONE) == []


async def test_write_that_marks_a_resource_without_finalizers_removes_it(autojump_clock: MockClock) -> None:
    """A Write can set the mark as Delete does."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        note = await engine.client.write(NOTE.new("held"))
        note.metadata[DELETION_TIMESTAMP] = "2024-02-02T10:00:00Z"
        await engine.client.write(note)
        with trio.fail_after(5):
            await headway.until_gone(engine.client, NOTE, "held")
