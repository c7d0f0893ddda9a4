"""The controller of endpoints in a running engine: how often it writes (W-10), and W-13."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import trio
import trio.testing

import headway
from catalog.messages import Health
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway.events import Reconciled
from headway.pauses import Paused, pause_controller, resume_controller
from tests.helpers.catalogs import check, service, with_controllers, workload

ALONE = with_controllers("endpoint-manager")
WHOLE = with_controllers("node-health", "workload-health", "endpoint-manager")
T = TypeVar("T")


class Failures(list[Reconciled]):
    """The failed reconciles of an engine, which reports to it.

    Attributes:
        next: an event that the next reconcile of the controller of endpoints sets.
        paused: an event that is set once a controller is paused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next, self.paused = trio.Event(), trio.Event()

    def __call__(self, event: object) -> None:
        if isinstance(event, Paused):
            self.paused.set()
        if isinstance(event, Reconciled):
            if event.error is not None:
                self.append(event)
            if event.controller == "catalog/endpoint-manager":
                self.next.set()

    async def after(self, change: Awaitable[T]) -> T:
        """Make a change, and wait for a reconcile that ends after it has begun."""
        self.next = trio.Event()
        done = await change
        with trio.fail_after(30):
            await self.next.wait()
        return done


async def note_states(engine: headway.Engine, type: headway.ResourceType[Any], seen: list[str]) -> None:
    """Note the version of each state of the type's resources."""
    async with engine.client.watch(type) as events:
        async for event in events:
            if isinstance(event, headway.client.Upserted):
                seen.append(event.resource.version)


async def test_w10_new_service_has_its_endpoints_and_its_status_written_once() -> None:
    failed = Failures()
    async with headway.open_engine("memory:", ALONE, report=failed) as engine, trio.open_nursery() as nursery:
        await engine.client.apply(workload("api-1", identity="foo"))
        endpoints: list[str] = []
        services: list[str] = []
        nursery.start_soon(note_states, engine, SERVICE_ENDPOINTS, endpoints)
        nursery.start_soon(note_states, engine, SERVICE, services)
        for number in range(5):
            await engine.client.apply(service(f"api{number}", prefixes=["api-"]))
            await engine.wait_idle()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    # A service is stored once by its user, and once with its status.
    assert len(services) == 10
    assert len(endpoints) == 5
    assert failed == []


async def test_one_change_of_health_writes_once() -> None:
    async with headway.open_engine("memory:", WHOLE) as engine:
        api = await engine.client.apply(workload("api-1"))
        for name in ("api", "other"):
            await engine.client.apply(service(name, prefixes=["api-"]))
        await engine.wait_idle()
        changed = await engine.client.apply(check(api, Health.HEALTH_CRITICAL))
        await engine.wait_idle()
        versions = [int(each.version) for each in await engine.client.list(SERVICE_ENDPOINTS)]
        versions.append(int((await engine.client.read(WORKLOAD, "api-1")).version))
        assert sorted(versions) == [int(changed.version) + number for number in (1, 2, 3)]


async def test_w13_endpoints_of_an_earlier_service_are_waited_for_without_a_failure() -> None:
    failed = Failures()
    async with headway.open_engine("memory:", ALONE, report=failed) as engine:
        await engine.client.apply(workload("api-1"))
        earlier = await engine.client.apply(service("api", prefixes=["api-"]))
        await engine.wait_idle()
        # The reaper deletes the endpoints of a deleted service, at any time.
        reaper = engine.controllers["reaper"].fence_name
        await pause_controller(engine.client, reaper)
        with trio.fail_after(30):
            await failed.paused.wait()
        await failed.after(engine.client.delete(earlier))
        later = await failed.after(engine.client.apply(service("api", names=["nobody"])))
        # A write would be lost with them, and a status would describe endpoints that are gone.
        assert len((await engine.client.read(SERVICE_ENDPOINTS, "api")).data.endpoints) == 1
        assert (await engine.client.read(SERVICE, "api")).status == {}
        await resume_controller(engine.client, reaper)
        await engine.wait_idle()
        endpoints = await engine.client.read(SERVICE_ENDPOINTS, "api")
        assert endpoints.owner == later.id
        assert endpoints.data.endpoints == []
    assert failed == []
