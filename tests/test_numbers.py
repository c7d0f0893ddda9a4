"""Every number that a program gives to Headway is checked where it is given, before anything begins."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.errors import HeadwayError
from headway.journal import JournalOptions
from headway.rpc import Limits, Rate, WireLimits
from headway.storage import MemoryBackend
from headway.testing import (
    ScriptedChannel,
    StoreUnderTest,
    check_backend,
    check_converters,
    simulation,
    stored,
    verdicts,
)
from tests.helpers.resources import TEAM, Team
from tests.helpers.staff import Staff

Given = Any
Place = Callable[[Given], object]


def _app() -> headway.App:
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    return staff.app


def _controller(**options: Given) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team, **options)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""


def _timer(every: Given = 60, jitter: Given = 0.1) -> None:
    staff = Staff()

    @staff.app.timer(staff.team, every=every, jitter=jitter)
    async def tick(_: headway.Runtime, __: headway.Resource[Team]) -> None:
        """Do nothing."""


def _message(number: Given) -> None:
    headway.message(type("Odd", (), {"__annotations__": {"a": int}, "a": headway.field(number)}))


async def _nothing(_: simulation.World) -> None:
    """Ask for nothing."""


def _store(path: Path, **_: Given) -> MemoryBackend:  # noqa: ARG001  # its place
    return MemoryBackend()


DECLARED: dict[str, Place] = {
    "number": lambda given: _message(given),
    "max_fields": lambda given: headway.App("odd").type("staff", "v1", "Team", Team, max_fields=given),
    "every": lambda given: _timer(every=given),
    "jitter": lambda given: _timer(jitter=given),
    "base": lambda given: headway.Backoff(base=given),
    "maximum": lambda given: headway.Backoff(maximum=given),
    "WriteLimit.per_second": lambda given: headway.WriteLimit(per_second=given),
    "WriteLimit.burst": lambda given: headway.WriteLimit(10, burst=given),
    "shards": lambda given: headway.sharded(shards=given),
    "every.seconds": lambda given: headway.sources.every(given),
    "every.jitter": lambda given: headway.sources.every(60, jitter=given),
    "concurrency": lambda given: _controller(concurrency=given),
    "deadline": lambda given: _controller(deadline=given),
    "min_interval": lambda given: _controller(min_interval=given),
    "requeue_after.seconds": headway.requeue_after,
    "max_changes": lambda given: MemoryBackend(max_changes=given),
    "max_age": lambda given: MemoryBackend(max_age=given),
    "max_bytes": lambda given: MemoryBackend(max_bytes=given),
    "Rate.burst": lambda given: Rate(given, 5),
    "Rate.per_second": lambda given: Rate(5, given),
    "JournalOptions.memory": lambda given: JournalOptions(memory=given),
    "version": lambda given: stored(TEAM.new("core"), version=given),
    "examples": lambda given: check_converters(_app(), examples=given),
    "let_pass.count": lambda given: ScriptedChannel().let_pass(TEAM, given),
    "old_snapshot.revision": lambda given: ScriptedChannel().old_snapshot(TEAM, given),
    "explore.processes": lambda given: simulation.explore(_app(), _nothing, processes=given),
    "explore.pairs": lambda given: simulation.explore(_app(), _nothing, pairs=given),
    "explore.seconds": lambda given: simulation.explore(_app(), _nothing, seconds=given),
    "explore.quiet": lambda given: simulation.explore(_app(), _nothing, quiet=given),
    "same_end.quiet": lambda given: simulation.same_end(_app(), _nothing, _nothing, quiet=given),
    "Peer.processes": lambda given: simulation.Peer(app=_app(), processes=given),
    "Peer.engines": lambda given: simulation.Peer(app=_app(), engines=given),
}
"""Places that take a number, by the name of the parameter, which the error contains."""

for _name in ("lag_limit", "lease_ttl", "stall_limit", "shutdown_bound", "hard_exit", "block_limit"):
    DECLARED[f"Timing.{_name}"] = lambda given, name=_name: headway.Timing(**{name: given})  # type: ignore[misc]

LIMITS = [(of, field.name) for of in (Limits, WireLimits) for field in fields(of)]


@pytest.mark.parametrize("given", [-1, math.nan, True, "7"])
@pytest.mark.parametrize("name", DECLARED)
def test_invalid_number_is_refused_where_it_is_declared(name: str, given: Given) -> None:
    """True is an int, but no number that anyone means."""
    with pytest.raises(HeadwayError) as caught:
        DECLARED[name](given)
    _names(caught.value, name, given)


@pytest.mark.parametrize("given", [-1, math.nan, True, "7"])
@pytest.mark.parametrize(("limits", "name"), LIMITS)
def test_invalid_limit_of_peers_is_refused(limits: Any, name: str, given: Given) -> None:
    with pytest.raises(HeadwayError, match=rf"^{limits.__name__}\(\): {name} must be "):
        limits(**{name: given})
    default = getattr(limits(), name)
    assert getattr(limits(**{name: default}), name) == default


def test_operator_has_at_most_ten_limits_to_know() -> None:
    assert len(fields(Limits)) <= 10


def _workers(**options: Given) -> Any:
    return headway.open_workers("127.0.0.1:1", _app(), **options)


def _cache(**options: Given) -> Any:
    staff = Staff()
    return headway.open_cache("127.0.0.1:1", staff.app, watches=[staff.team], **options)


AWAITED: dict[str, Callable[[headway.Engine, Given], Awaitable[object]]] = {
    "get.min_revision": lambda engine, given: engine.client.get(TEAM, "core", min_revision=given),
    "list.min_revision": lambda engine, given: engine.client.list(TEAM, min_revision=given),
    "pages.size": lambda engine, given: anext(engine.client.pages(TEAM, size=given)),
    "progress_interval": lambda engine, given: engine.client.watch(TEAM, progress_interval=given).__aenter__(),
    "longer_than": lambda engine, given: engine.stuck(longer_than=given),
    "ttl": lambda engine, given: headway.hold_lease(engine.client.leases, "a", holder="b", ttl=given).__aenter__(),
    "connect.timeout": lambda _, given: headway.connect("127.0.0.1:1", _app(), timeout=given).__aenter__(),
    "open_cache.timeout": lambda _, given: _cache(timeout=given).__aenter__(),
    "check_backend.seconds": lambda _, given: check_backend(StoreUnderTest(_store), seconds=given),
    "verdicts.seconds": lambda _, given: verdicts(StoreUnderTest(_store), seconds=given),
    "open_workers.timeout": lambda _, given: _workers(timeout=given).__aenter__(),
}


@pytest.mark.parametrize("name", AWAITED)
async def test_invalid_number_is_refused_when_it_is_used(name: str, autojump_clock: MockClock) -> None:
    async with headway.open_engine("memory:", Staff().app, report=headway.events.ignore) as engine:
        for given in (-1, math.nan, True, "7"):
            with trio.fail_after(5), pytest.raises(HeadwayError) as caught:
                await AWAITED[name](engine, given)
            _names(caught.value, name, given)


InWorld = Callable[[simulation.World, Given], Awaitable[object] | None]


async def _done(place: InWorld, world: simulation.World, given: Given) -> None:
    if (waiting := place(world, given)) is not None:
        await waiting


IN_A_WORLD: dict[str, InWorld] = {
    "seconds": lambda world, given: world.sleep(given),
    "within": lambda world, given: world.wait_idle(within=given),
    "crash.process": lambda world, given: world.crash(given),
    "checkpoints": lambda world, given: world.crash(0, checkpoints=given),
    "lead.process": lambda world, given: world.lead(given),
    "upgrade.process": lambda world, given: world.upgrade(_app(), process=given),
    "revision": lambda world, given: world.restore(given),
    "jump_wall_clock.seconds": lambda world, given: world.jump_wall_clock(math.inf if given == -1 else given),
}


def test_invalid_number_is_refused_in_a_scenario() -> None:
    """The wall clock may jump back, but not without an end."""
    refused = set[str]()

    async def scenario(world: simulation.World) -> None:
        for name, place in IN_A_WORLD.items():
            for given in (-1, math.nan, True, "7"):
                with pytest.raises(HeadwayError) as caught:
                    await _done(place, world, given)
                _names(caught.value, name, math.inf if given == -1 and "jump" in name else given)
            refused.add(name)
        with pytest.raises(HeadwayError, match=r"process must be from 0 to 0, not 1: .*processes=2\) makes more"):
            world.crash(1)

    simulation.run(simulation.Setting(app=_app(), scenario=scenario), simulation.Plan())
    assert refused == set(IN_A_WORLD)


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ("slow(-1, 5.0)", "step"),
        ("slow(1, -5.0)", "seconds"),
        ("clock_jump(1, -600.0)", "seconds"),
        ("stall('staff.v1.Team', -3, 60.0)", "revision"),
        ("stall('staff.v1.Team', 3, 'x')", "seconds"),
        ("interim(1, -2)", "back"),
    ],
)
def test_plan_with_an_invalid_number_is_refused(plan: str, name: str) -> None:
    with pytest.raises(headway.errors.DeclarationError) as caught:
        simulation.Plan.parse(plan)
    assert str(caught.value).startswith(f"plan: {plan!r}: {name} must be ")
    assert simulation.Plan.parse("wall_jump(1, -600.0)")


def _names(error: HeadwayError, name: str, given: Given) -> None:
    """Check that an error names the parameter and the value."""
    assert name.rpartition(".")[2] in str(error)
    assert repr(given) in str(error)
