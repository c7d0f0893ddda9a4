"""Changes of users that fall into what a program does by its own clock."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation._plans import ticks
from headway.testing.simulation._run import run
from headway.testing.simulation._setting import Setting


@headway.message
class Machine:
    image: str = field(1)


@headway.message
class Policy:
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


def test_creation_within_a_sweep_is_found() -> None:
    """The sweep has listed the resources, and then lists a machine whose resource it has not seen."""
    with pytest.raises(simulation.Refuted, match="outside"):
        simulation.explore(sweeping(cloud_first=False), scenario, outside=Cloud, plan="change_in_tick(2, 2)")


def test_sweep_that_lists_the_cloud_first_passes() -> None:
    for plan in ("change_in_tick(2, 1)", "change_in_tick(2, 2)"):
        assert simulation.explore(sweeping(cloud_first=True), scenario, outside=Cloud, plan=plan).runs


def test_ticks_are_planned_only_for_programs_that_call_by_their_clock() -> None:
    """The last change comes first, in each of the first calls."""
    setting = Setting(app=sweeping(cloud_first=True), scenario=scenario, outside=Cloud)
    trace = run(setting, simulation.Plan()).trace
    assert [str(each) for each in ticks(trace, 2)] == [f"change_in_tick(2, {call})" for call in (1, 2, 3)]
    assert ticks(run(Setting(app=types_alone(), scenario=scenario), simulation.Plan()).trace, 2) == []


def types_alone() -> headway.App:
    app = headway.App("cloud")
    app.registry = types.registry

    @app.controller(manages=MACHINE)
    async def machines(rt: headway.Runtime, request: headway.Request[Machine]) -> None:
        machine = rt.resource(request)
        if machine is not None:
            async with rt.conditions(machine) as conditions:
                conditions.set("Ready", True)

    return app
