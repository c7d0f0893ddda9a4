"""The exploration of programs that add watches at run time."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting, run


@headway.message
class Report:
    kind: str = field(1)
    found: list[str] = field(2)


@headway.message(name="discovers.Thing")
class Thing:
    note: str = field(1)


def program(*, by_initialiser: bool = False, maps: bool = True, **options: Any) -> headway.App:
    """Return a program whose reports list the resources of a kind that each report names.

    Args:
        by_initialiser: the initialiser adds the watches, not the reconciler.
        maps: the mappers of the added watches return the reports.
    """
    app = headway.App("discovers")
    report = app.type("discovers", "v1", "Report", Report)
    things = {kind: app.type("discovers", "v1", kind, Thing) for kind in ("Fork", "Spoon")}
    by_kind = headway.indexes.by(report, "kind", lambda each: each.data.kind)
    reports_of = headway.mappers.index(by_kind, value=lambda thing: thing.type.name.kind if maps else "no kind")

    async def initialiser(rt: headway.Runtime) -> None:
        await rt.watch(*(headway.watch(type, reports_of) for type in things.values()))

    @app.controller(
        manages=report,
        indexes=[by_kind],
        initialiser=initialiser if by_initialiser else None,
        **options,
    )
    async def reports(rt: headway.Runtime, request: headway.Request[Report]) -> None:
        given = rt.resource(request)
        if given is None:
            return
        type = things[given.data.kind]
        if not by_initialiser:
            await rt.watch(headway.watch(type, reports_of))
        found = sorted(thing.name for thing in rt.cache.list(type))
        if given.data.found != found:
            given.data.found = found
            await rt.client.write(given)

    return app


async def scenario(world: simulation.World) -> None:
    report, fork, spoon = world.type("Report"), world.type("Fork"), world.type("Spoon")
    await world.client.apply(fork.new("f1", Thing()))
    await world.client.apply(report.new("forks", Report(kind="Fork")))
    await world.wait_idle()
    await world.client.apply(report.new("spoons", Report(kind="Spoon")))
    await world.client.apply(spoon.new("s1", Thing()))
    await world.wait_idle()
    await world.client.apply(fork.new("f2", Thing()))
    await world.client.delete(fork.id("f1"))
    await world.wait_idle()


async def short_scenario(world: simulation.World) -> None:
    report, fork = world.type("Report"), world.type("Fork")
    await world.client.apply(fork.new("f1", Thing()))
    await world.client.apply(report.new("forks", Report(kind="Fork")))
    await world.wait_idle()
    await world.client.delete(fork.id("f1"))
    await world.wait_idle()


def result_of(app: headway.App, plan: str = "none", **options: Any) -> simulation.Result:
    return run(Setting(app=app, scenario=scenario, **options), simulation.Plan.parse(plan))


@pytest.mark.parametrize("by_initialiser", [False, True])
@pytest.mark.parametrize(
    "plan",
    [
        "none",
        "crash_before(2)",
        *(pytest.param(each, marks=pytest.mark.wide) for each in ("crash_after(2)", "not_done(3)", "lease_lost(3)")),
    ],
)
def test_program_that_adds_watches_is_accepted(plan: str, by_initialiser: bool) -> None:
    """Each life of a process adds them anew."""
    result = result_of(program(by_initialiser=by_initialiser), plan)
    assert not result.findings
    found = {key[2]: sorted(fields.values()) for (kind, key), fields in result.contents.items() if kind[1] == "Report"}
    assert found == {"forks": ["'Fork'", "['f2']"], "spoons": ["'Spoon'", "['s1']"]}


def test_program_whose_added_watch_maps_to_nothing_is_refuted() -> None:
    """Its report lacks what was written after the report, and has it after a restart."""
    findings = result_of(program(maps=False)).findings
    assert [finding.oracle for finding in findings] == ["again"]


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_initialiser", [False, True])
def test_program_that_adds_watches_passes_every_fault(by_initialiser: bool) -> None:
    simulation.explore(program(by_initialiser=by_initialiser), short_scenario)


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("placement", ["every_process", headway.sharded(shards=4)], ids=["every", "sharded"])
def test_program_that_adds_watches_passes_every_fault_in_two_processes(placement: object) -> None:
    simulation.explore(program(placement=placement), short_scenario, processes=2)
