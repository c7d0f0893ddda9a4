"""Leadership that goes to another process and comes back, and shards that are spread over the processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Result, Setting, run
from headway.testing.simulation.plans import interims
from tests.helpers.plain_types import Note


@headway.message
class Job:
    text: str = field(1)


def numbering(*, in_memory: bool) -> Callable[[simulation.Process], headway.App]:
    """Return a program that gives each job the next number. Wrong if it reads the last one only once in its life."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("jobs")
        job, note = app.type("jobs", "v1", "Job", Job), app.type("jobs", "v1", "Note", Note)
        last: int | None = None

        @app.controller(manages=job, watches=[headway.watch(note, headway.mappers.owner())])
        async def jobs(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            nonlocal last
            found = rt.resource(request)
            if found is None or rt.cache.get(note, found.name) is not None:
                return
            if last is None or not in_memory:
                last = max((int(each.data.text) for each in rt.cache.list(note)), default=0)
            await rt.client.apply(note.new(found.name, Note(text=f"{last + 1}"), owner=found))
            last += 1

        return app

    return make


async def wish(world: simulation.World, name: str) -> None:
    await world.client.apply(world.type("Job").new(name, Job()))
    await world.wait_idle()


async def there_and_back(world: simulation.World) -> None:
    await world.lead(0)
    await wish(world, "a")
    await world.lead(1)
    await wish(world, "b")
    await world.lead(0)
    await wish(world, "c")


def numbers(result: simulation.Result) -> list[str]:
    return sorted(text.split("'")[1] for (kind, _), text in result.end.items() if kind[1] == "Note")


def leaders(result: simulation.Result) -> list[str]:
    """Return the processes that reconciled, in order, until the scenario was over."""
    found: list[str] = []
    for each in result.trace.entries:
        if isinstance(each, simulation.Happened) and each.text.startswith("the scenario is over"):
            break
        if isinstance(each, simulation.Reconcile) and found[-1:] != [each.process]:
            found.append(each.process)
    return found


def result_of(app: Callable[[simulation.Process], headway.App], plan: str = "none", **settings: Any) -> Result:
    given = {"app": app, "scenario": there_and_back, "processes": 2, "quiet": 60.0, **settings}
    return run(Setting(**given), simulation.Plan.parse(plan))


def test_scenario_makes_another_process_the_leader_and_then_the_first_one_again() -> None:
    result = result_of(numbering(in_memory=False))
    assert leaders(result) == ["p1", "p2", "p1"]
    assert not result.findings
    assert numbers(result) == ["1", "2", "3"]


def test_memory_of_an_earlier_leadership_is_outdated() -> None:
    assert numbers(result_of(numbering(in_memory=True))) == ["1", "2", "2"]


@pytest.mark.wide
class Master:
    """A device that obeys the highest term only."""

    def __init__(self) -> None:
        self.term = 0
        self.jobs: list[str] = []

    def state(self) -> list[str]:
        return self.jobs

    async def begin(self, job: str, term: int) -> bool:
        if term >= self.term and job not in self.jobs:
            self.jobs.append(job)
        self.term = max(self.term, term)
        return term == self.term


def mastering(*, at_first: bool) -> Callable[[simulation.Process], headway.App]:
    """Return a program that writes nothing to the store. Wrong if it sends the first term of its process for ever."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("jobs")
        job = app.type("jobs", "v1", "Job", Job)
        terms: list[int] = []

        @app.controller(manages=job)
        async def jobs(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            terms.append(rt.term)
            if rt.resource(request) is not None:
                await process.outside.begin(request.id.name, terms[0] if at_first else rt.term)

        return app

    return make


async def four_wishes(world: simulation.World) -> None:
    for name in ("a", "b", "c", "d"):
        await wish(world, name)


@pytest.mark.parametrize("at_first", [True, False])
def test_interim_leader_shows_what_a_leader_remembers_of_its_first_time(at_first: bool) -> None:
    """Its calls come too seldom for a handover in one of them to find it out."""
    result = result_of(mastering(at_first=at_first), "interim(2, 3)", scenario=four_wishes, outside=Master)
    first, second = ("p1", "p2") if leaders(result)[0] == "p1" else ("p2", "p1")
    assert leaders(result) == [first, second, first]
    assert [each.oracle for each in result.findings] == (["again"] if at_first else [])


def test_interims_lie_between_changes_of_the_users() -> None:
    """The shortest ones come first."""
    assert [str(each) for each in interims(4)] == ["interim(2, 3)", "interim(3, 4)", "interim(2, 4)"]
    assert not interims(2)
    assert len(interims(20)) == 6


def sharded(_: simulation.Process) -> headway.App:
    app = headway.App("jobs")
    job = app.type("jobs", "v1", "Job", Job)

    @app.controller(manages=job, placement=headway.sharded(shards=16))
    async def jobs(rt: headway.Runtime, request: headway.Request[Job]) -> None:
        found = rt.resource(request)
        if found is not None:
            async with rt.conditions(found) as conditions:
                conditions.set("Done", True)

    return app


async def two_jobs(world: simulation.World) -> None:
    for name in ("a", "b"):
        await world.client.apply(world.type("Job").new(name, Job()))
    await world.wait_idle()


def test_world_is_not_idle_while_a_shard_is_held_by_no_process() -> None:
    """A restart of the server ends the leases. No process has a shard's keys pending until the shard is held again."""
    result = run(
        Setting(app=sharded, scenario=two_jobs, processes=2, quiet=60.0), simulation.Plan.parse("server_restart(1)")
    )
    assert not result.findings
