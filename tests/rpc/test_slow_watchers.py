"""The cost of hundreds of watchers that don't read and of a thousand idle ones, for the server and other clients."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status
from h2.events import DataReceived, RemoteSettingsChanged, ResponseReceived, TrailersReceived

from headway import rpc
from headway.client import Client
from headway.protobuf import encode
from headway.resource import Bookmark, Changes, EndOfSnapshot, Position, ScopeConfirmed, StreamItem, pb
from headway.rpc import Limits, MessageParser, WireLimits
from headway.service import WATCH_LIST, WatchDecoder
from tests.rpc.hostile_kit import resident, steps_while_idle
from tests.rpc.raw_kit import HEADERS, Raw, tcp
from tests.rpc.rpc_kit import DECODERS, THING, Served, Text, app, served

PER_WATCHER = 256 << 10
"""The bytes that a watcher may cost while it does not read, as documented in docs/guides/network.md."""
_COMMIT = Text(text="x" * 4000)


def everything(resume_after: Position | None = None) -> pb.WatchListRequest:
    after = None if resume_after is None else resume_after.message()
    tenancy = pb.Tenancy(partition="*", namespace="*")
    return pb.WatchListRequest(type=THING.name.message(), tenancy=tenancy, resume_after=after)


class SlowWatcher(Raw):
    """A watcher that reads on request, and a record of what it received."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self.revisions: list[int] = []
        self.position: Position | None = None
        self.status: bytes | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = MessageParser(1 << 22)
        self._decode = WatchDecoder()

    async def watch(self) -> None:
        """Open the watch at its last position, and wait until it is answered."""
        self._begin()
        self.status = None
        id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(id, [(name, WATCH_LIST if name == ":path" else value) for name, value in HEADERS])
        self.h2.send_data(id, rpc.framed(encode(everything(self.position))), end_stream=True)
        await self.flush()
        await self.until(lambda event: isinstance(event, ResponseReceived) and event.stream_id == id)

    async def read_on(self, last: int) -> None:
        """Read until revision ``last`` arrives or the stream ends."""
        while True:
            events, self.events = self.events, []
            for event in events:
                if isinstance(event, DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    for item in self._decode(self._parser.feed(event.data)):
                        self._receive(item)
                elif isinstance(event, TrailersReceived):
                    self.status = dict(event.headers)[b"grpc-status"]
            await self.flush()
            if self.status is not None or (self.revisions and self.revisions[-1] >= last):
                return
            data = await self.stream.receive_some(1 << 16)
            assert data
            self.events += self.h2.receive_data(data)

    def _receive(self, item: StreamItem | ScopeConfirmed) -> None:
        if isinstance(item, EndOfSnapshot | Bookmark):
            self.position = item.position
        elif isinstance(item, Changes):
            assert self.position is not None
            for change in item.changes:
                assert not change.more
                self.revisions.append(change.revision)
                self.position = self.position._replace(revision=change.revision)


@asynccontextmanager
async def slow_watchers(where: str, count: int) -> AsyncIterator[list[SlowWatcher]]:
    """Slow watchers, each on a connection of its own."""
    async with AsyncExitStack() as stack:
        watchers = []
        for _ in range(count):
            watcher = SlowWatcher(await stack.enter_async_context(tcp(where)))
            await watcher.flush()
            assert await watcher.until(lambda event: isinstance(event, RemoteSettingsChanged))
            await watcher.watch()
            watchers.append(watcher)
        yield watchers


class Churn:
    """A writer, and a watcher that reads at once."""

    def __init__(self, it: Served, items: AsyncIterator[Any]) -> None:
        self._client = Client(rpc.InProcessChannel(it.services), app.registry)
        self._items = items
        self.revisions: list[int] = []

    async def commit(self, count: int) -> None:
        """Write this many times, and wait each time until the quick watcher has received the write."""
        for _ in range(count):
            written = await self._client.write(THING.new(f"thing-{len(self.revisions) % 10}", _COMMIT))
            self.revisions.append(int(written.version))
            while not isinstance(item := await anext(self._items), Changes):
                pass
            assert [change.revision for change in item.changes] == self.revisions[-1:]

    async def seconds(self) -> float:
        """Return the processor's time for thirty commits: the best of three, because its caches serve others too."""
        taken = []
        for _ in range(3):
            began = time.process_time()
            await self.commit(30)
            taken.append(time.process_time() - began)
        return min(taken)


@asynccontextmanager
async def churning(limits: Limits | None = None) -> AsyncIterator[tuple[Served, Churn]]:
    async with (
        served(limits=limits or Limits(), patience=110.0) as it,
        rpc.open_channel(it.where, decoders=DECODERS) as channel,
        channel.stream(WATCH_LIST, everything()) as items,
    ):
        assert isinstance(await anext(items), EndOfSnapshot)
        yield it, Churn(it, items)


@pytest.mark.timeout(120)
async def test_slow_watchers_delay_no_other_and_miss_nothing() -> None:
    """A quick watcher receives each commit before the next. Later the slow ones receive every change once."""
    async with churning() as (it, churn), slow_watchers(it.where, 20) as watchers:
        begin = len(churn.revisions)
        # These are more bytes than the watchers' windows hold.
        await churn.commit(60)
        missed = churn.revisions[begin:]
        async with trio.open_nursery() as nursery:
            for watcher in watchers:
                nursery.start_soon(watcher.read_on, missed[-1])
        assert all(watcher.revisions == missed for watcher in watchers)


@pytest.mark.wide
@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [300])
async def test_hundreds_of_slow_watchers_delay_no_other_and_miss_nothing(count: int) -> None:
    """The cost of each is bounded. Later they receive every change once and in order."""
    async with churning() as (it, churn):
        alone = await churn.seconds()
        async with slow_watchers(it.where, count) as watchers:
            before = resident()
            begin = len(churn.revisions)
            # These are more bytes than the watchers' windows hold.
            await churn.commit(40)
            beside = await churn.seconds()
            grown = resident() - before
            assert grown < count * PER_WATCHER, f"{grown / count / 1024:.0f} KiB a watcher"
            missed = churn.revisions[begin:]
            with trio.fail_after(80):
                async with trio.open_nursery() as nursery:
                    for watcher in watchers:
                        nursery.start_soon(watcher.read_on, missed[-1])
            assert all(watcher.revisions == missed for watcher in watchers)
        # This is measured before and after, because other programs run on the machine.
        alone = max(alone, await churn.seconds())
        print(f"{grown / count / 1024:.0f} KiB a slow watcher; beside them {beside / alone:.2f} times as long")
        # A commit does not wake a watcher that waits for a window.
        assert beside < 2 * alone, f"{beside / alone:.2f} times as long"


