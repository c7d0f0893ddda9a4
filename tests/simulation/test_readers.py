"""Programs that use caches, notifications and subscriptions, in daemons, in sources, and beside their controllers.

Each of them mirrors routes into a world outside. The right ones are not accused, and the wrong ones are found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import headway
from headway import field
from headway.errors import DeclarationError, StoreChanged
from headway.testing import simulation


@headway.message(name="tests.MirroredRoute")
class Route:
    backend: str = field(1)


@headway.message(name="tests.Mirror")
class Mirror:
    of: str = field(1)


types = headway.App("mesh")
ROUTE = types.type("mesh", "v1", "Route", Route)
MIRROR = types.type("mesh", "v1", "Mirror", Mirror)


class Table:
    """A routing table outside."""

    def __init__(self) -> None:
        self.routes: dict[str, str] = {}

    async def put(self, name: str, backend: str) -> None:
        self.routes[name] = backend

    async def remove(self, name: str) -> None:
        self.routes.pop(name, None)

    async def names(self) -> list[str]:
        return sorted(self.routes)

    def state(self) -> dict[str, str]:
        return dict(self.routes)


def app() -> headway.App:
    declared = headway.App("mesh")
    declared.registry = types.registry
    return declared


async def retry(call: Callable[..., Awaitable[Any]], *arguments: str) -> Any:
    """Make a call of the world outside until it succeeds, as any program must."""
    while True:
        try:
            return await call(*arguments)
        except ConnectionError:
            await trio.sleep(1)


async def replace(process: simulation.Process, wanted: dict[str, str]) -> None:
    """Make the table what is wanted, whatever it is."""
    for name in await retry(process.outside.names):
        if name not in wanted:
            await retry(process.outside.remove, name)
    for name, backend in wanted.items():
        await retry(process.outside.put, name, backend)


async def by_notify(process: simulation.Process, *, whole: bool = True) -> None:
    """Mirror the list of routes. The wrong one takes what the table has for what it has put there itself."""
    known: dict[str, str] = {}
    engine = await process.wait_running()
    async with engine.open_cache(watches=[ROUTE]) as cache, cache.notify() as updates:
        routes = updates.list(ROUTE)
        async for _ in updates:
            wanted = {route.name: route.data.backend for route in routes.value}
            if whole:
                await replace(process, wanted)
                continue
            for name in known.keys() - wanted.keys():
                await retry(process.outside.remove, name)
            for name, backend in wanted.items():
                await retry(process.outside.put, name, backend)
            known = wanted


async def by_notify_alone(process: simulation.Process) -> None:
    await by_notify(process, whole=False)


async def by_subscription(process: simulation.Process, *, whole: bool = True) -> None:
    """Mirror the batches of a subscription. The wrong one takes a snapshot for a series of changes."""
    engine = await process.wait_running()
    while True:
        try:
            async with engine.client.subscribe([ROUTE]) as batches:
                wanted: dict[str, str] = {}
                async for batch in batches:
                    if batch.snapshot:
                        wanted = {}
                    for event in batch.events:
                        if isinstance(event, headway.client.Upserted):
                            wanted[event.resource.name] = event.resource.data.backend
                            if not whole:
                                await retry(process.outside.put, event.resource.name, wanted[event.resource.name])
                        elif isinstance(event, headway.client.Deleted):
                            wanted.pop(event.resource.name)
                            if not whole:
                                await retry(process.outside.remove, event.resource.name)
                    if whole:
                        await replace(process, wanted)
        except StoreChanged:
            continue


async def by_subscription_alone(process: simulation.Process) -> None:
    await by_subscription(process, whole=False)


def from_a_source(how: simulation.Beside) -> simulation.MakeApp:
    """Return a program whose controller mirrors the routes in a source."""

    def make(process: simulation.Process) -> headway.App:
        made = app()

        async def mirror(_: headway.Runtime, __: headway.sources.Enqueue) -> None:
            await how(process)

        @made.controller(manages=MIRROR, sources={"routes": mirror})
        async def mirrors(_: headway.Runtime, __: headway.Request) -> None:
            pass

        return made

    return make


def from_a_daemon(how: simulation.Beside) -> simulation.MakeApp:
    """Return a program that mirrors the routes as long as a resource says so."""

    def make(process: simulation.Process) -> headway.App:
        made = app()

        @made.daemon(MIRROR)
        async def mirror(_: headway.Runtime, __: headway.Resource[Mirror]) -> None:
            await how(process)

        return made

    return make


async def routes_change(world: simulation.World) -> None:
    await world.client.apply(MIRROR.new("all", Mirror(of="routes")))
    await world.client.apply(ROUTE.new("users", Route(backend="one")))
    await world.wait_idle()
    await world.client.delete(ROUTE.id("users"))
    await world.client.apply(ROUTE.new("teams", Route(backend="two")))
    await world.wait_idle()


def explore(where: str, how: simulation.Beside, **settings: Any) -> simulation.Explored:
    if where == "beside":
        return simulation.explore(app(), routes_change, beside=[how], outside=Table, **settings)
    make = from_a_source if where == "source" else from_a_daemon
    return simulation.explore(make(how), routes_change, outside=Table, **settings)


WHERE = pytest.mark.parametrize("where", ["beside", "source", "daemon"])
RIGHT = pytest.mark.parametrize("how", [by_notify, pytest.param(by_subscription, marks=pytest.mark.wide)])


@pytest.mark.wide
@RIGHT
def test_right_mirror_is_accepted_after_a_crash_and_a_restore(how: simulation.Beside) -> None:
    explore("beside", how, plan="crash_before(2); restore(3, 6)")


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("beside", by_notify_alone),
        pytest.param("source", by_subscription_alone, marks=pytest.mark.wide),
        pytest.param("daemon", by_subscription_alone, marks=pytest.mark.wide),
    ],
)
def test_deletion_that_a_mirror_misses_while_its_process_is_down_is_found(where: str, how: simulation.Beside) -> None:
    with pytest.raises(simulation.Refuted, match=r"outside: the outside world is \{'users': 'one'") as refuted:
        explore(where, how, plan="crash_before(2)")
    assert f"{how.__name__ if where == 'beside' else 'mirror'}" in str(refuted.value)


@pytest.mark.wide
def test_subscription_goes_on_with_a_snapshot_after_its_history_is_lost() -> None:
    """The deletion is in no history any more, and so in no event."""
    deletion = "history_lost('mesh.Route', 6)"
    with pytest.raises(simulation.Refuted, match=r"outside: the outside world is \{'users': 'one'"):
        explore("beside", by_subscription_alone, plan=deletion)
    explore("beside", by_subscription, plan=deletion)


# An exploration takes long on a busy machine.
@pytest.mark.timeout(600)
@pytest.mark.wide
@WHERE
@RIGHT
def test_right_mirror_is_accepted_under_every_fault(where: str, how: simulation.Beside) -> None:
    assert explore(where, how).complete


@pytest.mark.wide
def test_function_that_fails_after_a_fault_ends_its_process() -> None:
    """The next life begins a second later, and later each time. One that fails in every life does not recover."""

    async def gives_up(process: simulation.Process) -> None:
        engine = await process.wait_running()
        async with engine.client.subscribe([ROUTE]) as batches:
            async for batch in batches:
                for event in batch.events:
                    if isinstance(event, headway.client.Upserted):
                        await process.outside.put(event.resource.name, event.resource.data.backend)
                    elif isinstance(event, headway.client.Deleted):
                        await process.outside.remove(event.resource.name)

    async def stops_at_remains(process: simulation.Process) -> None:
        if process.lives > 1 and "users" in await process.outside.names():
            raise ValueError("something remains")
        await gives_up(process)

    with pytest.raises(simulation.Refuted, match="outside") as refuted:
        explore("beside", gives_up, plan="not_done(2)")
    assert "p1 ends: OutsideUnreachable" in str(refuted.value)
    with pytest.raises(simulation.Refuted, match=r"converges: p1 has ended \d+ times: .*something remains"):
        explore("beside", stops_at_remains, plan="crash_before(2)")


def test_wrong_function_is_refused() -> None:
    def plain(_: simulation.Process) -> None:
        pass

    with pytest.raises(DeclarationError, match=r"beside: .*must be an async function"):
        explore("beside", plain)  # type: ignore[arg-type]  # the test passes a wrong function
