"""The list of what is stuck: nothing that one process or one type has much of takes the place of the others."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
import trio.testing

import headway
from headway.run import RunCaches
from headway.why import (
    Ref,
    StuckItem,
)
from headway.why.answers import _stuck, joined, shortened
from tests.helpers.why_programs import Team, told

TEAM, SECRET = "staff.v1.Team", "a.v1.Secret"


def item(since: float, type: str = TEAM, controller: str = "staff/teams", process: str = "web-1") -> StuckItem:
    return StuckItem(controller, process, Ref(type, name=f"{since}"), "waiting", since)


def test_old_work_of_a_hidden_type_takes_no_place_of_a_visible_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does that of another controller or process. The list is bounded, and in the order of age."""
    monkeypatch.setattr(_stuck, "STUCK", 4)
    hidden, seen = [item(since, SECRET) for since in range(10)], [item(98), item(99)]
    assert [each.since for each in shortened([*hidden, *seen])] == [0, 1, 98, 99]
    others = [item(since, controller="staff/leads") for since in range(10, 20)]
    assert [each.since for each in shortened([*hidden, *others, *seen])] == [0, 1, 10, 98]
    forged = [item(since, f"a.v1.Type{since}", process="web-9") for since in range(10)]
    assert [each.since for each in joined([forged, seen])] == [0, 1, 98, 99]


async def test_running_item_has_the_line_where_it_waits() -> None:
    """The innermost one of the program. A key that waits for its turn has none."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    async def answer() -> None:
        await trio.sleep_forever()  # the network

    @app.controller(manages=team)
    async def teams(_: headway.Runtime, __: headway.Request[Team]) -> None:
        await answer()

    async with headway.open_engine("memory:", app) as engine:
        for name in ("core", "edge"):
            await engine.client.write(team.new(name))
        await told(engine, team.id("core"), "running")
        await told(engine, team.id("edge"), "queued")
        running, queued = (await engine.stuck(0)).items
        assert (running.state, queued.state, queued.line) == ("running", "queued", "")
        assert re.fullmatch(
            r'File "\S+test_stuck\.py", line \d+, in answer: await trio\.sleep_forever\(\)  # the network', running.line
        )


@pytest.mark.parametrize("where", ["initialiser", "source", "priming"])
async def test_controller_whose_runs_fail_again_and_again_is_listed_at_each_moment(
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Each attempt begins its phase anew, and the delay between two is about a minute at most."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    broken = True

    async def fail(place: str, seconds: float = 0.0) -> None:
        if broken and place == where:
            await trio.sleep(seconds)
            raise ValueError("no licence")

    async def initialiser(_: headway.Runtime) -> None:
        await fail("initialiser")

    async def source(_: headway.Runtime, __: headway.sources.Enqueue) -> None:
        await fail("source")
        await trio.sleep_forever()

    async def prime(*given: Any) -> None:
        await fail("priming", 50.0)
        await primed(*given)

    primed = RunCaches.prime
    monkeypatch.setattr(RunCaches, "prime", prime)

    @app.controller(manages=team, initialiser=initialiser, sources={"knocks": source})
    async def teams(_: headway.Runtime, __: headway.Request[Team]) -> None: ...

    async with headway.open_engine("memory:", app, report=headway.events.ignore) as engine:

        async def listed() -> list[tuple[str, str]]:
            return [(each.state, each.error) for each in (await engine.stuck(60)).items if "teams" in each.controller]

        await trio.sleep(55)
        assert await listed() == []
        await trio.sleep(60)
        for _ in range(50):
            await trio.sleep(7)
            assert await listed() == [("failing", "ValueError: no licence")]
        broken = False
        began = autojump_clock.current_time()
        await trio.sleep_until(began + 120)
        assert await listed() == []
        assert engine.controllers["teams"].status().phase == "running"