@pytest.mark.wide
@pytest.mark.timeout(120)
async def test_watcher_that_was_disconnected_for_not_reading_resumes() -> None:
    """It receives what was sent before, then resumes at its last position. Nothing is repeated or lost."""
    async with (
        churning(Limits(wire=WireLimits(stall_timeout=0.3))) as (it, churn),
        slow_watchers(it.where, 50) as watchers,
    ):
        await churn.commit(60)
        # Wait until the quick watcher's call is the only one.
        while sum(len(calls._calls) for calls in it.server._connections.values()) > 1:
            it.server._changed = trio.Event()
            await it.server._changed.wait()
        for watcher in watchers:
            await watcher.read_on(churn.revisions[-1] + 1)
            assert watcher.status == str(Status.UNAVAILABLE.value).encode()
            assert 0 < len(watcher.revisions) < 60
        await churn.commit(5)
        for watcher in watchers:
            await watcher.watch()
            await watcher.read_on(churn.revisions[-1])
            assert watcher.revisions == churn.revisions


async def _idle(count: int, seconds: float) -> int:
    """Return the steps of tasks, at both ends, while this many network watches of a quiet store are idle."""
    live = 0
    everybody = trio.Event()

    async def watch(channel: rpc.RemoteChannel) -> None:
        nonlocal live
        async with channel.stream(WATCH_LIST, everything()) as items:
            assert isinstance(await anext(items), EndOfSnapshot)
            live += 1
            if live == count:
                everybody.set()
            async for item in items:
                raise AssertionError(f"{item} in a quiet store")

    async with (
        served(patience=60.0 + seconds) as it,
        rpc.open_channel(it.where, decoders=DECODERS) as channel,
        trio.open_nursery() as nursery,
    ):
        for _ in range(count):
            nursery.start_soon(watch, channel)
        await everybody.wait()
        await trio.testing.wait_all_tasks_blocked(0.1)
        steps = await steps_while_idle(seconds)
        nursery.cancel_scope.cancel()
    return steps


async def test_idle_watches_run_almost_no_tasks() -> None:
    """They neither poll nor have timers of their own."""
    assert await _idle(200, 0.5) < 50


@pytest.mark.deep
@pytest.mark.timeout(150)
async def test_thousand_idle_watches_run_almost_no_tasks() -> None:
    """The test takes half a minute, to include the keepalives of the channel's connections."""
    steps = await _idle(1000, 30.0)
    print(f"1,000 idle watches: {steps} steps of tasks in 30 s")
    assert steps < 1000
