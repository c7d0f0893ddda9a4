"""The reaper deletes the resources of a deleted owner, and survives crashes at any step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.events import Reconciled, ignore
from headway.resource import TOMBSTONE, Kind, Position, Resource, ResourceType, Within, pb
from headway.storage import Backend, Fence, LogWatch, MemoryBackend, Operation, Remove
from tests.helpers.declared import CHILD, NOTE, PLANET, REGION, TYPES, Note


def an_app(*types: ResourceType[Any]) -> headway.App:
    app = headway.App("tests")
    for type in types or TYPES:
        app.registry.register(type)
    return app


@asynccontextmanager
async def engine_on(
    clock: MockClock, store: Backend, *types: ResourceType[Any], heard: list[object] | None = None
) -> AsyncIterator[headway.Engine]:
    """Run an engine under virtual time."""
    assert clock.autojump_threshold == 0
    async with headway.open_engine(store, an_app(*types), report=ignore if heard is None else heard.append) as engine:
        yield engine


async def wait_idle(engine: headway.Engine) -> None:
    with trio.fail_after(300):
        await engine.wait_idle()


async def family(client: headway.Client, name: str = "boss") -> Resource[Note]:
    """Write an owner, its children in other scopes and tenancies, and their children."""
    boss = await client.write(NOTE.new(name))
    region = await client.write(REGION.new(f"{name}-region", owner=boss))
    await client.write(PLANET.new(f"{name}-planet", owner=boss))
    for index in range(3):
        child = await client.write(CHILD.new(f"{name}-{index}", owner=region))
        await client.write(NOTE.new(f"{name}-{index}-own", owner=child))
    return boss


async def everything(client: headway.Client) -> list[str]:
    found: list[Resource[Note]] = []
    for type in (NOTE, CHILD, REGION, PLANET):
        found += await client.list(type)
    return sorted(each.name for each in found) + [each.name for each in await client.list(TOMBSTONE)]


async def test_children_are_deleted_with_their_owner(autojump_clock: MockClock) -> None:
    """This covers types, scopes and generations of owners. Nothing else is deleted, and no tombstone stays."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        other = await family(engine.client, "other")
        others = await everything(engine.client)
        await engine.client.delete(await family(engine.client))
        await wait_idle(engine)
        assert await everything(engine.client) == others
        assert await engine.client.get(NOTE, other.id) is not None
        assert autojump_clock.current_time() < 1


async def test_children_of_a_living_owner_are_never_deleted(autojump_clock: MockClock) -> None:
    """The owner's deletion is rejected, the owner is only marked, or its name belongs to another incarnation."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        boss = await engine.client.write(NOTE.new("boss", metadata={"finalizers": "held"}))
        await engine.client.write(CHILD.new("child", owner=boss))
        with pytest.raises(headway.Conflict):
            await engine.client.delete(boss, version="1234567")
        await engine.client.delete(boss)
        await wait_idle(engine)
        assert await everything(engine.client) == ["boss", "child"]
        first = await engine.client.write(NOTE.new("first"))
        await engine.client.write(CHILD.new("of-first", owner=first))
        await engine.client.delete(first)
        second = await engine.client.write(NOTE.new("first"))
        await engine.client.write(CHILD.new("of-second", owner=second))
        await wait_idle(engine)
        assert await everything(engine.client) == ["boss", "child", "first", "of-second"]


async def test_tombstone_waits_for_a_child_with_finalizers(autojump_clock: MockClock) -> None:
    """The child is marked at once, and the tombstone is removed within seconds of the child."""
    async with engine_on(autojump_clock, MemoryBackend()) as engine:
        boss = await engine.client.write(NOTE.new("boss"))
        await engine.client.write(CHILD.new("held", owner=boss, metadata={"finalizers": "a"}))
        await engine.client.write(CHILD.new("free", owner=boss))
        await engine.client.delete(boss)
        await wait_idle(engine)
        held = await engine.client.read(CHILD, "held")
        assert held.is_deleting
        assert await everything(engine.client) == ["held", f"tombstone-{boss.uid.lower()}"]
        held.finalizers = []
        await engine.client.write(held)
        await trio.sleep(6)
        await wait_idle(engine)
        assert await everything(engine.client) == []


class SlowLists(MemoryBackend):
    """A backend that takes as long for each list as one of very many resources does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.lists = 0

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        self.lists += 1
        await trio.sleep(self.seconds)
        return await super().list_by_owner(owner_uid)

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        # A list of a whole type is the beginning of a watch.
        if within.namespace == "up":
            self.lists += 1
            await trio.sleep(self.seconds)
        return await super().watch(kind, within, resume_after)


