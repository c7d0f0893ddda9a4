"""Engines that share one store divide the controllers among them, including Headway's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.storage import Backend, MemoryBackend
from tests.helpers.cluster import Copy, Job

TTL = 15.0
SINGLETONS = ("copier", "reaper", "namespaces", "partitions")


class SharedMemory(MemoryBackend):
    """A store in memory that reports itself as shared, like a store on a network."""

    shared = True


@pytest.fixture
async def store() -> AsyncIterator[Backend]:
    async with SharedMemory() as store:
        yield store


def app_of(by: str) -> tuple[headway.App, headway.ResourceType[Job], headway.ResourceType[Copy]]:
    app = headway.App("staff")
    job, copy = app.type("staff", "v1", "Job", Job), app.type("staff", "v1", "Copy", Copy)

    @app.controller(manages=job, watches=[headway.watch(copy, headway.mappers.owner())])
    async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
        given = rt.resource(request)
        if given is not None:
            await rt.apply(copy.new(given.name, Copy(text=given.data.text, by=by), owner=given))

    return app, job, copy


class Engine:
    """An engine on the shared store, and its reports."""

    def __init__(self, name: str | None) -> None:
        self.events: list[object] = []
        self.app, self.job, self.copy = app_of(str(name))
        self.engine: headway.Engine
        self._name = name
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    @asynccontextmanager
    async def opened(self, store: Backend) -> AsyncIterator[headway.Engine]:
        shared: AbstractAsyncContextManager[Backend] = nullcontext(store)
        engine = headway.open_engine(
            shared, self.app, process=self._name, report=self.events.append, timing=headway.Timing(lease_ttl=TTL)
        )
        async with engine as self.engine:
            yield self.engine

    async def run(self, store: Backend, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scope:
                async with self.opened(store):
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self._ended.set()

    async def end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    def leads(self) -> set[str]:
        return {name for name in SINGLETONS if self.engine.controllers[name].status().phase == "running"}

    def runs_ended(self) -> list[events.RunEnded]:
        return [event for event in self.events if isinstance(event, events.RunEnded)]


async def wait_led(*engines: Engine) -> None:
    """Wait until these engines run every singleton controller."""
    with trio.fail_after(4 * TTL):
        while True:
            if set().union(*(engine.leads() for engine in engines)) == set(SINGLETONS):
                return
            await trio.sleep(0.1)


async def test_singletons_run_in_one_engine_and_the_next_takes_over(store: Backend, autojump_clock: MockClock) -> None:
    """No engine ends the other's runs, and resources of a deleted owner are deleted by either engine."""
    assert autojump_clock.autojump_threshold == 0
    first, second = Engine("web-1"), Engine("web-2")
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, store)
        await wait_led(first)
        await nursery.start(second.run, store)
        job, copy = second.job, second.copy
        for name in ("a", "b"):
            await second.engine.client.apply(job.new(name, Job(text=name)))
        with trio.fail_after(TTL):
            await first.engine.wait_idle()
        assert {each.data.by for each in await second.engine.client.list(copy)} == {"web-1"}
        # Long enough for any lease to be renewed or lost.
        await trio.sleep(3 * TTL)
        assert first.leads() == set(SINGLETONS)
        assert second.leads() == set()
        assert {second.engine.controllers[name].status().leader for name in SINGLETONS} == {"web-1"}
        assert first.runs_ended() == second.runs_ended() == []
        await first.end()
        await wait_led(second)
        await second.engine.client.delete(job.id("a"))
        with trio.fail_after(TTL):
            await second.engine.wait_idle()
        assert [each.name for each in await second.engine.client.list(copy)] == ["b"]
        nursery.cancel_scope.cancel()


async def test_engine_without_a_name_gets_a_unique_one(store: Backend, autojump_clock: MockClock) -> None:
    """With equal names, each engine would treat the leases of the other as its own."""
    first, second = Engine(None), Engine(None)
    assert autojump_clock.autojump_threshold == 0
    async with first.opened(store), second.opened(store):
        await wait_led(first, second)
        await trio.sleep(3 * TTL)
        assert sorted([*first.leads(), *second.leads()]) == sorted(SINGLETONS)
        names = [
            {event.holder for event in engine.events if isinstance(event, events.LeaseTaken)}
            for engine in (first, second)
        ]
        assert first.runs_ended() == second.runs_ended() == []
    assert names[0].isdisjoint({*names[1], "server"})
