"""Controllers of other processes on the overview: with the rights of the caller, bounded, and no question in vain."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.page import PageHost, StoreParts, _host
from headway.page._others import ASKED, MOST
from headway.page._overview import STUCK, Visible, drawn_elsewhere, overview, picture
from headway.storage import MemoryBackend
from headway.why import OBSERVE_SERVICE, ObserveHost
from tests.helpers.why_programs import Team, broken_app
from tests.page.kit import EVERYTHING, open_shop, rule
from tests.why.test_workers import ATTEND, attend, channel_to, nothing, types_only

ANSWER = f"/{OBSERVE_SERVICE}/Answer"


def here(event: dict[str, Any], **wanted: object) -> bool:
    """Return True if a state has a controller of another process with these values."""
    return any(wanted.items() <= each.items() for each in event.get("elsewhere", ()))


async def test_worker_appears_with_its_numbers_and_is_marked_when_it_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the graph and the list, until nobody remembers it. A caller without the right sees nothing of it."""
    for name in ("ASKED", "TICK"):
        monkeypatch.setattr(_host, name, 0.05)
    app, team = broken_app()
    rules = {"all": [EVERYTHING], "others": [rule("observe", "view", type="tenancy.v1.Namespace")]}
    async with open_shop(app=types_only(), rules=rules, listen=["127.0.0.1:0"]) as running:
        token = running.tokens["all"]
        await running.client.apply(team.new("core", Team()))
        async with running.visitor("all") as visitor, visitor.events("/page/live") as live:
            assert (await live.next("graph"))["boxes"] == []
            workers = headway.open_workers(running.engine.addresses, app, process="web-1", token=token)
            async with workers:
                picture = await live.next("picture")
                assert [each["name"] for each in picture["boxes"]] == ["staff.v1.Team", "staff/teams"]
                # A failed key rests, but for the moments in which it is tried again.
                state = await live.until(
                    lambda event: here(event, name="staff/teams", notDone=1, phase="running", resting=1)
                )
                [seen] = state["elsewhere"]
                assert (seen["process"], seen["manages"], seen["ready"]) == ("web-1", "staff.v1.Team", True)
                assert (seen["gone"], seen["answers"]) == (None, True)
                # The error's text may be about other types.
                assert "core has no lead" not in str(seen)
                async with running.visitor("others") as other, other.events("/page/live") as theirs:
                    state = await theirs.next("state")
                    assert (state["elsewhere"], state["elsewhereMore"]) == ([], 0)
            state = await live.until(lambda event: here(event, name="staff/teams", state="gone"))
            assert state["elsewhere"][0]["gone"] > 0


async def test_other_processes_are_asked_once_for_all_viewers_and_hardly_without_one(autojump_clock: MockClock) -> None:
    """Every two seconds while somebody watches, and otherwise once a minute.

    A process that hangs delays no look at the controllers here.
    """
    host = ObserveHost(nothing)
    async with (
        MemoryBackend() as backend,
        channel_to(host).stream(ATTEND, attend("web-1", "staff/teams")) as questions,
        trio.open_nursery() as nursery,
    ):
        assert (await anext(questions)).number == 0
        page = PageHost([types_only()], host, types_only().registry, StoreParts(backend))
        asked = list[observe_pb.Question]()

        async def take() -> None:
            async for question in questions:
                asked.append(question)

        nursery.start_soon(take)
        nursery.start_soon(page.follow)
        await trio.sleep(30)
        assert asked == []
        with page.watching(), page.watching(), page.watching():
            looks = page.number
            await trio.sleep(40)
            # Each question waits two seconds for its answer.
            assert 8 <= len([each for each in asked if each.now]) <= 40 / ASKED
            assert page.number - looks >= 38
            [seen] = overview(page, everything(), ())["elsewhere"]
            assert (seen["state"], seen["answers"]) == ("does not answer", False)
        count = len(asked)
        await trio.sleep(30)
        assert len(asked) <= count + 1
        nursery.cancel_scope.cancel()


def everything() -> Visible:
    known = frozenset(each.name for each in types_only().registry)
    return Visible(frozenset(), known, known, whole=True)


