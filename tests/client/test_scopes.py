"""A client's watches and lists of scopes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headway.api import metadata_terms
from headway.client import Client, Deleted, SnapshotEnd, Upserted
from headway.errors import FailedPrecondition, InvalidArgument
from headway.resource import Within, pb, selected, selector_problem
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, over_the_network
from tests.helpers.declared import NOTE, Note, registry
from tests.service.test_scopes import OldServer

GOLD = NOTE.within(metadata="tier=gold")


async def test_watch_of_a_scope_yields_what_enters_and_leaves_it(client: Client, calls: Calls) -> None:
    """A resource that leaves is deleted, in its last state in the scope, at the revision of the change."""
    ada = await client.write(NOTE.new("ada", metadata={"tier": "gold"}))
    bob = await client.write(NOTE.new("bob", metadata={"tier": "free"}))
    async with client.watch(GOLD) as events:
        assert await anext(events) == Upserted(ada, 1)
        assert await anext(events) == SnapshotEnd(calls.backend.position)
        ada.metadata["tier"] = "free"
        left = await client.write(ada)
        ada.metadata["tier"] = "gold"
        event = await anext(events)
        assert isinstance(event, Deleted)
        assert (event.revision, event.resource.version, event.resource.metadata) == (
            int(left.version),
            "1",
            {"tier": "gold"},
        )
        bob.metadata["tier"] = "gold"
        bob = await client.write(bob)
        event = await anext(events)
        while not isinstance(event, Upserted):
            event = await anext(events)
        assert event == Upserted(bob, int(bob.version))


async def test_list_of_a_scope_has_only_its_resources(client: Client) -> None:
    for name, tier, text in (("ada", "gold", "a"), ("al", "free", "a"), ("bob", "gold", "b")):
        await client.write(NOTE.new(name, Note(text=text), metadata={"tier": tier, "letter": text}))
    assert [each.name for each in await client.list(GOLD)] == ["ada", "bob"]
    assert [each.name for each in await client.list(GOLD, filter="letter!=a")] == ["bob"]
    assert [each.name for each in await client.list(NOTE.within(name_prefix="a", metadata="tier=gold"))] == ["ada"]
    assert [[each.name for each in page] async for page in client.pages(GOLD, size=1)] == [["ada"], ["bob"]]


@pytest.mark.parametrize("given", [{"namespace": "n"}, {"partition": "p"}, {"name_prefix": "x"}])
async def test_scope_and_another_selection_are_refused(client: Client, given: dict[str, Any]) -> None:
    said = "was given together with partition"
    with pytest.raises(InvalidArgument, match=said):
        client.watch(GOLD, **given)
    with pytest.raises(InvalidArgument, match=said):
        await anext(client.pages(GOLD, **given))
    with pytest.raises(InvalidArgument, match=said):
        await client.list(GOLD, **given)


async def test_server_without_scopes_is_refused_by_a_watch_and_filtered_by_a_list() -> None:
    """The client never gets more than it has asked for."""
    backend = MemoryBackend()
    channel = InProcessChannel(ResourceService(backend, registry()))
    written = Client(channel, registry())
    await written.write(NOTE.new("ada", metadata={"tier": "gold"}))
    await written.write(NOTE.new("bob", metadata={"tier": "free"}))
    client = Client(OldServer(channel), registry())
    with pytest.raises(FailedPrecondition, match="update the server"):
        async with client.watch(GOLD) as events:
            await anext(events)
    async with client.watch(NOTE) as events:
        assert isinstance(await anext(events), Upserted)


async def test_list_of_a_scope_over_a_network_is_sent_filtered() -> None:
    """An old server sends everything, and the client compares the terms itself."""
    async with over_the_network(MemoryBackend(), registry()) as calls:
        client = Client(calls.channel, registry())
        await client.write(NOTE.new("ada", metadata={"tier": "gold"}))
        await client.write(NOTE.new("bob", metadata={"tier": "free"}))
        assert [each.name for each in await client.list(GOLD)] == ["ada"]
        assert [each.name for each in await Client(OldServer(calls.channel), registry()).list(GOLD)] == ["ada"]


def test_scope_and_filter_of_a_list_understand_the_same_text_alike() -> None:
    """A list of a scope is filtered by its text. Compared for random texts of the characters that have a meaning."""
    chance = Random(1)
    compared = 0
    for _ in range(5000):
        text = "".join(chance.choices("ab=!, ", k=chance.randint(3, 9)))
        if selector_problem("metadata", text) is not None:
            continue
        within = Within(metadata=selected(text))
        terms = metadata_terms(within.selector)
        made = {"".join(chance.choices("ab=! ", k=2)): chance.choice(["", "a", "!", "=b"]) for _ in range(3)}
        for metadata in (dict(within.metadata), made, {**made, **dict(within.metadata)}):
            assert within.admits(pb.Resource(metadata=metadata)) == all(term(metadata) for term in terms)
            compared += 1
    assert compared > 500
