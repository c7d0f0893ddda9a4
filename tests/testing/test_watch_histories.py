"""The watches of every store keep every rule of a history, in process and over TCP, under concurrent use.

A failure names its seed; ``HEADWAY_HISTORY_SEED`` runs that schedule again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from headway.rpc import Channel, InProcessChannel, Services, open_channel, open_server
from headway.service import (
    WATCH_LIST,
    ConsulService,
    LeaseService,
    ResourceService,
    StoreService,
    WatchDecoder,
    watch_encoders,
)
from headway.storage import Backend, EtcdBackend, MemoryBackend, SqliteBackend, _reads
from headway.storage.sqlite import _reader
from headway.testing.simulation._run import _deterministic
from tests.helpers import lying_channel as lies
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.lying_channel import Lie, LyingChannel
from tests.helpers.watch_load import HISTORY, Connect, FragileWires, WatchLoad, load_registry

SEED = int(os.environ.get("HEADWAY_HISTORY_SEED", "1"))
STORES = ("memory", "sqlite", "etcd")


@pytest.fixture(autouse=True)
def _by_the_seed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make runs in memory repeatable, and snapshots so small in parts that a few resources have a middle."""
    for module in (_reads, _reader):
        monkeypatch.setattr(module, "SNAPSHOT_CHUNK", 8)
    with _deterministic(SEED):
        yield


@pytest.fixture
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Backend]]:
    """Yield the test's store as seen by each of its engines: for etcd there are two."""
    async with AsyncExitStack() as stack:
        opened: list[Backend] = []
        if request.param == "memory":
            opened.append(await stack.enter_async_context(MemoryBackend(max_changes=HISTORY)))
        elif request.param == "sqlite":
            opened.append(await stack.enter_async_context(SqliteBackend(tmp_path / "store.db", max_changes=HISTORY)))
        else:
            server: EtcdServer = request.getfixturevalue("etcd")
            url = f"etcd://{server.endpoint}{server.new_prefix()}"
            for _ in range(2):
                opened.append(await stack.enter_async_context(EtcdBackend(url, max_changes=HISTORY)))
        yield opened


def in_the_process(stores: list[Backend]) -> Connect:
    """Return a function that connects to the services of these engines in turn."""
    services = [
        InProcessChannel(
            ResourceService(each, load_registry()), LeaseService(each), StoreService(each, load_registry())
        )
        for each in stores
    ]

    @asynccontextmanager
    async def connect(number: int) -> AsyncIterator[Channel]:
        yield services[number % len(services)]

    return connect


async def run(load: WatchLoad, ending: Callable[[], None] = lambda: None) -> None:
    with trio.fail_after(50):
        await load.run(ending)


async def keeps_every_rule_in_the_process(stores: list[Backend]) -> None:
    load = WatchLoad(SEED, stores[0], in_the_process(stores))
    await run(load)
    load.check()
    # The load has caused each event of interest.
    assert min(load.did[each] for each in ("left", "left in its snapshot", "resumed", "OUT_OF_RANGE")) > 0, load.did


@pytest.mark.parametrize("stores", ["memory"], indirect=True)
async def test_watches_in_memory_keep_every_rule(stores: list[Backend], autojump_clock: MockClock) -> None:
    """Watchers come, leave, resume, or fall behind. Virtual time makes the run repeatable."""
    await keeps_every_rule_in_the_process(stores)


@pytest.mark.wide
@pytest.mark.parametrize("stores", STORES[1:], indirect=True)
async def test_watches_in_the_process_keep_every_rule(stores: list[Backend]) -> None:
    """The load is the same, with threads and another process."""
    await keeps_every_rule_in_the_process(stores)


