"""Informers whose streams are read at intervals, tested in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from headway.cache import Subscription
from headway.events import ignore
from headway.informers import Informers
from headway.resource import ResourceType
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls
from tests.helpers.declared import CHILD, NOTE, PLANET, a_note, registry, text_of
from tests.helpers.resources import TEAM, bookmark, end
from tests.helpers.scripted_channel import SILENCE, Line, ScriptedChannel, pause

SECONDS = 0.5
Received = list[tuple[float, list[str]]]


@pytest.fixture
def calls() -> Calls:
    return Calls(MemoryBackend(), registry())


@asynccontextmanager
async def paced(calls: Calls) -> AsyncIterator[Informers]:
    """Provide informers that read their streams at intervals."""
    async with trio.open_nursery() as nursery:
        yield Informers(calls.channel, nursery, ignore, pace=SECONDS)
        nursery.cancel_scope.cancel()


async def subscribed(informers: Informers, type: ResourceType[Any]) -> Subscription:
    informer = informers.informer_for(type)
    await informer.wait_complete(0)
    return informer.subscribe([], lambda *_: None)


async def receive(subscription: Subscription, received: Received) -> None:
    """Note each wake-up of the subscription: its time and the texts of the changes, none for a bookmark."""
    while True:
        changes = await subscription.next()
        texts = [text_of(change.new) for change in changes if change.new is not None]
        received.append((round(trio.current_time(), 3), texts))


async def test_changes_within_an_interval_are_delivered_together(
    calls: Calls, autojump_clock: trio.testing.MockClock
) -> None:
    """Each change is delivered, in order and unmerged. The first one after an idle interval is not delayed."""
    received: Received = []
    async with paced(calls) as informers, trio.open_nursery() as nursery:
        nursery.start_soon(receive, await subscribed(informers, NOTE), received)
        await trio.sleep(10)
        for number in range(12):
            await calls.write(a_note("one", str(number)))
            await trio.sleep(0.12)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert received == [
        (10, ["0"]),
        (10.5, ["1", "2", "3", "4"]),
        (11, ["5", "6", "7", "8"]),
        (11.5, ["9", "10", "11"]),
    ]
    assert autojump_clock.current_time() > 15


async def test_bookmark_paces_a_stream_like_a_change(calls: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """The pace exists for bookmarks: many commits of other kinds cost the stream one bookmark."""
    received: Received = []
    async with paced(calls) as informers, trio.open_nursery() as nursery:
        subscription = await subscribed(informers, NOTE)
        nursery.start_soon(receive, subscription, received)
        await trio.sleep(1)
        for _ in range(100):
            await calls.write(a_note(type=PLANET))
            await trio.sleep(0.01)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
        assert subscription.revision == 100
    assert received == [(1, []), (1.5, []), (2, [])]
    assert autojump_clock.current_time() > 6


async def test_snapshot_is_not_delayed(calls: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """This holds however many pieces it has, and for the change directly after it."""
    puts = []
    for number in range(2500):
        resource = a_note(f"n{number}", partition="default", namespace="default", uid=f"n{number}")
        puts.append(Put(NOTE.kind, ("default", "default", f"n{number}"), resource, ""))
    await calls.backend.commit(puts)
    async with paced(calls) as informers:
        subscription = await subscribed(informers, NOTE)
        assert len(subscription.everything()) == 2500
        await calls.write(a_note("one"))
        assert len(await subscription.next()) == 1
        assert autojump_clock.current_time() == 0


async def test_each_stream_has_its_own_pace(calls: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """A stream that has just been read delays no other stream."""
    notes: Received = []
    children: Received = []
    async with paced(calls) as informers, trio.open_nursery() as nursery:
        nursery.start_soon(receive, await subscribed(informers, NOTE), notes)
        nursery.start_soon(receive, await subscribed(informers, CHILD), children)
        await calls.write(a_note("one", "a"))
        await trio.sleep(SECONDS / 2)
        await calls.write(a_note("two", "b", CHILD))
        await calls.write(a_note("one", "c"))
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert [each for each in notes if each[1]] == [(0, ["a"]), (SECONDS, ["c"])]
    assert [each for each in children if each[1]] == [(SECONDS, ["b"])]
    assert autojump_clock.current_time() > 5


async def test_end_of_a_paced_stream_is_noticed_after_its_interval(autojump_clock: trio.testing.MockClock) -> None:
    """The items before the end arrive, and then the next stream opens. A cancellation closes it within the interval."""
    script: list[Line] = [end(1), bookmark(2), pause(0.1)]
    channel = ScriptedChannel([script, [bookmark(2, resumed=True), bookmark(3), bookmark(4), SILENCE]])
    async with trio.open_nursery() as nursery:
        informer = Informers(channel, nursery, ignore, pace=SECONDS).informer_for(TEAM)
        await informer.wait_complete(2)
        assert autojump_clock.current_time() == 0
        await informer.wait_complete(3)
        opened = channel.openings[1].time
        assert opened > SECONDS + 0.1
        assert autojump_clock.current_time() == opened + SECONDS
        nursery.cancel_scope.cancel()
    assert channel.open == 0
    assert autojump_clock.current_time() == opened + SECONDS
