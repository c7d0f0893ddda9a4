"""Watches by a client, which yield typed events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.client import Client, Deleted, Progress, SnapshotEnd, Upserted, WatchStream
from headway.errors import Closed, FailedPrecondition, HistoryCompacted, InvalidArgument, NotHeadway, StoreChanged
from headway.resource import Kind, Position, Resource, StreamItem
from headway.rpc import InProcessChannel
from headway.storage import MemoryBackend, Watch, Within
from tests.helpers.calls import Calls, Interrupted, over_the_network
from tests.helpers.declared import NOTE, NOTE_V2, PLANET, UNKNOWN, Note, registry


async def test_watch_yields_typed_events_in_order(client: Client, calls: Calls) -> None:
    """The snapshot comes first, then its end, then each change with its revision. A deletion has the last state."""
    written = await client.write(NOTE.new("one", Note(text="a")))
    async with client.watch(NOTE) as events:
        assert await anext(events) == Upserted(written, 1)
        assert await anext(events) == SnapshotEnd(calls.backend.position)
        changed = await client.write(NOTE.new("one", Note(text="b")))
        event = await anext(events)
        assert isinstance(event, Upserted)
        assert isinstance(event.resource, Resource)
        assert (event.resource, event.resource.data, event.revision) == (changed, Note(text="b"), 2)
        await client.delete(changed)
        assert await anext(events) == Deleted(changed, 3)
        await client.write(PLANET.new("one"))
        assert await anext(events) == Progress(calls.backend.position)


async def test_progress_is_limited_by_its_interval(client: Client, autojump_clock: MockClock) -> None:
    """The newest position is reported. Changes are not delayed."""
    async with client.watch(NOTE, progress_interval=5) as events:
        assert isinstance(await anext(events), SnapshotEnd)
        for name in ("a", "b", "c"):
            written = await client.write(PLANET.new(name))
            if name == "a":
                assert isinstance(await anext(events), Progress)
        later = await anext(events)
        assert isinstance(later, Progress)
        assert later.position.revision == int(written.version)
        assert autojump_clock.current_time() == pytest.approx(5)
        await client.write(PLANET.new("d"))
        await client.write(NOTE.new("one"))
        assert isinstance(await anext(events), Upserted)


async def test_progress_over_a_network_is_one_per_second_by_default() -> None:
    """An explicit interval overrides this."""
    async with over_the_network(MemoryBackend(), registry()) as calls:
        client = Client(calls.channel, registry())
        seen = 0
        async with client.watch(NOTE) as events:
            assert isinstance(await anext(events), SnapshotEnd)
            for number in range(50):
                last = await client.write(PLANET.new(f"p{number}"))
            async for event in events:
                assert isinstance(event, Progress)
                seen += 1
                if event.position.revision >= int(last.version):
                    break
        assert seen < 10


async def test_change_to_another_version_is_a_decodable_deletion(client: Client) -> None:
    """The payload of the other version is not decoded as this version."""
    async with client.watch(NOTE) as events:
        await anext(events)
        await client.write(NOTE.new("one"))
        await anext(events)
        await client.write(NOTE_V2.new("one"))
        event = await anext(events)
        assert isinstance(event, Deleted)
        assert (event.resource.type, event.resource.data, event.revision) == (NOTE, Note(), 2)


async def test_watch_raises_the_errors_of_the_client(client: Client, calls: Calls) -> None:
    """The errors may come when the watch opens, at its first item, or later."""
    async with client.watch(UNKNOWN) as events:
        with pytest.raises(InvalidArgument, match="not registered"):
            await anext(events)
    here = calls.backend.position
    async with client.watch(NOTE, resume_after=here._replace(store_id="elsewhere")) as events:
        with pytest.raises(StoreChanged, match="is of store elsewhere"):
            await anext(events)
    backend = MemoryBackend(max_changes=3)
    short = Client(Calls(backend, registry()).channel, registry())
    async with short.watch(NOTE) as events:
        await anext(events)
        for number in range(9):
            await short.write(NOTE.new(f"note-{number}"))
        with pytest.raises(HistoryCompacted, match="too far behind"):
            await anext(events)
        with pytest.raises(StopAsyncIteration):
            await anext(events)

    async def enter() -> None:
        async with Client(InProcessChannel(), registry()).watch(NOTE):
            pass

    with pytest.raises(NotHeadway, match="Method not found"):
        await enter()


async def test_watch_must_be_read_inside_its_block(client: Client) -> None:
    """Reading elsewhere raises an error with the correct form. An unopened watch needs no cleanup."""
    events = client.watch(NOTE)
    with pytest.raises(Closed, match=r"is not open: .*async with client\.watch"):
        await anext(events)


@asynccontextmanager
async def _served(calls: Calls, *, network: bool) -> AsyncIterator[Client]:
    if not network:
        yield Client(calls.channel, registry())
        return
    async with over_the_network(calls.backend, registry()) as remote:
        yield Client(remote.channel, registry())


@pytest.mark.parametrize("network", [False, True])
async def test_watch_yields_nothing_after_its_block_has_ended(calls: Calls, *, network: bool) -> None:
    """Neither an event that has already arrived, nor one for which another task waits. It must not wait forever."""
    async with _served(calls, network=network) as client:
        for number in range(3):
            await client.write(NOTE.new(f"note-{number}"))
        async with client.watch(NOTE) as events:
            await anext(events)
        with pytest.raises(Closed, match="the block of the watch has ended"):
            await anext(events)
        raised: list[str] = []
        waits = trio.Event()

        async def read(events: WatchStream[Note]) -> None:
            try:
                async for event in events:
                    if isinstance(event, SnapshotEnd):
                        waits.set()
            except Closed as error:
                raised.append(str(error))

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery, client.watch(NOTE) as events:
                nursery.start_soon(read, events)
                await waits.wait()
                await wait_all_tasks_blocked()
        assert len(raised) == 1


@pytest.mark.parametrize("network", [False, True])
async def test_second_task_that_reads_a_watch_is_refused_and_the_first_goes_on(calls: Calls, *, network: bool) -> None:
    """Each of two readers would miss the events that the other one got."""
    async with _served(calls, network=network) as client, client.watch(NOTE) as events:
        assert isinstance(await anext(events), SnapshotEnd)
        async with trio.open_nursery() as nursery:
            found: list[object] = []

            async def first() -> None:
                found.append(await anext(events))

            nursery.start_soon(first)
            await wait_all_tasks_blocked()
            with pytest.raises(FailedPrecondition, match=r"another task is reading this watch.*open a watch for each"):
                await anext(events)
            written = await client.write(NOTE.new("one"))
        assert found == [Upserted(written, int(written.version))]
        await client.delete(written)
        assert isinstance(await anext(events), Deleted)


async def test_leaving_the_block_closes_the_watch_of_the_store() -> None:
    """Pending items are dropped."""
    closed: list[object] = []

    class Closing:
        def __init__(self, watch: Watch) -> None:
            self._watch = watch

        async def next(self) -> StreamItem:
            return await self._watch.next()

        def close(self) -> None:
            closed.append(self)

    class Noting(Interrupted):
        async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Watch:
            return Closing(await super().watch(kind, within, resume_after))

    client = Client(Calls(Noting(MemoryBackend()), registry()).channel, registry())
    async with client.watch(NOTE) as events:
        await anext(events)
        assert closed == []
    assert len(closed) == 1