@pytest.mark.parametrize(
    "stores", [STORES[0], *(pytest.param(each, marks=pytest.mark.wide) for each in STORES[1:])], indirect=True
)
async def test_watches_over_tcp_keep_every_rule(stores: list[Backend]) -> None:
    """The load is the same. Most connections break in the middle of messages."""
    whole: list[str] = []
    fragile: list[str] = []
    wires: list[FragileWires] = []
    async with AsyncExitStack() as stack:
        for store in stores:
            services = Services(
                ResourceService(store, load_registry()),
                ConsulService(store, load_registry()),
                LeaseService(store),
                StoreService(store, load_registry()),
                encoders=watch_encoders(),
            )
            server = await stack.enter_async_context(open_server(services, ["127.0.0.1:0"]))
            whole.append(server.addresses[0])
            wires.append(FragileWires(SEED, server.addresses[0]))
            fragile.append(await stack.enter_async_context(wires[-1].open()))

        def connect(number: int) -> AbstractAsyncContextManager[Channel]:
            # Number 0 is the witnesses' channel. It is whole, because the others are compared with them.
            where = fragile if number % 3 else whole
            return open_channel(where[number % len(where)], decoders={WATCH_LIST: WatchDecoder})

        load = WatchLoad(SEED, stores[0], connect)

        def mend() -> None:
            for each in wires:
                each.mend()

        await run(load, ending=mend)
    load.check()
    assert min(load.did["left"], load.did["resumed"], sum(each.broken for each in wires)) > 0, load.did


LATER = {"reliable", "bookmarkable", "gapless", "resumable"}
"""The rules that an omitted change may break, depending on the next item of the watch."""

LIES: dict[type[Lie], tuple[set[str], set[str]]] = {
    lies.SkipsACommit: (LATER, set()),
    lies.RepeatsACommit: ({"unique"}, set()),
    lies.RepeatsTheCommitBefore: ({"unique"}, set()),
    lies.ReversesCommits: ({"ordered"}, {"resumable"}),
    lies.SplitsACommit: ({"atomic"}, set()),
    lies.DropsPartOfACommit: ({"atomic"}, set()),
    lies.ResumesOneTooLate: ({"resumable"}, LATER),
    lies.ResumesOneTooEarly: ({"resumable"}, set()),
    lies.ResumesElsewhere: ({"resumable"}, {"bookmarkable", "ordered"}),
    lies.EndsItsSnapshotEarly: ({"snapshot", "durable"}, set()),
    lies.MisdatesItsSnapshot: ({"snapshot", "durable"}, {"ordered"}),
    lies.LeavesAGapAfterItsSnapshot: ({"gapless"}, LATER),
    lies.BookmarksTooFar: ({"bookmarkable"}, set()),
    lies.ChangesPayloads: ({"agreed"}, set()),
    lies.ComesFromAnotherStore: ({"one store"}, set()),
    lies.KeepsWhatLeaves: (LATER, {"atomic", "durable"}),
    lies.IgnoresTheMetadata: ({"selected"}, LATER | {"snapshot", "durable", "atomic"}),
}
"""For each lie, the rules of which it breaks at least one, and other rules that it may break."""


async def broken_by(seed: int, lie: type[Lie], *liars: str) -> set[str]:
    """Return the rules that a load breaks if a channel lies to these clients."""

    def between(who: str, channel: Channel) -> Channel:
        return LyingChannel(channel, lie) if who in liars else channel

    async with MemoryBackend(max_changes=HISTORY) as store:
        load = WatchLoad(seed, store, in_the_process([store]), between=between)
        await run(load)
    found = {rule for rule, _ in load.history.violations()}
    if found:
        with pytest.raises(AssertionError, match=f"with seed {seed}: "):
            load.check()
    return found


def test_every_broken_promise_is_tested() -> None:
    assert set(LIES) == set(Lie.__subclasses__())


@pytest.mark.parametrize("lie", LIES)
async def test_watch_that_breaks_a_promise_is_found(lie: type[Lie], autojump_clock: MockClock) -> None:
    """The lie breaks its own rule, and no unrelated one. In some schedules a lie has no effect."""
    rules, others = LIES[lie]
    found: set[str] = set()
    for seed in range(1, 6):
        found |= await broken_by(seed, lie, "watcher")
        if found & rules:
            break
    assert found & rules
    # A watch by metadata that has lost a change, or got one twice, deletes what it has not.
    assert found <= rules | others | {"selected"}


async def test_commit_that_no_watcher_receives_is_found(autojump_clock: MockClock) -> None:
    """The answers to its writers reveal it."""
    assert "durable" in await broken_by(1, lies.SkipsACommit, "watcher", "witness")


async def test_load_in_memory_is_repeatable(autojump_clock: MockClock) -> None:
    """A violation that was found with a seed can be found again."""
    ran = []
    for _ in range(2):
        with _deterministic(7):
            async with MemoryBackend(max_changes=HISTORY) as store:
                load = WatchLoad(7, store, in_the_process([store]))
                await run(load)
        ran.append([(type(each).__name__, getattr(each, "revision", 0)) for each in load.history.facts])
    assert ran[0] == ran[1]
