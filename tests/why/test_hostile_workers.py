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
from headway.why import OBSERVE_SERVICE, ObserveHost, ObserveService, Why
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


@pytest.mark.parametrize("type", ["", "x", "staff.Team", "staff.v1.sub.Team"])
async def test_impossible_type_of_a_resource_prevents_no_answer_to_a_caller_with_a_token(type: str) -> None:
    """The answer is reduced to what the caller may observe, so their rights to each named resource are looked up."""
    text, token = new_token(["some"])
    rules = [lease_rule(), rule(["view", "observe"], "staff.v1.Team")]
    authorizer = Authorizer(Access([Policy("some", rules)], [token]))
    host, registry = ObserveHost(nothing), types_only().registry
    channel = InProcessChannel(Guarded(lambda caller: ObserveService(host, registry, caller), authorizer, registry))
    bearing = {"x-consul-token": text}
    odd = pb.Ref(type=type, name="y")
    cause, touched = pb.Cause(what="changed", resource=odd), pb.Touched(how="get", resource=odd)
    part = pb.ControllerWhy(
        name="staff/teams",
        role="watches",
        causes=[cause],
        held_write=odd,
        held_by=odd,
        busy=odd,
        unmapped=[pb.UnmappedChange(resource=odd)],
        turned_away=[pb.TurnedAwayChange(resource=odd)],
        left_out=[pb.LeftOut(resource=odd)],
        reconciles=[pb.PastReconcile(causes=[cause], reads=[touched], writes=[touched])],
    )
    replies: list[pb.WhyResponse] = []

    async def ask() -> None:
        request = pb.WhyRequest(id=CORE.message())
        replies.append(
            await channel.unary(f"/{OBSERVE_SERVICE}/Why", request, pb.WhyResponse, metadata=bearing),
        )

    async with channel.stream(ATTEND, attend("web-1", "staff/teams"), metadata=bearing) as questions:
        await anext(questions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = await anext(questions)
            answer = pb.AnswerRequest(question.number, controllers=[part])
            await channel.unary(ANSWER, answer, pb.AnswerResponse, metadata=bearing)
    [reply] = replies
    assert reply.why is not None
    [shown] = reply.why.controllers
    assert shown.causes == [pb.Cause(what="changed")]
    assert shown.reconciles[0].reads == [pb.Touched(how="get")]


async def test_impossible_number_of_further_items_prevents_no_list_of_what_is_stuck() -> None:
    """A process may say that it has left out as many as a number can hold, and have items besides."""
    host = ObserveHost(nothing)
    channel = channel_to(host)
    replies: list[pb.StuckResponse] = []

    async def ask() -> None:
        replies.append(
            await channel.unary(f"/{OBSERVE_SERVICE}/Stuck", pb.StuckRequest(longer_than=1), pb.StuckResponse)
        )

    async with (
        channel.stream(ATTEND, attend("web-1", "staff/teams")) as one,
        channel.stream(ATTEND, attend("web-2", "staff/teams")) as two,
    ):
        for questions in (one, two):
            await anext(questions)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            for questions in (one, two):
                question = await anext(questions)
                answer = pb.AnswerRequest(question.number, stuck=pb.StuckList(more=2**64 - 1))
                await channel.unary(ANSWER, answer, pb.AnswerResponse)
    assert [each.stuck.more for each in replies if each.stuck is not None] == [2**64 - 1]


async def test_process_has_one_part_for_each_of_its_controllers() -> None:
    """Whatever it answers: the parts of one controller in one process would each be a page of text."""
    host = ObserveHost(nothing)
    channel = channel_to(host)
    async with channel.stream(ATTEND, attend("web-1", "staff/teams")) as questions, trio.open_nursery() as nursery:
        await anext(questions)
        found: list[Why] = []

        async def ask() -> None:
            found.append(await host.why(CORE))

        nursery.start_soon(ask)
        question = await anext(questions)
        parts = [pb.ControllerWhy(name="staff/teams", state="standby", shard=shard) for shard in range(1, 500)]
        await channel.unary(ANSWER, pb.AnswerRequest(question.number, controllers=parts), pb.AnswerResponse)
    [why] = found
    assert [each.shard for each in why.controllers] == [499]


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


async def test_controllers_of_one_caller_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller invents names of controllers, in many processes. Every look goes through all of them."""
    from headway.why import _host

    monkeypatch.setattr(_host, "MOST_ATTENDED", 8)
    host, kind = ObserveHost(nothing), CORE.type.unversioned
    two = {"mine/a": kind, "mine/b": kind}
    async with AsyncExitStack() as held:
        for number in range(3):
            await held.enter_async_context(host.attended(f"web-{number}", two, "ada"))
        with pytest.raises(Busy):
            await held.enter_async_context(host.attended("web-3", {"mine/a": kind}, "ada"))
        # Under the name of another process of the same caller, too. That one goes on.
        with pytest.raises(Busy):
            await held.enter_async_context(host.attended("web-2", {**two, "mine/c": kind}, "ada"))
        await held.enter_async_context(host.attended("web-3", two, "grace"))
        assert host.attending() == ["web-0", "web-1", "web-2", "web-3"]


async def test_processes_that_are_gone_fill_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones of the caller that has the most are forgotten, and those of others are not."""
    from headway.why import _host

    monkeypatch.setattr(_host, "_MOST_LEFT", 6)
    monkeypatch.setattr(_host, "_MOST_GONE", 4)
    host, kind = ObserveHost(nothing), CORE.type.unversioned
    async with host.attended("honest", {"staff/teams": kind}, "grace"):
        pass
    for number in range(4):
        async with host.attended(f"web-{number}", {f"mine/{number}-a": kind, f"mine/{number}-b": kind}, "ada"):
            pass
    assert [each.process for each in (await host.why(CORE)).gone] == ["honest", "web-2", "web-3"]
    for number in range(4):
        async with host.attended(f"job-{number}", {"mine/a": kind}, "ada"):
            pass
    assert [each.process for each in (await host.why(CORE)).gone] == ["honest", "job-1", "job-2", "job-3"]


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
