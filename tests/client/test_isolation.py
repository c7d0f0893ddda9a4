"""C9: callers may change the results of the client, and their arguments after the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from headway.client import Client, Deleted, Upserted
from headway.resource import Condition, ConditionState, Resource
from tests.helpers.calls import Calls, take
from tests.helpers.declared import NOTE, Note, a_type


def spoil(resource: Resource[Note]) -> None:
    """Change every part of the resource that can be changed."""
    resource.data.text = "spoilt"
    resource.data.lines.append("spoilt")
    resource.data.counts["spoilt"] = 1
    resource.metadata["spoilt"] = "x"
    resource.metadata.pop("colour", None)
    resource.finalizers = {"spoilt"}
    for status in resource.status.values():
        status.observed_generation = "spoilt"
        for condition in status.conditions:
            condition.reason = "spoilt"
            if condition.resource is not None:
                condition.resource.name = "spoilt"
                assert condition.resource.tenancy is not None
                condition.resource.tenancy.partition = "spoilt"
        status.conditions.append(Condition(type="spoilt"))
    message = resource.message()
    assert message.id is not None
    assert message.id.type is not None
    assert message.data is not None
    message.id.name = message.id.type.kind = message.data.type_url = "spoilt"
    if message.owner is not None:
        message.owner.uid = "spoilt"


@pytest.fixture
async def stored(client: Client) -> Resource[Note]:
    boss = await client.write(NOTE.new("boss"))
    data = Note(text="kept", lines=["a"], counts={"a": 1})
    resource = await client.write(NOTE.new("one", data, owner=boss, metadata={"colour": "red"}))
    condition = Condition(type="ready", state=ConditionState.TRUE, resource=boss.id.reference())
    return await client.write_status(resource, "mine", [condition])


async def watched(client: Client, *, deleted: bool) -> Resource[Any]:
    async with client.watch(NOTE) as events:
        async for event in events:
            if isinstance(event, Deleted if deleted else Upserted) and event.resource.name == "one":
                return event.resource
    raise AssertionError("the watch has ended")


OUT: dict[str, Callable[[Client, Resource[Note]], Awaitable[Any]]] = {
    "read": lambda client, _: client.read(NOTE, "one"),
    "get": lambda client, _: client.get(NOTE, "one"),
    "list": lambda client, _: client.list(NOTE, name_prefix="one"),
    "list_by_owner": lambda client, stored: client.list_by_owner(stored.owner or stored),
    "write_status": lambda client, stored: client.write_status(stored, "mine", stored.status["mine"].conditions),
    "apply": lambda client, stored: client.apply(stored),
    "apply_over": lambda client, stored: client.apply_over(stored, stored),
    "watch": lambda client, _: watched(client, deleted=False),
}


@pytest.mark.parametrize("way", OUT)
async def test_results_can_be_changed_by_the_caller(
    client: Client, calls: Calls, stored: Resource[Note], way: str
) -> None:
    """The store, other readers and the history of watches do not see the changes."""
    before, text = (await client.read(NOTE, "one")).message(), repr(stored.message())
    async with calls.watch(a_type()) as items:
        snapshot, _ = await take(items, 2)
        held = repr(snapshot)
        other = await client.read(NOTE, "one")
        got = await OUT[way](client, stored)
        for each in got if isinstance(got, list) else [got]:
            spoil(each)
        assert repr(snapshot) == held
    assert (await client.read(NOTE, "one")).message() == before == other.message()
    assert repr(stored.message()) == text


async def test_result_of_a_write_can_be_changed_by_the_caller(client: Client) -> None:
    """In process, the reply is the stored object itself, which stays unchanged."""
    written = await client.write(NOTE.new("one", Note(text="kept"), metadata={"colour": "red"}))
    before = written.message()
    spoil(written)
    assert (await client.read(NOTE, "one")).message() == before


async def test_deleted_resource_can_be_changed_by_each_watcher(client: Client, stored: Resource[Note]) -> None:
    """Two watchers of one deletion do not affect each other."""
    stored.finalizers = {"held"}
    held = await client.write(stored)
    heard: list[Resource[Note]] = []

    async def hear() -> None:
        heard.append(await watched(client, deleted=True))

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(hear)
        await trio.testing.wait_all_tasks_blocked()
        left = await client.delete(held)
        assert left is not None
        spoil(left)
        bare = await client.read(NOTE, "one")
        bare.finalizers = ()
        await client.write(bare)
        await client.delete(bare)
    first, second = heard
    text = repr(second.message())
    spoil(first)
    assert repr(second.message()) == text
    assert second.data == Note(text="kept", lines=["a"], counts={"a": 1})


async def test_arguments_can_be_changed_after_the_call(client: Client) -> None:
    """Data, metadata, conditions and the resource itself are copied before they are sent."""
    data, metadata = Note(text="kept", lines=["a"], counts={"a": 1}), {"colour": "red"}
    resource = NOTE.new("one", data, metadata=metadata)
    written = await client.write(resource)
    before = written.message()
    data.text, metadata["colour"] = "spoilt", "blue"
    data.lines.append("b")
    spoil(resource)
    assert (await client.read(NOTE, "one")).message() == before
    condition = Condition(type="ready", resource=written.id.reference())
    conditions = [condition]
    stored = (await client.write_status(written, "mine", conditions)).message()
    condition.type = "spoilt"
    assert condition.resource is not None
    condition.resource.name = "spoilt"
    conditions.append(Condition(type="more"))
    assert (await client.read(NOTE, "one")).message() == stored


async def test_arguments_can_be_changed_during_the_call(client: Client, calls: Calls) -> None:
    """The write stores the complete state at the time of the call."""
    resource, condition = NOTE.new("one", Note(text="kept")), Condition(type="ready")
    written = await client.write(NOTE.new("two"))

    async def meanwhile() -> None:
        spoil(resource)
        condition.type = "spoilt"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.write, resource)
        nursery.start_soon(client.write_status, written, "mine", [condition])
        await trio.lowlevel.cancel_shielded_checkpoint()
        nursery.start_soon(meanwhile)
    assert (await client.read(NOTE, "one")).data == Note(text="kept")
    assert [each.type for each in (await client.read(NOTE, "two")).status["mine"].conditions] == ["ready"]
    assert calls.revision == 3
