"""Informers that ask their streams how far they are: nobody wakes for the commits of others, and every wait ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from headway.api import Call, Channel, Metadata, PassingChannel, Stream, Wrapper
from headway.cache import Informer, Pin
from headway.events import ignore
from headway.informers import Informers, watch_request
from headway.resource import TOMBSTONE, Bookmark, EndOfSnapshot, ResourceType, ScopedType
from headway.rpc import InProcessChannel
from headway.service import ResourceService, StoreService
from headway.storage import MemoryBackend
from tests.helpers.calls import RESOURCES, Calls
from tests.helpers.declared import NOTE, PLANET, a_note, registry
from tests.helpers.service_errors import failed
from tests.helpers.steps import Steps


@pytest.fixture
def calls() -> Calls:
    return Calls(MemoryBackend(), registry())


@asynccontextmanager
async def following(calls: Calls, type: ResourceType[Any] | ScopedType[Any] = NOTE) -> AsyncIterator[Informer]:
    """Provide a primed informer."""
    async with trio.open_nursery() as nursery:
        informer = Informers(calls.channel, nursery, ignore).informer_for(type)
        await informer.wait_complete(0)
        await trio.testing.wait_all_tasks_blocked()
        yield informer
        nursery.cancel_scope.cancel()


async def other(calls: Calls) -> None:
    """Commit something of another type, and let all tasks run."""
    await calls.write(a_note(type=PLANET))
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("type", [NOTE, NOTE.within(name_prefix="x"), NOTE.within(metadata="color=red")])
async def test_commits_of_others_wake_no_task(calls: Calls, type: ResourceType[Any] | ScopedType[Any]) -> None:
    """Neither the follower nor a subscriber has anything to do. Yet the frontier is where the store is."""
    counted = Steps()
    async with following(calls, type) as informer, trio.open_nursery() as nursery:
        subscription = informer.subscribe([], lambda *_: None)
        nursery.start_soon(subscription.next, name="subscriber")
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(counted)
        for _ in range(20):
            await other(calls)
        trio.lowlevel.remove_instrument(counted)
        assert not [name for name in counted.count if "Note" in name or name == "subscriber"]
        assert informer.store.frontier < calls.backend.position.revision
        assert subscription.revision == informer.store.frontier == calls.backend.position.revision
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wanted", [(2, 4), (4, 2)])
async def test_each_wait_ends_with_the_commit_that_it_waits_for(calls: Calls, wanted: tuple[int, int]) -> None:
    """Also if another task asks meanwhile."""
    reached: list[tuple[int, int]] = []
    async with following(calls) as informer, trio.open_nursery() as nursery:
        here = informer.ask_on()

        async def wait(revision: int) -> None:
            reached.append((revision, await informer.wait_complete(here + revision) - here))

        for each in wanted:
            nursery.start_soon(wait, each)
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(4):
            await other(calls)
            informer.ask_on()
    assert reached == [(2, 2), (4, 4)]


async def test_wait_that_began_before_the_stream_ends_too(calls: Calls) -> None:
    """The stream begins below the revision, and sends a bookmark only because it learns what is wanted."""
    async with trio.open_nursery() as nursery:
        informer = Informers(calls.channel, nursery, ignore).informer_for(NOTE)
        nursery.start_soon(informer.wait_complete, 2)
        await trio.testing.wait_all_tasks_blocked()
        assert informer.store.primed
        for _ in range(2):
            await other(calls)
        assert informer.store.frontier == 2
        nursery.cancel_scope.cancel()


class Breaking(PassingChannel):
    """A channel whose first stream breaks when it is told to."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.broken = trio.Event()
        self._opened = 0

    @override
    def stream(self, path: str, request: Any, *, metadata: Metadata | None = None) -> Any:
        self._opened += 1
        opened = super().stream(path, request, metadata=metadata)
        return opened if self._opened > 1 else self._breaking(opened)

    @asynccontextmanager
    async def _breaking(self, opened: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async def items(inner: AsyncIterator[Any]) -> AsyncIterator[Any]:
            yield await anext(inner)
            await self.broken.wait()
            raise failed(Status.UNAVAILABLE, "broken")

        async with opened as inner:
            yield items(inner)


async def test_stream_that_resumes_learns_what_is_wanted(
    calls: Calls, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """Nothing else tells it: the waiting task sleeps on, because it has lost nothing."""
    channel = Breaking(calls.channel)
    informer = Informers(channel, nursery, ignore).informer_for(NOTE)
    nursery.start_soon(informer.wait_complete, 2)
    await trio.testing.wait_all_tasks_blocked()
    channel.broken.set()
    await trio.sleep(1)
    for _ in range(2):
        await other(calls)
    assert informer.store.frontier == 2
    assert autojump_clock.current_time() < 60
    nursery.cancel_scope.cancel()


async def test_pin_is_reached_by_asking(calls: Calls) -> None:
    """A view of several types does not wait for a bookmark that nobody sends."""
    async with following(calls) as informer:
        subscription = informer.subscribe([], lambda *_: None)
        await other(calls)
        pins = [subscription.pin(calls.backend.position.revision + more, lambda: None) for more in (0, 1, 2)]
        for reached in (1, 2, 3):
            assert [pin.reached for pin in pins] == [number < reached for number in range(3)]
            await other(calls)


async def test_change_comes_before_the_answer(calls: Calls) -> None:
    """A stream that has a change to deliver tells nothing, so that the frontier never passes it."""
    seen: list[tuple[int, int]] = []

    class Spying(MemoryBackend):
        async def commit(self, *args: Any, **kwargs: Any) -> Any:
            done = await super().commit(*args, **kwargs)
            # The follower has been woken, but has not run.
            seen.append((informer.ask_on(), len(informer.store.entries)))
            return done

    calls = Calls(Spying(), registry())
    async with following(calls) as informer:
        await calls.write(a_note())
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [(0, 0)]
        assert (informer.ask_on(), len(informer.store.entries)) == (1, 1)


def asks(items: Any) -> Any:
    """Return how the reader of a stream asks how far it is, or None."""
    return items.call.ask


@pytest.mark.parametrize("type", [NOTE, TOMBSTONE])
async def test_watch_answers_only_while_its_reader_waits(calls: Calls, type: ResourceType[Any]) -> None:
    """Otherwise an item may be on its way. The end of the stream is the end of the answers."""
    opened: Any = calls.channel.stream(RESOURCES + "WatchList", watch_request(type))
    opened.call.asks = True
    async with opened as items:
        assert asks(items) is None
        assert isinstance(await anext(items), EndOfSnapshot)
        await other(calls)
        assert asks(items)(0) is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, items)
            await trio.testing.wait_all_tasks_blocked()
            assert asks(items)(0) == Bookmark(calls.backend.position)
            nursery.cancel_scope.cancel()
    assert asks(items) is None


async def test_reader_that_does_not_ask_is_told(calls: Calls) -> None:
    """A wrapper that holds items back hides the call, so its reader cannot ask."""
    opened: Any = calls.channel.stream(RESOURCES + "WatchList", watch_request(NOTE))
    async with opened as items:
        await anext(items)
        await other(calls)
        assert await anext(items) == Bookmark(calls.backend.position)
        assert asks(items) is None


class Ahead(Wrapper):
    """A wrapper that reads one item more than its reader has asked for."""

    @override
    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        return self._ahead(opened(call, request))

    @asynccontextmanager
    async def _ahead(self, opened: Stream[Any]) -> AsyncIterator[AsyncIterator[Any]]:
        async def read(items: AsyncIterator[Any], send: trio.MemorySendChannel[Any]) -> None:
            async for item in items:
                await send.send(item)

        async def slowly(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
            async for item in items:
                await trio.sleep(1)
                yield item

        send, receive = trio.open_memory_channel[Any](1)
        async with opened as items, trio.open_nursery() as nursery:
            nursery.start_soon(read, items, send)
            yield slowly(receive)
            nursery.cancel_scope.cancel()


async def test_reader_behind_a_wrapper_that_holds_items_back_does_not_ask(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The service would answer for an item that it has sent, and that its reader has not received."""
    calls = Calls(MemoryBackend(), registry())
    service = Ahead(ResourceService(calls.backend, registry()))
    calls.channel = InProcessChannel(service, StoreService(calls.backend, registry()))
    async with trio.open_nursery() as nursery:
        informer = Informers(calls.channel, nursery, ignore).informer_for(NOTE)
        await informer.wait_complete(0)
        await calls.write(a_note())
        await other(calls)
        assert (informer.ask_on(), len(informer.store.entries)) == (0, 0)
        assert (await informer.wait_complete(1), len(informer.store.entries)) == (1, 1)
        assert await informer.wait_complete(2) == 2
        nursery.cancel_scope.cancel()
    assert autojump_clock.current_time() > 0


async def test_wrapper_that_passes_a_stream_on_costs_nothing(calls: Calls) -> None:
    """Its readers ask as without it."""
    service = Wrapper(Wrapper(ResourceService(calls.backend, registry())))
    calls.channel = InProcessChannel(service, StoreService(calls.backend, registry()))
    async with following(calls) as informer:
        await other(calls)
        assert informer.store.frontier == 0
        assert informer.ask_on() == 1


TYPES = (NOTE, PLANET)
of_a_type = st.sampled_from(TYPES)
steps = st.one_of(
    st.tuples(st.just("write"), of_a_type, st.integers(0, 2)),
    st.tuples(st.sampled_from(("wait", "pin")), of_a_type, st.integers(-1, 3)),
    st.tuples(st.sampled_from(("ask", "break", "turn")), of_a_type, st.just(0)),
)


class Asking:
    """Informers of two types, with waits and pins at revisions that may be to come."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.calls = Calls(MemoryBackend(), registry())
        informers = Informers(self.calls.channel, nursery, ignore)
        self.informers = {type: informers.informer_for(type) for type in TYPES}
        self._nursery = nursery
        # Each state of each type: the version of each name, by the revision at which it began.
        self._states: dict[Any, dict[int, dict[str, str]]] = {type: {0: {}} for type in TYPES}
        self._open: list[int] = []
        self._pins: list[Pin] = []

    @property
    def head(self) -> int:
        return self.calls.backend.position.revision

    async def step(self, what: str, type: ResourceType[Any], number: int) -> None:
        """Do one step, and check what is known then. Only a turn lets the streams deliver."""
        informer = self.informers[type]
        if what == "write":
            await self._write(type, f"n{number}")
        elif what == "wait":
            self._nursery.start_soon(self._wait, informer, max(self.head + number, 0))
        elif what == "pin":
            subscription = informer.subscribe([], lambda *_: None)
            self._pins.append(subscription.pin(max(self.head + number, subscription.store.newest), lambda: None))
        elif what == "ask":
            assert informer.ask_on() <= self.head
        elif what == "break":
            informer.on_disproved()
        else:
            await trio.sleep(10)
            assert not [revision for revision in self._open if revision <= self.head]
            assert all(pin.reached for pin in self._pins if pin.revision <= self.head)
            assert {each.ask_on() for each in self.informers.values()} == {self.head}
        for each in TYPES:
            self._check(each)

    async def _write(self, type: ResourceType[Any], name: str) -> None:
        states = self._states[type]
        latest = states[max(states)]
        stored = await self.calls.stored(a_note(name, str(self.head), type, version=latest.get(name, "")))
        states[self.head] = {**latest, name: stored.version}

    async def _wait(self, informer: Informer, revision: int) -> None:
        self._open.append(revision)
        assert await informer.wait_complete(revision) >= revision
        self._open.remove(revision)

    def _check(self, type: ResourceType[Any]) -> None:
        """The entries are the state at the frontier."""
        store, states = self.informers[type].store, self._states[type]
        begun = max(revision for revision in states if revision <= store.frontier)
        assert {key[2]: each.version for key, each in store.entries.items()} == states[begun]


@given(st.lists(steps, max_size=30))
def test_frontiers_are_true_and_every_wait_ends(steps: list[tuple[str, ResourceType[Any], int]]) -> None:
    """Whatever is asked when, also if streams break."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            asking = Asking(nursery)
            for step in (*steps, ("turn", NOTE, 0)):
                await asking.step(*step)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
