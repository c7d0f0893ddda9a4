"""The deletion of namespaces and partitions deletes their content and shows its progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import headway
from headway.resource import EMPTIED_FINALIZER, TOMBSTONE, Registry, Resource, ResourceType, Scope
from headway.storage import MemoryBackend
from tests.helpers.declared import CHILD, NOTE, NOTE_V2, PLANET, REGION, TYPES, Memo


@headway.message(name="hashicorp.consul.tenancy.v2beta1.Namespace")
class ConsulNamespace:
    description: str = headway.field(1)


CONSULS = ResourceType("tenancy", "v2beta1", "Namespace", ConsulNamespace, scope=Scope.PARTITION)


@asynccontextmanager
async def an_engine(clock: trio.testing.MockClock, *more: ResourceType[Any]) -> AsyncIterator[headway.Engine]:
    """Run an engine under virtual time."""
    assert clock.autojump_threshold == 0
    app = headway.App("tests")
    for type in [*TYPES, *more]:
        app.registry.register(type)
    async with headway.open_engine(MemoryBackend(), app, report=lambda _: None) as engine:
        yield engine


async def wait_idle(engine: headway.Engine) -> None:
    with trio.fail_after(300):
        await engine.wait_idle()


async def left(client: headway.Client) -> list[str]:
    """Return all stored resources of every known type."""
    types: list[ResourceType[Any]] = [*Registry(), *TYPES]
    return [str(each.id) for type in types for each in await client.list(type)]


async def test_deleted_namespace_is_emptied_and_removed(autojump_clock: trio.testing.MockClock) -> None:
    """This covers every type and version in it. Resources elsewhere stay."""
    async with an_engine(autojump_clock) as engine:
        client = engine.client
        for name in ("up", "stays"):
            await client.write(headway.NAMESPACE.new(name))
            await client.write(NOTE.new("one", namespace=name))
            await client.write(NOTE_V2.new("two", Memo(), namespace=name))
            await client.write(CHILD.new("three", namespace=name))
        await client.write(NOTE.new("one"))
        await client.write(REGION.new("one"))
        await client.delete(headway.NAMESPACE.id("up"))
        await wait_idle(engine)
        assert await left(client) == [
            "Namespace stays",
            "Note one",
            "Note stays/one",
            "Note stays/two",
            "Child stays/three",
            "Region one",
        ]
        assert autojump_clock.current_time() < 1


async def test_namespace_of_another_version_is_a_namespace(autojump_clock: trio.testing.MockClock) -> None:
    """A program can declare Consul's own type: writes find the namespace, and its deletion empties it."""
    async with an_engine(autojump_clock, CONSULS) as engine:
        client = engine.client
        unit = await client.write(CONSULS.new("up", ConsulNamespace(description="of Consul")))
        assert unit.finalizers == {EMPTIED_FINALIZER}
        await client.write(headway.NAMESPACE.new("was-v1"))
        await client.write(CONSULS.new("was-v1", ConsulNamespace(description="is v2beta1")))
        for name in ("up", "was-v1"):
            await client.write(NOTE.new("one", namespace=name))
            await client.delete(CONSULS.id(name))
        await wait_idle(engine)
        assert await client.list(CONSULS) == []
        assert await left(client) == []
        await client.write(headway.PARTITION.new("far"))
        await client.write(CONSULS.new("up", partition="far"))
        await client.write(NOTE.new("one", partition="far", namespace="up"))
        await client.delete(headway.PARTITION.id("far"))
        # Three seconds are enough, because the partition is reconciled every second.
        await trio.sleep(3)
        assert await client.list(CONSULS) == []
        assert await left(client) == []
        assert autojump_clock.current_time() < 10


async def test_ownership_does_not_keep_resources_in_a_deleted_namespace(autojump_clock: trio.testing.MockClock) -> None:
    """An owner elsewhere keeps nothing in it, and children elsewhere of resources in it are deleted, too."""
    async with an_engine(autojump_clock) as engine:
        client = engine.client
        await client.write(headway.NAMESPACE.new("up"))
        planet = await client.write(PLANET.new("alive"))
        await client.write(NOTE.new("owned", namespace="up", owner=planet))
        inside = await client.write(NOTE.new("owner", namespace="up"))
        await client.write(REGION.new("outside", owner=inside))
        await client.delete(headway.NAMESPACE.id("up"))
        await wait_idle(engine)
        assert await left(client) == ["Planet alive"]
        assert await client.list(TOMBSTONE) == []