async def test_hostile_answer_of_a_process_is_bounded_and_prevents_no_state() -> None:
    """It speaks for its own controllers only, its texts are cut, and impossible numbers become 0."""
    host = ObserveHost(nothing)
    channel, page = channel_to(host), PageHost([types_only()], host, types_only().registry, StoreParts(MemoryBackend()))
    names = [f"staff/teams-{number}" for number in range(MOST + 20)]
    async with channel.stream(ATTEND, attend("web-1", *names)) as questions:
        await anext(questions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(page.others.ask)
            question = await anext(questions)
            now = [
                observe_pb.ControllerNow(name=name, phase="<b>", seconds=math.nan, oldest=math.inf, cause="x" * 100_000)
                for name in ("shop/billing", *names)
            ]
            answer = observe_pb.AnswerRequest(number=question.number, now=now)
            await channel.unary(ANSWER, answer, observe_pb.AnswerResponse)
        state = overview(page, everything(), ())
        assert (len(state["elsewhere"]), state["elsewhereMore"]) == (MOST, 20)
        assert {each["name"] for each in state["elsewhere"]} <= set(names)
        first = state["elsewhere"][0]
        assert (first["phase"], first["seconds"], first["oldest"], len(first["problem"]) < 600) == ("", 0, 0, True)
        drawn = drawn_elsewhere(page, everything())
        assert len(picture(page.graph, everything(), drawn)["boxes"]) == len(drawn) + 1 == 101


async def test_stuck_work_of_all_processes_is_listed_with_the_rights_of_the_caller(autojump_clock: MockClock) -> None:
    """Bounded, asked once for all viewers, and without the number of what the caller may not see."""
    host = ObserveHost(nothing)
    channel, page = channel_to(host), PageHost([types_only()], host, types_only().registry, StoreParts(MemoryBackend()))
    async with (
        channel.stream(ATTEND, attend("web-1", "staff/teams")) as questions,
        trio.open_nursery() as nursery,
    ):
        await anext(questions)
        asked = list[float]()

        async def answer() -> None:
            ref = {"type": "staff.v1.Team", "partition": "default", "namespace": "default"}
            items = [
                observe_pb.StuckItem(
                    controller="staff/teams", resource=observe_pb.Ref(**ref, name=f"team-{number}"), state="waiting"
                )
                for number in range(STUCK + 7)
            ]
            items.append(observe_pb.StuckItem(controller="staff/teams", resource=observe_pb.Ref(type="a.v1.Secret")))
            async for question in questions:
                if not question.now:
                    asked.append(question.longer_than)
                    stuck = observe_pb.StuckList(items=items, more=100)
                    message = observe_pb.AnswerRequest(number=question.number, stuck=stuck)
                    await channel.unary(ANSWER, message, observe_pb.AnswerResponse)

        nursery.start_soon(answer)
        nursery.start_soon(page.follow)
        with page.watching(), page.watching(), page.watching():
            await trio.sleep(41)
        assert set(asked) == {60.0}
        assert 10 <= len(asked) <= 11
        found = overview(page, everything(), ())["stuck"]
        assert (len(found["items"]), found["more"]) == (STUCK, 107)
        assert {each["resource"]["type"] for each in found["items"]} == {"staff.v1.Team"}
        assert (found["items"][0]["process"], found["items"][0]["state"]) == ("web-1", "waiting")
        known = everything().known
        fewer = Visible(frozenset(), known, frozenset(each for each in known if each.kind == "Team"))
        assert overview(page, fewer, ())["stuck"]["more"] == 7
        # A caller who does not know of the other types may observe all that they know of.
        teams = frozenset(each for each in known if each.kind == "Team")
        assert overview(page, Visible(frozenset(), teams, teams), ())["stuck"]["more"] == 7
        none = Visible(frozenset(), known, frozenset(each for each in known if each.kind != "Team"))
        assert overview(page, none, ())["stuck"] == {"items": [], "more": 0, "unreachable": []}
        nursery.cancel_scope.cancel()
