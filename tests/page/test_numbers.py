"""The numbers of the page: bounded, the same as elsewhere, and never behind for a slow reader."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

import headway
from headway import field, testing
from headway.api import Call, Stream
from headway.base import finished
from headway.events import HandlerFailed
from headway.observe import ControllerState, Metrics, Sample, state_text, states_in
from headway.page import PageHost, PageService, StoreParts
from headway.page._about import document, timeline
from headway.page._host import LOOK
from headway.page._ring import POINTS, Ring
from headway.page._service import Event
from headway.run import ControllerStatus
from headway.storage import MemoryBackend
from headway.why import (
    ControllerNow,
    ControllerWhy,
    ObserveHost,
    PastReconcile,
    PastWrite,
    Why,
    controllers_now,
    observer_of,
)
from tests.page import shop
from tests.page.gated import GatedSnapshots
from tests.page.kit import until
from tests.page.shop import store_depots

SAME = set.intersection(*({each.name for each in dataclasses.fields(of)} for of in (ControllerState, ControllerNow)))
SAME -= {"process", "reconciles", "failures"}


def test_ring_holds_the_last_fifteen_minutes() -> None:
    """However long it runs, it keeps as many points, and gives only those that a reader lacks."""
    ring = Ring()
    for step in range(POINTS + 50):
        assert ring.is_due(step * 5.0)
        ring.add([ControllerNow("a/b", reconciles=step * 11, failures=step)], step * 5.0, 1000.0 + step * 5)
        assert not ring.is_due(step * 5.0 + 4)
    at, points = ring.since(0, {"a/b": "a/b", "other": "other"})
    assert (at, len(points)) == (POINTS + 50, POINTS)
    # 10 done and 1 failed in five seconds.
    assert points[-1] == {"at": 1000.0 + (POINTS + 49) * 5, "of": {"a/b": [2.2, 0.2, 0, 0]}}
    assert ring.since(at, {"a/b": "a/b"}) == (at, [])
    assert len(ring.since(at - 3, {"a/b": "a/b"})[1]) == 3


async def test_page_top_and_metrics_have_the_same_numbers(autojump_clock: MockClock) -> None:
    """A scrape of the metrics and the status of an engine give the same states."""
    metrics = Metrics()
    async with headway.open_engine("memory:", shop.app, report=metrics) as engine:
        metrics.watch(engine.status)
        await engine.client.apply(shop.ORDER.new("lost", shop.Order(items=["tea"])))
        await engine.client.apply(shop.ORDER.new("a", shop.Order(customer="ada")))
        await until(lambda: engine.controllers["billing"].status().not_done_count > 0)
        await until(lambda: all(each.phase == "running" for each in engine.status()))
        samples: dict[str, list[Sample]] = {}
        for family in metrics.registry.collect():
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        found = sorted(observer_of(engine).supervisors, key=lambda each: each.fence_name)
        ours = controllers_now([(each, each.status()) for each in found])
        for one, scraped in zip(ours, states_in("x", samples), strict=True):
            for name in SAME:
                assert (name, getattr(one, name)) == (name, getattr(scraped, name))
            assert one.reconciles == sum(scraped.reconciles.values())
            assert one.failures == sum(scraped.reconciles.get(each, 0) for each in ("failed", "permanent"))
            assert state_text(one) == scraped.state


async def nothing_stored(_: object) -> None:
    """Read from an empty store."""


class SlowReader:
    """A browser that takes an event only when the test lets it."""

    def __init__(self) -> None:
        self.took: list[Event] = []
        self.waits = trio.Event()
        self._turns = trio.Semaphore(0)

    def take(self, count: int) -> None:
        """Let it take ``count`` more."""
        for _ in range(count):
            self._turns.release()

    async def read(self, events: Stream[Event]) -> None:
        """Take each event when the test lets the browser."""
        async with events as taken:
            async for event in taken:
                self.waits.set()
                await self._turns.acquire()
                self.waits = trio.Event()
                self.took.append(event)


async def test_slow_reader_gets_the_newest_state_and_no_backlog(autojump_clock: MockClock) -> None:
    """After a hundred looks without it, the reader gets one state: the last one."""
    async with MemoryBackend() as backend, trio.open_nursery() as nursery:
        host = PageHost([shop.app], ObserveHost(nothing_stored), shop.app.registry, StoreParts(backend))
        reader = SlowReader()
        nursery.start_soon(reader.read, PageService(host, shop.app.registry).live(Call(), None))
        reader.take(3)  # the graph, the points, and the first state
        await host.look()
        await trio.testing.wait_all_tasks_blocked()
        assert [each.name for each in reader.took] == ["graph", "points", "state"]
        for _ in range(100):
            await trio.sleep(1)
            await host.look()
        await trio.testing.wait_all_tasks_blocked()
        # The one that was being sent while the others came, then all missing points at once, and the newest state.
        reader.take(1000)
        await trio.testing.wait_all_tasks_blocked()
        states = [each for each in reader.took if each.name == "state"]
        assert len(reader.took) <= 3 + 1 + 4
        assert f'"at":{host.at}'.encode() in states[-1].data
        nursery.cancel_scope.cancel()


class BrokenSupervisor:
    """A controller whose status raises."""

    fence_name = "shop/broken"
    definition = None
    process = "here"

    def __init__(self) -> None:
        self.broken = True

    def newest_unmapped(self, _: int) -> tuple[list[Any], int]:
        """Return what could not be mapped, which is nothing."""
        return [], 0

    def status(self) -> ControllerStatus:
        """Return the status, or raise."""
        if self.broken:
            raise RuntimeError("no status")
        return ControllerStatus("shop/broken", "running", 5.0)


async def test_failed_look_is_reported_and_marked_and_ends_nothing(autojump_clock: MockClock) -> None:
    """Viewers get the last numbers with a mark, and the next look that succeeds removes it."""
    reported = list[object]()
    async with MemoryBackend() as backend, trio.open_nursery() as nursery:
        observe, supervisor = ObserveHost(nothing_stored), BrokenSupervisor()
        host = PageHost([shop.app], observe, shop.app.registry, StoreParts(backend), report=reported.append)
        reader = SlowReader()
        reader.take(1000)
        nursery.start_soon(host.follow)
        nursery.start_soon(reader.read, PageService(host, shop.app.registry).live(Call(), None))
        await trio.sleep(3.5)
        observe.supervisors = [supervisor]  # type: ignore[list-item]  # it breaks as no real one does
        at = host.at
        await trio.sleep(2)
        since = host.stale_since
        await trio.sleep(28)
        assert since is not None
        assert (host.at, host.stale_since) == (at, since), "it counts from the first failure"
        [event] = [each for each in reported if isinstance(each, HandlerFailed) and each.path == LOOK]
        assert str(event.error) == "no status"
        assert b'"stale":1' in b"".join(each.data for each in reader.took if each.name == "state")
        # It goes on at its pace: 34 looks, and 8 questions what is stuck, which fail, too.
        assert host.number <= 45
        supervisor.broken = False
        await trio.sleep(5)
        assert (host.at > at, host.stale_since) == (True, None)
        assert b'"stale":null' in [each.data for each in reader.took if b'"stale"' in each.data][-1]
        assert "shop/broken" in host.seen
        nursery.cancel_scope.cancel()


async def test_progress_of_priming_reaches_the_page() -> None:
    """The number received grows piece by piece, against the number that is stored."""
    gate = GatedSnapshots(shop.DEPOT)
    async with MemoryBackend() as backend:
        await store_depots(backend, 1500)
        async with testing.open_engine(
            nullcontext(backend), shop.app, report=headway.events.ignore, wrap_channel=gate.over
        ) as engine:
            host = PageHost([shop.app], observer_of(engine), shop.app.registry, StoreParts(backend))

            async def received(least: int) -> dict[str, Any]:
                while True:
                    await host.look()
                    bars = host.seen["shop/depots"].priming
                    bar = next((each for each in bars if each["type"] == str(shop.DEPOT.name)), None)
                    if bar is not None and bar["received"] >= least:
                        return bar
                    await trio.sleep(0.005)

            with trio.fail_after(60):
                first = await received(0)
                assert (first["received"], first["total"], first["done"]) == (0, 1500, False)
                gate.let_pass()
                later = await received(1000)
                assert (later["received"], later["total"], later["done"]) == (1000, 1500, False)
                gate.release()
                await engine.wait_idle()
            await host.look()
            assert host.seen["shop/depots"].priming == []


def test_payload_is_shown_without_its_secrets() -> None:
    """The page needs no right to see them, because it never shows them."""

    @headway.message
    class Login:
        user: str = field(1)
        password: str = field(2, secret=True)

    type = headway.App("vault").type("vault", "v1", "Login", Login)
    stored = type.new("core", Login(user="ada", password="canary-1f0a")).message()
    shown = json.dumps(finished(document(type, stored)))
    assert "ada" in shown
    assert "canary-1f0a" not in shown
    assert stored.data is not None
    assert b"canary-1f0a" in stored.data.value


def test_timeline_has_changes_and_reconciles_in_order_of_time() -> None:
    """The newest first, whatever their kind."""
    why = Why(
        writes=[PastWrite(at=3.0, revision=8, verb="written"), PastWrite(at=1.0, revision=7, verb="created")],
        controllers=[
            ControllerWhy(
                "a/b",
                reconciles=[PastReconcile(at=2.0, outcome="done")],
            ),
        ],
    )
    assert [(each["what"], each["at"]) for each in timeline(why)] == [("write", 3.0), ("run", 2.0), ("write", 1.0)]
