"""Functions that wait until a resource meets a condition."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.client import Client
from headway.errors import HistoryCompacted, NotFound
from headway.resource import Resource, ResourceId
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, Note, registry


async def test_until_returns_at_once_if_the_condition_holds(client: Client) -> None:
    """The function returns the resource for which the condition held."""
    written = await client.write(NOTE.new("one", Note(text="a")))
    assert await headway.until(client, NOTE, "one", lambda note: note is not None) == written
    await headway.until_gone(client, NOTE, "two")


async def test_until_waits_for_a_change(client: Client, nursery: trio.Nursery) -> None:
    """Another resource whose name has the same prefix does not count."""
    seen: list[str] = []

    async def wait() -> None:
        found = await headway.until(client, NOTE, "one", lambda note: note is not None and note.data.text == "b")
        assert found is not None
        seen.append(found.data.text)

    first = await client.write(NOTE.new("one", Note(text="a")))
    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    await client.write(NOTE.new("one-more", Note(text="b")))
    await wait_all_tasks_blocked()
    assert seen == []
    first.data = Note(text="b")
    await client.write(first)
    await wait_all_tasks_blocked()
    assert seen == ["b"]


async def test_until_gone_with_a_uid_ignores_a_later_incarnation(client: Client, autojump_clock: MockClock) -> None:
    """Without the uid, the function would wait for the later incarnation as well."""
    first = await client.write(NOTE.new("one"))
    await client.delete(first)
    second = await client.write(NOTE.new("one"))
    await headway.until_gone(client, NOTE, first.id)
    with trio.move_on_after(100) as scope:
        await headway.until_gone(client, NOTE, second.id)
    assert scope.cancelled_caught


async def test_until_condition_requires_the_current_generation(client: Client, autojump_clock: MockClock) -> None:
    """The condition also requires the state and, if given, the writer."""
    ready = headway.Condition("Ready", headway.ConditionState.TRUE)
    note = await client.write(NOTE.new("one"))
    await client.write_status(note, "writer", [ready])
    found = await headway.until_condition(client, NOTE, "one", "Ready", key="writer")
    assert found.generation == note.generation

    async def never(**wanted: object) -> bool:
        with trio.move_on_after(10) as scope:
            await headway.until_condition(client, NOTE, "one", "Ready", **wanted)  # type: ignore[arg-type]
        return scope.cancelled_caught

    assert await never(key="another")
    assert await never(state=headway.ConditionState.FALSE)
    found.data = Note(text="changed")
    await client.write(found)
    assert await never()


READY = headway.Condition("Ready", headway.ConditionState.TRUE)


async def test_later_incarnation_does_not_answer_for_an_id_with_a_uid(client: Client) -> None:
    """The waits end with NotFound, because the incarnation of the id can never meet the condition."""
    first = await client.write(NOTE.new("one", Note(text="a")))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ends_not_found, client, first.id)
        await wait_all_tasks_blocked()
        # The wait sees all of this at once.
        await client.delete(first)
        second = await client.write(NOTE.new("one", Note(text="b")))
        await client.write_status(second, "writer", [READY])
    await _ends_not_found(client, first.id)
    assert await headway.until(client, NOTE, first.id, lambda note: note is None) is None
    for id in (second.id, first.id.without_uid()):
        assert (await headway.until_condition(client, NOTE, id, "Ready")).uid == second.uid


async def _ends_not_found(client: Client, id: ResourceId) -> None:
    with pytest.raises(NotFound, match=r"Note one no longer exists.*without its uid"):
        await headway.until_condition(client, NOTE, id, "Ready")


async def test_wait_goes_on_while_the_store_has_an_incarnation_that_the_watch_has_not_seen(
    client: Client, calls: Calls, autojump_clock: MockClock
) -> None:
    """A server may lag behind the store, so the watch alone does not show that an incarnation is gone."""
    first = await client.write(NOTE.new("one"))

    class Ahead(Client):
        async def get(self, *_given: Any, **_named: Any) -> Any:
            return first

    await client.delete(first)
    with trio.move_on_after(10) as scope:
        await headway.until_condition(Ahead(calls.channel, registry()), NOTE, first.id, "Ready")
    assert scope.cancelled_caught


class Forgetful(MemoryBackend):
    """A client whose first watch falls behind."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = 0

    async def watch(self, *given: Any) -> Any:
        self.watches += 1
        if self.watches == 1:
            raise HistoryCompacted("too slow")
        return await super().watch(*given)


async def test_until_starts_again_after_compacted_history() -> None:
    """The current state is enough to end the wait."""
    backend = Forgetful()
    calls = Calls(backend, registry())
    client = Client(calls.channel, registry())
    await client.write(NOTE.new("one"))
    found: Resource[Note] | None = await headway.until(client, NOTE, "one", lambda note: note is not None)
    assert found is not None
    assert backend.watches == 2
