"""What a program makes for each time of the clock, such as a digest for every ten minutes, if a clock jumps forward."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation.oracles import masked, without_slots

SPAN = (1_772_619_630.0, 1_772_619_630.0 + 3600)
"""From 10:20:30 to 11:20:30 on 2026-03-04."""


@headway.message
class Worker:
    seen: datetime.datetime | None = field(1)


@headway.message
class Seat:
    worker: str = field(1)


seating = headway.App("jobs")
WORKER = seating.type("jobs", "v1", "Worker", Worker)
SEAT = seating.type("jobs", "v1", "Seat", Seat)


@seating.controller(manages=WORKER, watches=[headway.watch(SEAT, headway.mappers.owner())])
async def seats(rt: headway.Runtime, request: headway.Request[Worker]) -> headway.RequeueAfter | None:
    """Keep a seat for as long as a worker was seen within the last thirty seconds."""
    worker = rt.resource(request)
    if worker is None or worker.data.seen is None:
        return None
    left = (worker.data.seen + datetime.timedelta(seconds=30) - datetime.datetime.now(datetime.UTC)).total_seconds()
    async with rt.outputs(SEAT, owner=worker) as wanted:
        if left > 0:
            await wanted.apply(worker.name, Seat(worker=worker.name))
    return headway.requeue_after(left) if left > 0 else None


async def a_worker_falls_silent(world: simulation.World) -> None:
    await world.client.apply(WORKER.new("a", Worker(seen=datetime.datetime.now(datetime.UTC))))
    await world.wait_idle()
    await world.sleep(45)
    await world.wait_idle()


@pytest.mark.wide
def test_what_time_has_ended_may_be_created_again_when_the_clock_jumps_back() -> None:
    result = simulation.run(
        simulation.Setting(app=seating, scenario=a_worker_falls_silent), simulation.Plan.parse("wall_jump(4, -600.0)")
    )
    made = [each for each in result.trace.commits if each.kind == ("jobs", "Seat") and each.old is None]
    assert len(made) == 2
    assert simulation.explore(seating, a_worker_falls_silent, plan="wall_jump(4, -600.0)").complete


def _result(outside: Any) -> simulation.Result:
    return dataclasses.replace(simulation.Result(simulation.Trace(), {}, {}, None, ()), outside=outside, wall=SPAN)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (["ada 10:30"], ["ada 11:10", "ada 11:20"], True),
        (["ada 10:30"], ["ada 11:20", "ada 11:20"], False),
        (["ada 10:30"], ["bob 10:30"], False),
        ({"2026-03-04T10:30": 1}, {"2026-03-04T10:30": 1, "2026-03-04T10:40": 1}, True),
        ({"2026-03-04T10:30": 1}, {"2026-03-04T10:30": 2}, False),
        ([5, 5], [5], False),
        ({1_772_620_200}, {1_772_620_800, 1_772_621_400}, True),
    ],
)
def test_things_that_differ_by_a_time_count_as_one(one: Any, other: Any, alike: bool) -> None:
    mine, (right,) = without_slots(_result({"sent": one}), [_result({"sent": other})])
    assert (mine.outside == right.outside) is alike


def test_series_of_different_times_is_one_word() -> None:
    assert masked("['10:30', '10:40'] of 5", SPAN) == "['(time)'] of 5"
    assert masked("['10:30', '10:30']", SPAN) == "['(time)', '(time)']"
    assert masked("5 and 2019-01-01", SPAN) == "5 and 2019-01-01"
