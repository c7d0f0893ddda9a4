"""The functions of a program beside reconcilers: daemons, timers, sources, initialisers and callbacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Result, Setting, Step, run


@headway.message
class Site:
    host: str = field(1)


class Probes:
    """A world outside that counts how often each site was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, name: str) -> None:
        self.asked.append(name)

    def state(self) -> list[str]:
        """Return the sites that were asked for at all."""
        return sorted(set(self.asked))


Declare = Callable[[headway.App, Any, simulation.Process], None]


def made(declare: Declare) -> Callable[[simulation.Process], headway.App]:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("web")
        declare(app, app.type("web", "v1", "Site", Site), process)
        return app

    return make


async def two_sites(world: simulation.World) -> None:
    for name in ("a", "b"):
        await world.client.apply(world.type("Site").new(name, Site(host=name)))
    await world.wait_idle()
    await world.sleep(100)
    await world.wait_idle()


def result_of(declare: Declare, plan: str = "none", quiet: float | None = 60.0) -> Result:
    setting = Setting(app=made(declare), scenario=two_sites, outside=Probes, quiet=quiet)
    return run(setting, simulation.Plan.parse(plan))


def probing(app: headway.App, site: Any, process: simulation.Process) -> None:
    @app.daemon(site, finalizer=True)
    async def prober(_: headway.Runtime, resource: headway.Resource[Site]) -> None:
        while True:
            await process.outside.ask(resource.name)
            await trio.sleep(40)


def timing(app: headway.App, site: Any, process: simulation.Process) -> None:
    @app.timer(site, every=30, jitter=0)
    async def timed(_: headway.Runtime, resource: headway.Resource[Site]) -> None:
        await process.outside.ask(resource.name)


@pytest.mark.parametrize("plan", ["none", "crash_after(1)", "lease_lost(2)", "cut_off(1, 40.0)"])
@pytest.mark.parametrize("declare", [probing, timing])
def test_correct_daemon_or_timer_is_accepted(declare: Declare, plan: str) -> None:
    result = result_of(declare, plan)
    assert not result.findings
    assert result.outside == ["a", "b"]


def asked(result: Result) -> list[Step]:
    return [each for each in result.trace.steps if each.method.startswith("call outside.ask")]


def test_timer_is_called_once_in_an_interval_however_often_the_resource_changes() -> None:
    async def changed(world: simulation.World) -> None:
        for number in range(5):
            await world.client.apply(world.type("Site").new("a", Site(host=f"{number}")))
            await world.sleep(2)
        await world.wait_idle()

    result = run(Setting(app=made(timing), scenario=changed, outside=Probes, quiet=None), simulation.Plan())
    assert len([each for each in asked(result) if each.at < 10]) == 1


def test_call_of_a_daemon_is_a_step_that_can_fail() -> None:
    number = asked(result_of(probing))[0].number
    first = asked(result_of(probing, f"not_done({number})"))[0]
    assert first.outcome == "not done: the connection broke"
    assert first.by.function == "the daemon"


def from_a_source(app: headway.App, site: Any, process: simulation.Process) -> None:
    async def poll(_: headway.Runtime, enqueue: Callable[[headway.ResourceId], None]) -> None:
        await process.outside.ask("polled")
        enqueue(site.id("a"))
        await trio.sleep_forever()

    @app.controller(manages=site, sources={"poll": poll})
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        rt.resource(request)


def from_an_initialiser(app: headway.App, site: Any, process: simulation.Process) -> None:
    async def initialise(rt: headway.Runtime) -> None:
        await process.outside.ask("initialised")
        await rt.client.apply(site.new("given", Site(host="given")))

    @app.controller(manages=site, initialiser=initialise)
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        rt.resource(request)


def from_a_callback(app: headway.App, site: Any, process: simulation.Process) -> None:
    async def begun(_: headway.Runtime) -> None:
        await process.outside.ask("started")

    stopped: list[object] = []

    @app.controller(manages=site, on_start=begun, on_stop=lambda _, error: stopped.append(error))
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        rt.resource(request)


@pytest.mark.parametrize(
    ("declare", "function"),
    [(from_a_source, "source poll"), (from_an_initialiser, "the initialiser"), (from_a_callback, "on_start")],
)
def test_call_of_another_function_is_a_step(declare: Declare, function: str) -> None:
    result = result_of(declare)
    assert not result.findings
    assert asked(result)[0].by.function == function
    assert f"p1 calls {function} of sites" in [str(each) for each in result.trace.entries]
    crashed = result_of(declare, "crash_after(1)")
    assert len(asked(crashed)) == len(asked(result)) + 1


def test_write_of_an_initialiser_is_the_controllers() -> None:
    result = result_of(from_an_initialiser)
    assert "sites" in {each.by for each in result.trace.commits if each.key[2] == "given"}


def test_creation_by_a_user_or_a_reconciler_succeeds() -> None:
    def creating(app: headway.App, site: Any, _: simulation.Process) -> None:
        @app.controller(manages=site)
        async def mirrors(rt: headway.Runtime, request: headway.Request[Site]) -> None:
            found = rt.resource(request)
            if found is not None and not found.name.startswith("mirror-"):
                with contextlib.suppress(headway.errors.AlreadyExists):
                    await rt.client.create(site.new(f"mirror-{found.name}", Site(host=found.data.host)))

    async def created(world: simulation.World) -> None:
        await world.client.create(world.type("Site").new("a", Site(host="a")))
        await world.wait_idle()
        with pytest.raises(headway.errors.AlreadyExists):
            await world.client.create(world.type("Site").new("mirror-a", Site(host="b")))

    for plan in ("none", "answer_lost(1)", "crash_after(1)"):
        result = run(Setting(app=made(creating), scenario=created, quiet=60.0), simulation.Plan.parse(plan))
        assert not result.findings
        assert len(result.end) == 2
