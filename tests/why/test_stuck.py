"""The list of what is stuck: nothing that one process or one type has much of takes the place of the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.run import RunCaches
from headway.storage import CurrentLease, Lease, MemoryBackend
from headway.why import (
    OBSERVE_SERVICE,
    Failing,
    ObserveHost,
    Ref,
    Standby,
    StuckItem,
    StuckList,
    _host,
    _local,
    _now,
    controllers_now,
    sentences,
    stuck_here,
)
from headway.why.answers import _stuck, joined, kind_of, said_by, shortened
from tests.helpers.why_programs import PATIENCE, Team, told
from tests.why.test_leases import beside_holder
from tests.why.test_workers import ATTEND, attend, channel_to, nothing

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


def test_process_speaks_of_the_standby_of_its_own_controllers_once_and_with_their_types() -> None:
    standbys = [
        Standby("staff/teams", "web-9", "staff.v2.Team", 1.0),
        Standby("staff/teams", "web-9", TEAM, 2.0),
        Standby("staff/teams", "web-9", TEAM, 3.0),
        Standby("staff/teams", "web-9", SECRET),
        Standby("staff/leads", "web-9", TEAM),
    ]
    attended = {"staff/teams": ("staff", "Team"), "staff/rooms": ("staff", "Room")}
    said = said_by("web-1", attended, StuckList(standbys=standbys), {TEAM, SECRET})
    assert said.standbys == [Standby("staff/teams", "web-1", TEAM, 3.0)]


async def test_standbys_are_cut_after_those_that_are_worth_no_note_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease of most is held by a process that is asked. The answer has the number of those that are left out."""
    monkeypatch.setattr(_host, "STANDBYS", 2)
    names = [f"staff/c{number}" for number in range(9)]

    async def held(name: str) -> Sequence[CurrentLease]:
        holder = "gone-1" if name in names[6:] else "web-1"
        return [CurrentLease(Lease(name, holder, 1, 15.0, "", 0.0), 9.0)]

    host = ObserveHost(nothing, leases=held)
    channel = channel_to(host)
    async with channel.stream(ATTEND, attend("web-1", *names)) as questions, trio.open_nursery() as nursery:
        await anext(questions)
        found: list[StuckList] = []

        async def ask() -> None:
            found.append(await host.stuck(0))

        nursery.start_soon(ask)
        question = await anext(questions)
        stuck = observe_pb.StuckList(standbys=[observe_pb.Standby(controller=each, manages=TEAM) for each in names])
        answer = observe_pb.AnswerRequest(number=question.number, stuck=stuck)
        await channel.unary(f"/{OBSERVE_SERVICE}/Answer", answer, observe_pb.AnswerResponse)
    [stuck_] = found
    assert ([each.controller for each in stuck_.standbys], stuck_.more_standbys) == (names[6:8], 1)
    assert sentences(stuck_)[-1] == "Note: 1 more controller on standby not listed."


async def test_controller_that_has_just_gone_on_standby_is_not_noted() -> None:
    async with beside_holder("web-7") as (engine, parts):
        core = await engine.client.apply(parts.team.new("core", Team()))
        await told(engine, core.id, "standby")
        assert len((await engine.stuck(longer_than=0)).standbys) == 1
        assert (await engine.stuck(longer_than=3600)).standbys == []


def kinds(found: Sequence[Failing | StuckItem]) -> list[str]:
    return sorted("" if each.resource is None else kind_of(each.resource) for each in found)


async def test_failures_of_a_hidden_type_take_no_place_of_those_of_a_visible_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in the list of what is stuck nor in that of what fails, for which reconciles have their share, too."""
    monkeypatch.setattr(_now, "FAILING", 4)
    monkeypatch.setattr(_local, "STUCK", 3)
    app = headway.App("staff")
    [team, account, lead, room] = [app.type("staff", "v1", kind, Team) for kind in ("Team", "Account", "Lead", "Room")]

    def broken(_: object, __: object) -> list[headway.ResourceId]:
        raise KeyError("team")

    watches = [headway.watch(each, broken) for each in (account, lead, room)]

    @app.controller(manages=team, watches=watches, backoff=headway.Backoff(base=30, maximum=30))
    async def teams(_: headway.Runtime, __: headway.Request[Team]) -> None:
        raise ValueError("no lead")

    # Each list prefers one end: the oldest for what is stuck, the newest for what fails.
    stored = [account.new(f"a{number}", Team()) for number in range(4)]
    stored += [lead.new("middle", Team()), room.new("middle", Team())]
    stored += [account.new(f"b{number}", Team()) for number in range(4)]
    async with headway.open_engine(MemoryBackend(), app, report=headway.events.ignore) as engine:
        [supervisor] = [each for each in engine._supervisors if each.fence_name == "staff/teams"]

        async def wait_unmapped(count: int) -> None:
            with trio.fail_after(PATIENCE):
                while supervisor.newest_unmapped(20)[1] < count:  # noqa: ASYNC110  # a state has no event
                    await trio.sleep(0.01)

        for teams_ in (team.new("core", Team()), team.new("docs", Team())):
            await told(engine, (await engine.client.apply(teams_)).id, "waiting")
        for number, each in enumerate(stored, 1):
            await engine.client.apply(each)
            await wait_unmapped(number)
        [now] = controllers_now([(supervisor, supervisor.status())])
        found, count = now.failing, now.mapping_failed
        stuck = stuck_here([supervisor], 0)
    assert count == len(stored)
    assert kinds(found[1:]) == ["Account", "Lead", "Room"]
    assert found[0].outcome == "failed"
    assert kinds([each for each in stuck.items if each.state == "unmapped"]) == ["Account", "Lead", "Room"]
    assert stuck.more == len(stored) - 3


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
