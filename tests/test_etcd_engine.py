"""Engines that share one store in a real etcd, and divide the controllers by its leases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import trio

import headway
from headway import field
from tests.helpers.etcd_server import EtcdServer


@headway.message
class Job:
    text: str = field(1)


@headway.message
class Copy:
    text: str = field(1)
    by: str = field(2)


class Engine:
    """An engine with its app, and a record of its reconciles."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url
        self.app = headway.App("staff")
        self.job, self.copy = self.app.type("staff", "v1", "Job", Job), self.app.type("staff", "v1", "Copy", Copy)
        self.sharded: set[str] = set()
        self.stack = AsyncExitStack()

        @self.app.controller(
            manages=self.job, watches=[headway.watch(self.copy, headway.mappers.owner())], placement="singleton"
        )
        async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            given = rt.resource(request)
            if given is not None:
                await rt.apply(self.copy.new(given.name, Copy(text=given.data.text, by=self.name), owner=given))

        @self.app.controller(manages=self.job, placement=headway.sharded(shards=8))
        async def counter(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            if rt.resource(request) is not None:
                self.sharded.add(request.id.name)

    async def __aenter__(self) -> Engine:
        opened = headway.open_engine(self.url, self.app, process=self.name, timing=headway.Timing(lease_ttl=2.0))
        self.engine = await self.stack.enter_async_context(opened)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    @property
    def leads(self) -> bool:
        return self.engine.controllers["copier"].status().phase == "running"

    async def copies(self) -> dict[str, tuple[str, str]]:
        return {each.name: (each.data.text, each.data.by) for each in await self.engine.client.list(self.copy)}


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for has no event
        await trio.sleep(0.02)


async def test_engines_on_one_etcd_share_a_store_and_its_controllers(etcd: EtcdServer) -> None:
    """The leader reconciles the writes of both engines. Keys are sharded. The second engine takes over."""
    url = f"etcd://{etcd.endpoint}{etcd.new_prefix()}"
    names = [f"j{number}" for number in range(20)]
    with trio.fail_after(50):
        async with Engine("web-2", url) as second:
            async with Engine("web-1", url) as first:
                await until(lambda: first.leads or second.leads)
                leader = "web-1" if first.leads else "web-2"
                for name in names:
                    await second.engine.client.apply(second.job.new(name, Job(text=name)))
                await until(lambda: first.sharded | second.sharded == set(names) and first.sharded and second.sharded)
                await first.engine.wait_idle()
                await second.engine.wait_idle()
                assert await first.copies() == {name: (name, leader) for name in names}
            await until(lambda: second.leads)
            await second.engine.client.apply(second.job.new("late", Job(text="late")))
            await until(lambda: second.sharded == {*names, "late"})
            await second.engine.wait_idle()
            assert (await second.copies())["late"] == ("late", "web-2")
