"""What a program does by its own clock, and changes of users or calls of a reconcile that meet it."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.plans import changes_in_ticks, does_by_the_clock, ticks_during_calls


@headway.message
class Machine:
    image: str = field(1)


@headway.message
class Policy:
    note: str = field(1)


@headway.message
class Sweep:
    note: str = field(1)


class Cloud:
    def __init__(self) -> None:
        self.machines: dict[str, str] = {}

    async def ensure(self, name: str, image: str) -> None:
        self.machines[name] = image

    async def names(self) -> list[str]:
        return sorted(self.machines)

    async def terminate(self, name: str) -> None:
        self.machines.pop(name, None)


types = headway.App("cloud")
MACHINE = types.type("cloud", "v1", "Machine", Machine)
POLICY = types.type("cloud", "v1", "Policy", Policy)
SWEEP = types.type("cloud", "v1", "Sweep", Sweep)


NONE = simulation.Plan()


def sweeping(*, cloud_first: bool) -> simulation.MakeApp:
    """Return a program that terminates every minute what has no resource."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("cloud")
        app.registry = types.registry

        @app.controller(manages=MACHINE)
        async def machines(rt: headway.Runtime, request: headway.Request[Machine]) -> None:
            machine = rt.resource(request)
            if machine is not None:
                await process.outside.ensure(machine.name, machine.data.image)

        @app.timer(POLICY, every=60)
        async def sweep(rt: headway.Runtime, _: headway.Resource[Policy]) -> None:
            names = await process.outside.names() if cloud_first else []
            known = {each.name for each in await rt.strong.list(MACHINE)}
            for name in names if cloud_first else await process.outside.names():
                if name not in known:
                    await process.outside.terminate(name)

        return app

    return make


async def scenario(world: simulation.World) -> None:
    await world.client.apply(POLICY.new("sweep", Policy()))
    await world.wait_idle()
    await world.client.apply(MACHINE.new("a", Machine(image="linux")))
    await world.wait_idle()


@pytest.mark.wide
def test_creation_within_a_sweep_is_found() -> None:
    """The sweep has listed the resources, and then lists a machine whose resource it has not seen."""
    with pytest.raises(simulation.Refuted, match="outside"):
        simulation.explore(sweeping(cloud_first=False), scenario, outside=Cloud, plan="change_in_tick(2, 2)")


@pytest.mark.wide
def test_sweep_that_lists_the_cloud_first_passes() -> None:
    for plan in ("change_in_tick(2, 1)", "change_in_tick(2, 2)"):
        assert simulation.explore(sweeping(cloud_first=True), scenario, outside=Cloud, plan=plan).runs


def test_ticks_are_planned_only_for_programs_that_do_something_by_their_clock() -> None:
    assert does_by_the_clock(run(Setting(app=sweeping(cloud_first=True), scenario=scenario, outside=Cloud), NONE))
    # It writes after the restart at the end, but not by its clock.
    assert not does_by_the_clock(run(Setting(app=types_alone(), scenario=scenario), NONE))


def test_last_change_falls_into_each_of_the_first_calls() -> None:
    assert [str(each) for each in changes_in_ticks(2)] == [f"change_in_tick(2, {call})" for call in (1, 2, 3)]


def types_alone() -> headway.App:
    app = headway.App("cloud")
    app.registry = types.registry

    @app.controller(manages=MACHINE)
    async def machines(rt: headway.Runtime, request: headway.Request[Machine]) -> None:
        machine = rt.resource(request)
        if machine is not None:
            await rt.client.apply(POLICY.new(machine.name, Policy()))

    return app


def provisioning(*, by_policy: bool) -> simulation.MakeApp:
    """Return a program that makes machines and records them as policies, and removes what is not recorded."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("cloud")
        app.registry = types.registry

        @app.controller(manages=MACHINE, watches=[headway.watch(POLICY, headway.mappers.same_name())])
        async def machines(rt: headway.Runtime, request: headway.Request[Machine]) -> None:
            machine = rt.resource(request)
            if machine is not None:
                await process.outside.ensure(machine.name, machine.data.image)
                await rt.client.apply(POLICY.new(machine.name, Policy()))

        @app.timer(SWEEP, every=60)
        async def sweep(rt: headway.Runtime, _: headway.Resource[Sweep]) -> None:
            for name in await process.outside.names():
                record: headway.ResourceType[Any] = POLICY if by_policy else MACHINE
                if await rt.strong.get(record, name) is None:
                    await process.outside.terminate(name)

        return app

    return make


async def provisioned(world: simulation.World) -> None:
    await world.client.apply(SWEEP.new("all", Sweep()))
    await world.client.apply(MACHINE.new("a", Machine(image="linux")))
    await world.wait_idle()


@pytest.mark.wide
def test_tick_between_two_calls_of_a_reconcile_is_found() -> None:
    """The sweep removes a machine that is made, but not recorded yet. The program makes it again, without its data."""
    app = provisioning(by_policy=True)
    with pytest.raises(
        simulation.Refuted, match=r"outside\.machines: a was removed and made again; without faults: never"
    ):
        simulation.explore(app, provisioned, outside=Cloud, plan="tick_during(2, 2)")


def test_ticks_fall_between_two_calls_of_a_reconcile_first() -> None:
    setting = Setting(app=provisioning(by_policy=False), scenario=provisioned, outside=Cloud)
    planned = [str(each) for each in ticks_during_calls(run(setting, simulation.Plan.parse("settled()")))]
    # The third call writes after the others of its reconcile; the first call of all is the sweep's own.
    assert planned[0] == "tick_during(2, 3)"
    assert planned[-2:] == ["tick_during(2, 1)", "tick_during(1, 1)"]
