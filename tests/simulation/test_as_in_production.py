"""A run without faults is what a real engine does: the same events, resources and calls of the world outside.

Each program of the corpus, right and wrong, runs in the simulation and in `headway.open_engine`, under the same
scenario and virtual time. Revisions, uids and processes' names differ, so they are left out. How many changes one
reconcile takes together depends on the order of ready tasks, so equal reconciles in a row count as one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
import tests.helpers.corpus.__main__  # noqa: F401  # declares the cases
from headway import events
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation._run import _deterministic
from tests.helpers.corpus.staff import CASES, Cloud
from tests.simulation import test_functions

OF_THE_SERVER = {f"headway/{name}" for name in ("namespaces", "partitions", "reaper", "deletions")}
"""The controllers that an engine runs for its own types. In a simulation they belong to the server."""

NEVER_IDLE = {"any_order", "asks_at_once", "two_of_different_minds", "wakes_itself", "writes_the_time"}
"""The wrong programs that never become idle, without any fault. A real engine would go on for ever."""
RACES = {"two_of_different_minds"}
"""The programs with several controllers, of which one meets a conflict. Which one depends on the order of tasks."""
QUICK = {"added_again", "begun_twice", "created_then_recorded", "retried_under_another_name", "torn_down"}
"""The cases that the default run includes."""

Make = Callable[[Any, str], headway.App]
Scenario = Callable[[Any], Awaitable[None]]


class World:
    """The parts of a simulation's world that scenarios use, on a real engine."""

    def __init__(self, engine: headway.Engine, app: headway.App, outside: Any) -> None:
        self._types = {type.name.kind: type for type in app.registry}
        self.client = engine.client
        self.wait_idle = engine.wait_idle
        self.sleep = trio.sleep
        self.outside = outside

    def type(self, kind: str) -> Any:
        return self._types[kind]


class Seen:
    """The result of a run: its events by controller and resource, the stored resources, and the world outside."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], list[str]] = {}
        self.stored: list[str] = []
        self.outside = ""
        self.idle = True

    async def end(self, world: Any, reported: list[Any], app: headway.App) -> None:
        """Record the state at the end of the scenario."""
        await world.wait_idle()
        by_key: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for event in reported:
            controller = getattr(event, "controller", None)
            if controller is not None and controller not in OF_THE_SERVER:
                id = getattr(event, "id", None)
                by_key[controller, id.name if id is not None else ""].append(described(event))
        self.events = {place: once(found) if place[1] else sorted(found) for place, found in by_key.items()}
        for type in sorted(app.registry, key=lambda each: str(each.name)):
            if type.name.kind in ("Team", "Account", "Site"):
                for each in await world.client.list(type, partition="*", namespace="*"):
                    self.stored.append(described_resource(each))
        state = getattr(world.outside, "state", None)
        self.outside = repr(state() if state is not None else None)


def once(found: list[str]) -> list[str]:
    """Return the texts without those that repeat the one before."""
    return [text for text, _ in itertools.groupby(found)]


def described(event: Any) -> str:
    """Return an event without revisions and times."""
    name = type(event).__name__
    if isinstance(event, events.Reconciled):
        reasons = sorted({str(each.what) for each in event.reasons})
        return f"{name} {event.outcome} attempt {event.attempt} because of {reasons}, again in {event.retry_after}"
    if isinstance(event, events.RunStarted):
        return f"{name} in term {event.term} with {event.queued}"
    return name


def described_resource(resource: headway.Resource[Any]) -> str:
    statuses = {
        key: [(each.type, each.state, each.reason, each.message) for each in status.conditions]
        for key, status in resource.status.items()
    }
    owner = resource.owner.name if resource.owner is not None else ""
    return f"{resource.id.type} {resource.name} {resource.data!r} {owner} {sorted(resource.metadata)} {statuses}"


def simulated(make: Make, scenario: Scenario, new_outside: Callable[[], Any]) -> Seen:
    seen = Seen()

    async def watched(world: simulation.World) -> None:
        await world.wait_idle()
        await scenario(world)
        await seen.end(world, world.trace.events, world.processes[0].app)

    def made(process: simulation.Process) -> headway.App:
        return make(process.outside, process.name)

    result = run(Setting(app=made, scenario=watched, outside=new_outside, quiet=None), simulation.Plan())
    seen.idle = "converges" not in {each.oracle for each in result.findings}
    return seen


def real(make: Make, scenario: Scenario, new_outside: Callable[[], Any]) -> Seen:
    seen, outside, reported = Seen(), new_outside(), list[Any]()
    app = make(outside, "p1")

    async def main() -> None:
        async with headway.open_engine(
            "memory:", app, report=reported.append, process="p1", timing=headway.Timing(shutdown_bound=86_400)
        ) as engine:
            world = World(engine, app, outside)
            await engine.wait_idle()
            await scenario(world)
            await seen.end(world, reported, app)

    with _deterministic(0):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    return seen


def compare(make: Make, scenario: Scenario, new_outside: Callable[[], Any], *, races: bool = False) -> Seen:
    ours = simulated(make, scenario, new_outside)
    if not ours.idle:
        return ours
    theirs = real(make, scenario, new_outside)
    assert races or ours.events == theirs.events
    assert ours.stored == theirs.stored
    assert ours.outside == theirs.outside
    return ours


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.wide) for each in CASES]
)
def test_program_behaves_as_in_a_real_engine(name: str, right: bool) -> None:
    case = CASES[name]

    def make(outside: Any, process: str) -> headway.App:
        return case.make(outside, process, right=right)

    seen = compare(make, case.scenario, Cloud, races=name in RACES)
    assert seen.idle == (right or name not in NEVER_IDLE)
    assert seen.events or not seen.idle


@pytest.mark.parametrize("declare", [test_functions.probing, test_functions.timing, test_functions.from_a_source])
def test_daemon_timer_or_source_behaves_as_in_a_real_engine(declare: Any) -> None:
    class Named:
        """The parts of its process that a program uses."""

        def __init__(self, outside: Any, name: str) -> None:
            self.outside, self.name = outside, name

    def make(outside: Any, process: str) -> headway.App:
        return test_functions.made(declare)(Named(outside, process))  # type: ignore[arg-type]  # all that it uses

    compare(make, test_functions.two_sites, test_functions.Probes)
