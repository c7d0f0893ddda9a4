"""The object that stands for the world outside: how programs change it, and how its states are compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.world._process import Outside


@headway.message
class Disk:
    """A disk of the store."""

    login: str = field(1)


def program(act: Any, *, once: bool = False) -> simulation.MakeApp:
    """Return a program that acts for each disk, with a status afterwards, which it obeys if ``once``."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("disks")
        disk = app.type("disks", "v1", "Disk", Disk)

        @app.controller(manages=disk)
        async def disks(rt: headway.Runtime, request: headway.Request[Disk]) -> None:
            found = rt.resource(request)
            if found is not None and not (once and rt.controller in found.status):
                await act(process, found)
                async with rt.conditions(found) as conditions:
                    conditions.set("Created", True)

        return app

    return make


async def one_disk(world: simulation.World) -> None:
    await world.client.apply(world.type("Disk").new("a", Disk(login="ada")))
    await world.wait_idle()


class Counting:
    def __init__(self) -> None:
        self.last = ""
        self.writes = 0

    async def look(self) -> None:
        pass


async def assigns(process: simulation.Process, found: headway.Resource[Disk]) -> None:
    process.outside.last = found.name
    process.outside.writes += 1


def test_assignment_by_a_program_is_seen_in_the_world() -> None:
    result = run(Setting(app=program(assigns, once=True), scenario=one_disk, outside=Counting), simulation.Plan())
    assert not result.findings
    assert result.outside == {"last": "a", "writes": 1}


def test_assignment_that_is_repeated_after_a_crash_is_found() -> None:
    with pytest.raises(simulation.Refuted) as refuted:
        simulation.explore(program(assigns, once=True), one_disk, outside=Counting, plan="crash_before(1)")
    found = "outside: the outside world is {'last': 'a', 'writes': 2}; without faults: {'last': 'a', 'writes': 1}"
    assert str(refuted.value.findings[0]) == found


def test_attribute_of_the_world_is_deleted_by_a_program() -> None:
    real = Counting()
    del Outside(real, cast("Any", SimpleNamespace(killed=False))).last
    assert vars(real) == {"writes": 0}


def test_killed_process_assigns_and_deletes_nothing() -> None:
    real = Counting()
    outside = Outside(real, cast("Any", SimpleNamespace(killed=True)))
    with pytest.raises(simulation.OutsideUnreachable, match="the process has been killed"):
        outside.last = "a"
    with pytest.raises(simulation.OutsideUnreachable, match="the process has been killed"):
        del outside.last
    assert real.last == ""