async def test_deletion_shows_its_progress_while_finalizers_block_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A condition lists the remaining resources and finalizers.

    The deletion continues within a second of the last one.
    """
    async with an_engine(autojump_clock) as engine:
        client = engine.client
        await client.write(headway.NAMESPACE.new("up"))
        for name in ("a", "b", "c"):
            held = {"finalizers": "backup"} if name != "c" else {}
            await client.write(NOTE.new(name, namespace="up", metadata=held))
        await client.delete(headway.NAMESPACE.id("up"))
        await wait_idle(engine)
        assert await left(client) == ["Namespace up", "Note up/a", "Note up/b"]
        unit = await client.read(headway.NAMESPACE, "up")
        (condition,) = unit.status[EMPTIED_FINALIZER].conditions
        assert (condition.type, condition.state) == ("Emptied", headway.ConditionState.FALSE)
        assert condition.reason == "DeletionInProgress"
        assert condition.message == "left: 2 tests.v1.Note; finalizers: 2 backup"
        version = unit.version
        await trio.sleep(5)
        assert (await client.read(headway.NAMESPACE, "up")).version == version
        for held_note in await client.list(NOTE):
            held_note.finalizers = []
            await client.write(held_note)
        await trio.sleep(1.5)
        assert await left(client) == []


async def test_deleted_partition_is_emptied_with_all_its_namespaces(autojump_clock: trio.testing.MockClock) -> None:
    """This covers the default namespace, the partition's own resources, and each other namespace."""
    async with an_engine(autojump_clock) as engine:
        client = engine.client
        for partition in ("far", "stays"):
            await client.write(headway.PARTITION.new(partition))
            await client.write(headway.NAMESPACE.new("up", partition=partition))
            await client.write(NOTE.new("a", partition=partition, namespace="up"))
            await client.write(NOTE.new("b", partition=partition))
            await client.write(REGION.new("c", partition=partition))
        await client.delete(headway.PARTITION.id("far"))
        await wait_idle(engine)
        await trio.sleep(3)
        assert await left(client) == [
            "Partition stays",
            "Namespace stays/up",
            "Note stays/default/b",
            "Note stays/up/a",
            "Region stays/c",
        ]


async def test_resource_created_during_the_deletion_is_rejected_or_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """At no moment can a resource outlive its namespace."""
    async with an_engine(autojump_clock) as engine:
        client = engine.client
        await client.write(headway.NAMESPACE.new("up"))
        refused: list[str] = []

        async def create(who: int) -> None:
            for index in range(1000):
                try:
                    await client.write(NOTE.new(f"n{who}-{index}", namespace="up"))
                except headway.errors.InvalidArgument:
                    refused.append(f"n{who}-{index}")
                    return

        async with trio.open_nursery() as nursery:
            for who in range(3):
                nursery.start_soon(create, who)
            while len(await client.list(NOTE)) < 10:
                await trio.lowlevel.checkpoint()
            await client.delete(headway.NAMESPACE.id("up"))
        await wait_idle(engine)
        await trio.sleep(3)
        assert len(refused) == 3
        assert await left(client) == []


FORMER = ResourceType("former", "v1", "Thing", Memo)
FORMER_NOTE = ResourceType("tests", "v9", "Note", Memo)
FORMER_REGION = ResourceType("former", "v1", "Region", Memo, scope=headway.Scope.PARTITION)
FORMERS: list[ResourceType[Any]] = [FORMER, FORMER_NOTE, FORMER_REGION]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_resource_of_an_unregistered_type_keeps_its_namespace_or_partition(
    autojump_clock: trio.testing.MockClock, by_hand: bool
) -> None:
    """No running program knows the type, so nothing deletes the resource; the status has its name and a remedy.

    Resources of known types are deleted at once. An unregistered version counts like an unregistered kind.
    """
    app, former = headway.App("tests"), headway.App("former")
    for type in TYPES:
        app.registry.register(type)
    for type in FORMERS:
        former.registry.register(type)

    assert autojump_clock.autojump_threshold == 0
    kept = MemoryBackend()
    async with headway.open_engine(kept, app, former, report=lambda _: None) as engine:
        client = engine.client
        await client.write(headway.PARTITION.new("far"))
        await client.write(headway.NAMESPACE.new("up"))
        for name in ("a", "b"):
            await client.write(FORMER.new(name, namespace="up"))
        await client.write(FORMER_NOTE.new("c", namespace="up"))
        await client.write(NOTE.new("d", namespace="up"))
        await client.write(FORMER_REGION.new("e", partition="far"))
        await client.write(FORMER.new("f", partition="far"))
        await client.write(FORMER.new("elsewhere"))
        await wait_idle(engine)
    async with headway.open_engine(kept, app, report=lambda _: None) as engine:
        client = engine.client
        await client.delete(headway.NAMESPACE.id("up"))
        await client.delete(headway.PARTITION.id("far"))
        await wait_idle(engine)
        await trio.sleep(60)
        assert await left(client) == ["Partition far", "Namespace up"]
        unit = await client.read(headway.NAMESPACE, "up")
        assert [each.message for each in unit.status[EMPTIED_FINALIZER].conditions] == [
            "left: 2 former.v1.Thing, 1 tests.v9.Note; not registered here, and so not deleted: former.v1.Thing, "
            "tests.v9.Note: run a program that declares them, or remove finalizer headway.tenancy to let the unit go "
            "without them"
        ]
        far: Resource[Any] = await client.read(headway.PARTITION, "far")
        (condition,) = far.status[EMPTIED_FINALIZER].conditions
        assert condition.message.startswith("left: 1 former.v1.Region, 1 former.v1.Thing; not registered here")
        if by_hand:
            for each in (unit, far):
                each.finalizers = []
                await client.write(each)
            await wait_idle(engine)
            assert await left(client) == []
            assert len(await client.list(NOTE)) == 0
            return
    async with headway.open_engine(kept, app, former, report=lambda _: None) as engine:
        await wait_idle(engine)
        await trio.sleep(3)
        assert await left(engine.client) == []
        assert [each.name for type in FORMERS for each in await engine.client.list(type)] == ["elsewhere"]
