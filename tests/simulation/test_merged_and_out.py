"""Changes that are delivered together, methods that are unavailable, and a leadership that moves with each change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Result, Setting, run


@headway.message
class Bill:
    phase: str = field(1)


@headway.message
class Paper:
    text: str = field(1)


def receipts(*, by_step: bool) -> headway.App:
    """Return a program that writes a receipt for a paid bill. Wrong if it waits for the very change to "paid"."""
    app = headway.App("bills")
    bill, paper = app.type("bills", "v1", "Bill", Bill), app.type("bills", "v1", "Paper", Paper)

    def paid(old: headway.Resource[Bill] | None, new: headway.Resource[Bill] | None) -> bool:
        return old is None or (new is not None and new.data.phase == "paid")

    @app.controller(manages=bill, when=paid if by_step else None)
    async def write(rt: headway.Runtime, request: headway.Request[Bill]) -> None:
        found = rt.resource(request)
        if found is not None and found.data.phase != "open":
            await rt.client.apply(paper.new(found.name, Paper(text="receipt"), owner=found))

    return app


async def three_phases(world: simulation.World) -> None:
    for phase in ("open", "paid", "filed"):
        await world.client.apply(world.type("Bill").new("a", Bill(phase=phase)))
        await world.wait_idle()


class Outside:
    def __init__(self) -> None:
        self.disks: list[str] = []
        self.names: list[str] = []

    async def attach(self, name: str) -> None:
        if name not in self.disks:
            self.disks.append(name)

    async def label(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)


def disks(*, gives_up: bool) -> Callable[[simulation.Process], headway.App]:
    """Return a program with two calls for each bill. Wrong if it attaches a disk only at its first three attempts."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("bills")
        bill = app.type("bills", "v1", "Bill", Bill)

        @app.controller(manages=bill)
        async def attach(rt: headway.Runtime, request: headway.Request[Bill]) -> None:
            found = rt.resource(request)
            if found is None or (gives_up and request.attempt > 3):
                return
            await process.outside.label(found.name)
            await process.outside.attach(found.name)

        return app

    return make


async def one_bill(world: simulation.World) -> None:
    await world.client.apply(world.type("Bill").new("a", Bill()))
    await world.wait_idle()


def outage(*, gives_up: bool) -> Result:
    setting = Setting(app=disks(gives_up=gives_up), scenario=one_bill, outside=Outside, quiet=60.0)
    return run(setting, simulation.Plan.parse("outage(2, 60.0)"))


def test_program_that_gives_up_in_an_outage_is_found() -> None:
    assert [each.oracle for each in outage(gives_up=True).findings] == ["again"]


class Cdn:
    def __init__(self) -> None:
        self.rules: dict[str, str] = {}

    async def put(self, name: str, phase: str) -> None:
        self.rules[name] = phase


def pushing(*, remembers: bool) -> Callable[[simulation.Process], headway.App]:
    """Return a program that pushes a rule. Wrong if a process relies on what it pushed in an earlier leadership."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("bills")
        bill = app.type("bills", "v1", "Bill", Bill)
        pushed: dict[str, str] = {}

        @app.controller(manages=bill)
        async def push(rt: headway.Runtime, request: headway.Request[Bill]) -> None:
            found = rt.resource(request)
            if found is not None and not (remembers and pushed.get(found.name) == found.data.phase):
                await process.outside.put(found.name, found.data.phase)
                pushed[found.name] = found.data.phase

        return app

    return make


async def to_and_fro(world: simulation.World) -> None:
    for phase in ("on", "off", "on"):
        await world.client.apply(world.type("Bill").new("a", Bill(phase=phase)))
        await world.wait_idle()


@pytest.mark.parametrize("remembers", [True, False])
def test_leadership_that_moves_with_each_change_shows_what_a_process_remembers(remembers: bool) -> None:
    setting = Setting(app=pushing(remembers=remembers), scenario=to_and_fro, outside=Cdn, processes=2, quiet=60.0)
    result = run(setting, simulation.Plan.parse("relay()"))
    assert [each.oracle for each in result.findings] == (["again"] if remembers else [])


def test_change_without_a_next_one_is_delivered_at_the_end_of_the_scenario() -> None:
    setting = Setting(app=receipts(by_step=False), scenario=three_phases, quiet=60.0)
    result = run(setting, simulation.Plan.parse("merged('bills.Bill', 9)"))
    assert len(result.struck) == 1
    assert not result.findings
