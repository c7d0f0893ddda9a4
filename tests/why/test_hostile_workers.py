"""Processes that attend with other intentions: none prevents an answer, and none speaks or attends for another."""

from __future__ import annotations

import math
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.access import Access, Authorizer, Guarded, Policy, TokenSet, new_token
from headway.rpc import InProcessChannel
from headway.why import OBSERVE_SERVICE, ObserveHost, ObserveService
from headway.why._attending import Busy
from tests.why.test_workers import ATTEND, CORE, attend, channel_to, lease_rule, nothing, rule, types_only

ANSWER = f"/{OBSERVE_SERVICE}/Answer"


pb = observe_pb
EMPTY = pb.PastReconcile(causes=[pb.Cause()], reads=[pb.Touched()], writes=[pb.Touched()])


def hostile_part(name: str, role: str, state: str, moment: float) -> pb.ControllerWhy:
    """Return a part with this moment everywhere, and with nothing in whatever it consists of."""
    return pb.ControllerWhy(
        name=name,
        role=role,
        state=state,
        since=moment,
        until=moment,
        owed_since=moment,
        causes=[pb.Cause()],
        priming=[pb.PrimingType()],
        unmapped=[pb.UnmappedChange()],
        turned_away=[pb.TurnedAwayChange(at=moment)],
        reconciles=[EMPTY, pb.PastReconcile(at=moment, seconds=moment)],
    )


async def answers_about(host: ObserveHost, parts: list[pb.ControllerWhy], items: list[pb.StuckItem]) -> None:
    """Ask both questions, while a process gives this answer to each."""
    channel = channel_to(host)
    names = dict.fromkeys(["staff/teams", *(each.name for each in parts)])
    async with channel.stream(ATTEND, attend("web-1", *names)) as questions:
        await anext(questions)
        for method, request, reply in (
            ("Why", pb.WhyRequest(id=CORE.message()), pb.WhyResponse),
            ("Stuck", pb.StuckRequest(longer_than=1), pb.StuckResponse),
        ):
            answered = 0

            async def ask(method: str = method, request: object = request, reply: type = reply) -> None:
                nonlocal answered
                await channel.unary(f"/{OBSERVE_SERVICE}/{method}", request, reply)
                answered += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                question = await anext(questions)
                answer = pb.AnswerRequest(question.number, controllers=parts, stuck=pb.StuckList(items=items))
                await channel.unary(ANSWER, answer, pb.AnswerResponse)
            assert answered == 1


@pytest.mark.parametrize("moment", [math.nan, math.inf, -math.inf, 1e300, -1e300, 1e15, 0.0])
async def test_impossible_answer_of_a_process_prevents_no_answer(moment: float) -> None:
    """Neither sentences nor JSON fail, whatever the state: the question is also about all other processes."""
    states = ["idle", "queued", "running", "held", "waiting", "slowed", "scheduled", "priming", "starting"]
    states += ["resting", "standby", "ended", "given up", "nothing", ""]
    kinds = [(role, state) for role in ("manages", "watches", "") for state in states]
    parts = [hostile_part(f"staff/teams-{number}", *each, moment) for number, each in enumerate(kinds)]
    items = [pb.StuckItem(controller="staff/teams", since=moment, state=state) for state in states]
    await answers_about(ObserveHost(nothing), parts, items)


async def test_process_cannot_end_the_stream_of_another_callers_process() -> None:
    """Each token has names of its own. Otherwise a worker of one controller could silence those of all others."""
    (one, mine), (two, theirs) = new_token(["workers"]), new_token(["workers"])
    authorizer = Authorizer(
        Access([Policy("workers", [lease_rule(), rule(["view"], "staff.v1.Team")])], TokenSet([mine, theirs]))
    )
    host, [app] = ObserveHost(nothing), [types_only()]
    registry = app.registry
    service = Guarded(lambda caller: ObserveService(host, registry, caller), authorizer, registry)
    channel = InProcessChannel(service)

    def bearing(text: str) -> dict[str, str]:
        return {"x-consul-token": text}

    request = attend("web-1", "staff/teams")
    async with channel.stream(ATTEND, request, metadata=bearing(one)) as first:
        await anext(first)
        async with channel.stream(ATTEND, request, metadata=bearing(two)) as second:
            await anext(second)
            assert host.attending() == ["web-1", "web-1"]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host.why, CORE)
                assert (await anext(first)).why == (await anext(second)).why
                nursery.cancel_scope.cancel()


async def test_processes_of_one_caller_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token has three quarters of the places."""
    from headway.why import _host

    monkeypatch.setattr(_host, "MOST_ATTENDING", 4)
    host = ObserveHost(nothing)
    async with AsyncExitStack() as held:
        for number in range(3):
            await held.enter_async_context(host.attended(f"web-{number}", {}, "ada"))
        with pytest.raises(Busy):
            await held.enter_async_context(host.attended("web-3", {}, "ada"))
        await held.enter_async_context(host.attended("web-3", {}, "grace"))
        assert host.attending() == ["web-0", "web-1", "web-2", "web-3"]


@pytest.mark.parametrize("about", ["stuck", "now"])
async def test_long_answers_of_processes_leave_turns_to_other_tasks(about: str) -> None:
    """A process may say that a thousand resources are stuck or fail, and hundreds of processes answer at once."""
    host, kind = ObserveHost(nothing), CORE.type.unversioned
    core = pb.Ref(type=str(CORE.type), name="core")
    names = {f"mine/{number}": kind for number in range(25)}
    answer = pb.AnswerRequest()
    if about == "stuck":
        items = [pb.StuckItem(controller=name, resource=core, since=1.0) for name in names]
        answer.stuck = pb.StuckList(items=[item for item in items for _ in range(40)])
    else:
        failing = [pb.Failing(resource=core, at=1.0)] * 100
        answer.now = [pb.ControllerNow(name=name, failing=[*failing]) for name in names]
    found: list[Any] = []

    async def ask() -> None:
        found.append(await host.stuck(1.0) if about == "stuck" else await host.elsewhere(100))

    async with host.attended("web-1", names) as attending, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        question = await attending.questions.receive()
        answer.number = question.number
        assert attending.answered(answer)
        turns = 0
        while not found:
            await trio.lowlevel.checkpoint()
            turns += 1
    assert turns >= 20
    if about == "stuck":
        assert len(found[0].items) == 1000
    else:
        # No process sends more of one controller, and the page shows no more.
        assert {len(each.now.failing) for each in found[0][0]} == {40}