@pytest.mark.parametrize(("seconds", "at_most"), [(1.0, 15), (20.0, 7)])
async def test_very_many_held_children_are_listed_rarely(
    autojump_clock: MockClock, seconds: float, at_most: int
) -> None:
    """The rest between two looks grows with the time that one takes, up to a minute. It was always five seconds."""
    store = SlowLists(seconds)
    async with engine_on(autojump_clock, store) as engine:
        boss = await engine.client.write(NOTE.new("boss"))
        await engine.client.write(CHILD.new("held", owner=boss, metadata={"finalizers": "a"}))
        await engine.client.delete(boss)
        await trio.sleep(200)
        before = store.lists
        await trio.sleep(150)
        # Each look lists twice.
        assert 2 <= store.lists - before <= at_most


class OneIsStuck(MemoryBackend):
    """A backend that refuses to remove the resource ``stuck`` while its flag is set."""

    stuck = True

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if self.stuck and any(isinstance(each, Remove) and each.key[2] == "stuck" for each in operations):
            raise headway.errors.StoreUnusable("this one can't be removed")
        return await super().commit(operations, fence)


async def test_child_that_cannot_be_deleted_does_not_block_others(autojump_clock: MockClock) -> None:
    """All others are deleted in the first pass. The failing child is retried, and named."""
    store = OneIsStuck()
    heard: list[object] = []
    async with engine_on(autojump_clock, store, heard=heard) as engine:
        boss = await engine.client.write(NOTE.new("boss"))
        for name in ("a", "stuck", "z"):
            await engine.client.write(CHILD.new(name, owner=boss))
        await engine.client.delete(boss)
        await trio.sleep(0.05)
        assert await everything(engine.client) == ["stuck", f"tombstone-{boss.uid.lower()}"]
        failed = [each for each in heard if isinstance(each, Reconciled) and each.error is not None]
        assert "1 resources could not be deleted, the first Child stuck: " in str(failed[0].error)
        store.stuck = False
        await wait_idle(engine)
        assert await everything(engine.client) == []


async def test_child_of_an_unregistered_type_does_not_block_others(autojump_clock: MockClock) -> None:
    """It stays, with the tombstone, until a program that knows its type runs."""
    store = MemoryBackend()
    async with engine_on(autojump_clock, store) as engine:
        boss = await engine.client.write(NOTE.new("boss", metadata={"finalizers": "a"}))
        await engine.client.write(CHILD.new("unknown", owner=boss))
        await engine.client.write(REGION.new("known", owner=boss))
    async with engine_on(autojump_clock, store, NOTE, REGION) as engine:
        boss.finalizers = []
        await engine.client.delete(await engine.client.write(boss))
        await wait_idle(engine)
        assert await engine.client.list(REGION) == []
        assert len(await engine.client.list(TOMBSTONE)) == 1
    async with engine_on(autojump_clock, store, CHILD) as engine:
        await trio.sleep(10)
        assert await engine.client.list(CHILD) == []
        assert await engine.client.list(TOMBSTONE) == []


class Crashing(MemoryBackend):
    """A backend that ends the scope after a number of commits, as a crash would."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.crash = trio.CancelScope()

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        if self.left is not None:
            if self.left == 0:
                self.crash.cancel()
                await trio.sleep_forever()
            self.left -= 1
        return await super().commit(operations, fence)


@pytest.mark.parametrize("commits", range(17))
async def test_deletion_resumes_after_a_crash_between_any_two_steps(autojump_clock: MockClock, commits: int) -> None:
    """The next start finds the remaining work by the tombstones alone."""
    store = Crashing()
    with store.crash:
        async with engine_on(autojump_clock, store) as engine:
            boss = await family(engine.client)
            await wait_idle(engine)
            await engine.client.delete(boss)
            store.left = commits
            await wait_idle(engine)
            await trio.sleep(60)
    assert store.crash.cancelled_caught
    store.left = None
    async with engine_on(autojump_clock, store) as engine:
        await wait_idle(engine)
        assert await everything(engine.client) == []
