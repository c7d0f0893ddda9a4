"""The clocks of a simulated run, and the jumps of its wall clock."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import datetime
import functools
import sys
import time
from datetime import UTC, date
from datetime import datetime as a_datetime
from time import monotonic, time_ns
from typing import Any

import pytest
import trio

import headway
from headway.testing import simulation
from headway.testing.simulation import Result
from tests.helpers.corpus.programs import CORE, TEAM, result_of
from tests.helpers.corpus.staff import Team

START = 1_772_619_630
utc_now = functools.partial(a_datetime.now, UTC)


def bound(*, wall: Any = time.time, kept: Any = time.monotonic) -> tuple[float, float]:
    return wall(), kept()


def by_position(wall: Any = time.time_ns) -> float:
    nanoseconds: int = wall()
    return nanoseconds / 1e9


@dataclasses.dataclass
class Stamp:
    at: float = dataclasses.field(default_factory=time.time)


class Holder:
    clock = staticmethod(time.time)


def looks(reconcile: Any, plan: str = "none", **settings: Any) -> tuple[Result, list[Any]]:
    """Return the result of a run, and what the function returned at each reconcile."""
    seen: list[Any] = []

    async def looking(*_: Any) -> None:
        found = reconcile()
        seen.append(await found if hasattr(found, "__await__") else found)

    return result_of(looking, plan, quiet=None, **settings), seen


def _walls() -> list[float]:
    import time as inner
    from datetime import datetime as an_inner_datetime

    return [
        time.time(),
        time_ns() / 1e9,
        by_position(),
        bound()[0],
        Stamp().at,
        Holder.clock(),
        inner.time(),
        datetime.datetime.now(UTC).timestamp(),
        a_datetime.now().astimezone().timestamp(),
        a_datetime.utcnow().replace(tzinfo=UTC).timestamp(),  # noqa: DTZ003  # a program may
        a_datetime.today().astimezone().timestamp(),
        an_inner_datetime.now(UTC).timestamp(),
        utc_now().timestamp(),
    ]


def test_wall_clock_is_the_same_however_the_program_looks_at_it() -> None:
    _, (walls, *_) = looks(_walls)
    assert walls == sorted(walls)
    assert all(START < each < START + 0.001 for each in walls)
    assert len(set(walls)) == len(walls), "two looks saw the same time"


def test_clocks_follow_virtual_time() -> None:
    async def twice() -> tuple[float, ...]:
        walls = time.time(), monotonic(), time.perf_counter()
        await trio.sleep(100)
        return tuple(
            round(now - was, 3) for was, now in zip(walls, (time.time(), bound()[1], time.perf_counter()), strict=True)
        )

    _, (apart, *_) = looks(twice)
    assert apart == (100.0, 100.0, 100.0)


def test_blocking_sleep_takes_virtual_time_alone() -> None:
    def blocks() -> float:
        was = time.time()
        time.sleep(3600)
        return round(time.time() - was, 3)

    began = time.monotonic()
    assert looks(blocks)[1][0] == 3600.0
    assert time.monotonic() - began < 3600


def test_life_of_a_process_has_a_monotonic_clock_of_its_own() -> None:
    """A monotonic time means nothing on another machine."""

    async def clock(rt: headway.Runtime, _: object, account: Any, __: object) -> None:
        seen.append(monotonic())
        await rt.client.get(account, "ada")

    seen: list[float] = []
    result_of(clock, "crash_before(1)", quiet=None)
    assert abs(seen[1] - seen[0]) > 1000


def test_trio_the_standard_library_and_threads_keep_the_real_clocks() -> None:
    async def others() -> list[bool]:
        real = sys.modules["time"]
        kept = [vars(sys.modules[each])["time"] is real for each in ("logging", "headway.base._clock")]
        in_a_thread = await trio.to_thread.run_sync(time.time)
        return [time is not real, *kept, sys.modules["datetime"] is not datetime, abs(in_a_thread - START) > 86_400]

    assert all(looks(others)[1][0])


def test_real_clocks_are_back_after_a_run() -> None:
    assert type(time.time).__name__ == "builtin_function_or_method"
    before = (
        time.time,
        time_ns,
        a_datetime,
        datetime.datetime,
        builtins.__import__,
        by_position.__defaults__,
        Holder.clock,
    )
    looks(_walls)
    after = (
        time.time,
        time_ns,
        a_datetime,
        datetime.datetime,
        builtins.__import__,
        by_position.__defaults__,
        Holder.clock,
    )
    assert all(one is other for one, other in zip(before[:5], after[:5], strict=True))
    assert before == after
    assert abs(Stamp().at - time.time()) < 3600


def test_classes_of_dates_are_the_real_ones_to_a_program() -> None:
    def classes() -> list[bool]:
        class Special(a_datetime):
            pass

        now = a_datetime.now(UTC)
        return [
            isinstance(now, a_datetime),
            isinstance(now, date),
            not isinstance(date.today(), a_datetime),  # noqa: DTZ011
            type(now) == a_datetime,  # noqa: E721  # what a program may write
            {a_datetime: "there"}.get(type(now)) == "there",
            issubclass(a_datetime, date),
            issubclass(Special, a_datetime),
            type(Special(2026, 1, 1)) is Special,
            type(a_datetime(2026, 1, 1, tzinfo=UTC)) is type(now),
            a_datetime.fromisoformat("2026-01-01T00:00:00+00:00") == a_datetime(2026, 1, 1, tzinfo=UTC),
            a_datetime.strptime("2026", "%Y").year == 2026,  # noqa: DTZ007
            copy.deepcopy(now) == now,
        ]

    assert all(looks(classes)[1][0])


def test_times_of_the_server_follow_the_clock() -> None:
    stamps: list[a_datetime] = []

    async def reports(rt: headway.Runtime, request: headway.Request[Team], *_: object) -> None:
        team = rt.resource(request)
        if team is None:
            return
        if team.is_deleting:
            stamps.append(a_datetime.fromisoformat(team.metadata["deletionTimestamp"]))
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)

    async def scenario(world: simulation.World) -> None:
        team = world.type("Team")
        await world.client.apply(team.new("core", Team(), metadata={"finalizers": "held"}))
        await world.wait_idle()
        stored = world.store.now[TEAM, CORE]
        stamps.extend(each.updated_at for each in stored.status.values() if each.updated_at is not None)
        stamps.extend(a_datetime.fromtimestamp(each.lease.acquired_at, UTC) for each in world.store._leases.list(""))
        await world.client.delete(team.id("core"))
        await world.wait_idle()

    result_of(reports, scenario=scenario, quiet=None)
    assert len(stamps) >= 3
    assert all(abs(each.timestamp() - START) < 200 for each in stamps)


# --- jumps ---


def _two_looks() -> Any:
    async def both() -> tuple[float, float]:
        walls = time.time(), monotonic()
        now = time.time(), monotonic()
        return round(now[0] - walls[0]), round(now[1] - walls[1])

    return both


@pytest.mark.parametrize("seconds", [-600.0, 3600.0])
def test_jump_moves_the_wall_clock_alone(seconds: float) -> None:
    result, (apart, *_) = looks(_two_looks(), f"wall_jump(2, {seconds})")
    assert apart == (seconds, 0)
    assert [str(each) for each in result.struck] == [f"wall_jump(2, {seconds})"]


def test_clock_jump_moves_all_clocks() -> None:
    async def jumps(rt: headway.Runtime, _: object, account: Any, __: object) -> None:
        before = time.time(), monotonic(), trio.current_time()
        try:
            await rt.client.get(account, "ada")
        finally:
            after = time.time(), monotonic(), trio.current_time()
            apart.append([round(now - was) for was, now in zip(before, after, strict=True)])

    apart: list[list[int]] = []
    result_of(jumps, "clock_jump(1, 600.0)", quiet=None)
    assert apart[0] == [600, 600, 600]


def test_program_that_never_looks_at_the_wall_clock_meets_no_jump_of_it() -> None:
    result, _ = looks(monotonic)
    assert result.trace.looks == []


def test_scenario_can_let_the_wall_clock_jump() -> None:
    async def scenario(world: simulation.World) -> None:
        before = time.time()
        world.jump_wall_clock(-50)
        assert -50 <= time.time() - before < -49

    assert result_of(_nothing, scenario=scenario, quiet=None).findings == ()


async def _nothing(*_: object) -> None: ...
