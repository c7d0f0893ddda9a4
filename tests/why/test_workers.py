"""Questions to processes that do not listen: a server passes them on, over the stream that each worker keeps open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from grpclib.const import Status

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.access import Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.errors import HeadwayError
from headway.reconcile import Result
from headway.resource import ResourceId, pb
from headway.rpc import InProcessChannel, Services
from headway.why import OBSERVE_SERVICE, ObserveHost, ObserveService, Ref, Why, observer_of, sentences
from tests.helpers.service_errors import status_of
from tests.helpers.why_programs import Parts, Team, broken_app, eventually, part, told


def types_only() -> headway.App:
    app = headway.App("types")
    app.type("staff", "v1", "Team", Team)
    return app


@asynccontextmanager
async def serving() -> AsyncIterator[headway.Engine]:
    """Run an engine that has the types and no controllers."""
    opened = headway.open_engine("memory:", types_only(), network=headway.Network(["127.0.0.1:0"], insecure=True))
    async with opened as engine:
        yield engine


async def test_server_answers_for_its_workers() -> None:
    """The worker has the runs and their tracebacks, and the server the writers. Afterwards the process is gone."""
    async with serving() as engine:
        app, team = broken_app()
        async with headway.open_workers(engine.addresses, app, process="web-1") as workers:
            core = await engine.client.apply(team.new("core", Team()))
            why = await told(engine, core.id, "waiting")
            found = part(why)
            assert (found.process, found.error) == ("web-1", "ValueError: core has no lead")
            assert found.reconciles[0].reads[0].resource == Ref("staff.v1.Team", "default", "default", "core")
            assert why.writes[-1].verb == "created"
            [item] = (await engine.stuck(0)).items
            assert (item.process, item.state) == ("web-1", "waiting")
            # The worker knows its own part.
            assert part(await workers.why(core.id)).state in ("waiting", "running", "queued")

        async def after() -> Why | None:
            why = await engine.why(core.id)
            return why if why.gone else None

        why = await eventually(after)
        assert why.controllers == []
        [gone] = why.gone
        assert (gone.process, gone.controllers) == ("web-1", ["staff/teams"])


async def test_worker_attends_again_after_its_server_was_restarted() -> None:
    """Meanwhile it is not asked."""
    app, team = broken_app()
    async with trio.open_nursery() as nursery:
        async with serving() as engine:
            [address] = engine.addresses

            async def work() -> None:
                async with headway.open_workers([address], app, process="web-1", report=lambda _: None):
                    await trio.sleep_forever()

            nursery.start_soon(work)
            core = await engine.client.apply(team.new("core", Team()))
            await told(engine, core.id, "waiting")
        opened = headway.open_engine("memory:", types_only(), network=headway.Network([address], insecure=True))
        async with opened as engine:
            core = await engine.client.apply(team.new("core", Team()))

            async def attends() -> Why | None:
                why = await engine.why(core.id)
                return why if why.controllers else None

            assert part(await eventually(attends)).process == "web-1"
            nursery.cancel_scope.cancel()


async def nothing(_: ResourceId) -> pb.Resource | None:
    return None


def channel_to(host: ObserveHost) -> InProcessChannel:
    return InProcessChannel(ObserveService(host, broken_app()[0].registry))


def attend(process: str, *controllers: str) -> observe_pb.AttendRequest:
    manages = pb.Type(group="staff", group_version="v1", kind="Team")
    return observe_pb.AttendRequest(
        process=process, controllers=[observe_pb.Attended(name=each, manages=manages) for each in controllers]
    )


ATTEND = f"/{OBSERVE_SERVICE}/Attend"
CORE = ResourceId(broken_app()[1].name, "core", "default", "default")


async def test_process_that_does_not_answer_is_named(autojump_clock: trio.testing.MockClock) -> None:
    """The answer comes after two seconds, without it."""
    host = ObserveHost(nothing)
    began = autojump_clock.current_time()
    async with channel_to(host).stream(ATTEND, attend("web-1", "staff/teams")) as questions:
        assert (await anext(questions)).number == 0
        why = await host.why(CORE)
        assert (why.unreachable, autojump_clock.current_time() - began) == (["web-1"], 2.0)
        assert (await host.stuck(0)).unreachable == ["web-1"]


async def test_process_speaks_only_for_its_own_controllers() -> None:
    """Its answer cannot name another process, either."""
    host = ObserveHost(nothing)
    channel = channel_to(host)
    async with channel.stream(ATTEND, attend("web-1", "staff/teams")) as questions:
        await anext(questions)
        found: list[Why] = []

        async def ask() -> None:
            found.append(await host.why(CORE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = await anext(questions)
            assert question.why is not None
            assert question.why.name == "core"
            parts = [
                observe_pb.ControllerWhy(name=name, process="web-2", role="manages", state="idle")
                for name in ("staff/teams", "staff/others")
            ]
            answer = observe_pb.AnswerRequest(number=question.number, controllers=parts)
            await channel.unary(f"/{OBSERVE_SERVICE}/Answer", answer, observe_pb.AnswerResponse)
        assert [(each.name, each.process) for each in found[0].controllers] == [("staff/teams", "web-1")]


async def test_answer_to_no_question_is_refused() -> None:
    host = ObserveHost(nothing)
    with pytest.raises(HeadwayError) as refused:
        await channel_to(host).unary(
            f"/{OBSERVE_SERVICE}/Answer", observe_pb.AnswerRequest(number=7), observe_pb.AnswerResponse
        )
    assert status_of(refused.value) is Status.NOT_FOUND


async def test_number_of_processes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.why import _host

    monkeypatch.setattr(_host, "MOST_ATTENDING", 1)
    channel = channel_to(ObserveHost(nothing))
    async with channel.stream(ATTEND, attend("web-1", "staff/teams")) as first:
        await anext(first)
        with pytest.raises(HeadwayError) as refused:
            async with channel.stream(ATTEND, attend("web-2", "staff/teams")) as second:
                await anext(second)
        assert status_of(refused.value) is Status.RESOURCE_EXHAUSTED


def rule(verbs: list[str], type: str, prefix: str = "") -> Rule:
    return Rule(verbs=verbs, type=type, partition="*", namespace="*", name_prefix=prefix)


def lease_rule() -> Rule:
    return Rule(verbs=["write"], type="internal.v1.Lease", partition="", namespace="", name_prefix="staff/teams")


Reconcile = Callable[[headway.Runtime, headway.Request], Awaitable[Result]]


async def idle(_: headway.Runtime, __: headway.Request) -> None: ...


async def fail(_: headway.Runtime, __: headway.Request) -> None:
    raise ValueError("no")


@asynccontextmanager
async def guarded(
    *rules: Rule, reconcile: Reconcile = idle
) -> AsyncIterator[tuple[headway.Engine, InProcessChannel, dict[str, str]]]:
    """Run an engine with a team, and yield a channel for a caller with these rules."""
    parts = Parts()
    parts.reconcile = reconcile
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", rules)], [token]))
    registry = parts.app.registry
    async with headway.open_engine("memory:", parts.app) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await told(engine, core.id, "idle" if reconcile is idle else "waiting")
        served = Guarded(partial(ObserveService, observer_of(engine), registry), access, registry)
        yield engine, InProcessChannel(Services(served)), {"x-consul-token": text}


async def ask(
    channel: InProcessChannel, metadata: dict[str, str], name: str = "core", uid: str = ""
) -> observe_pb.WhyResponse:
    id = pb.Id(name=name, type=pb.Type(group="staff", group_version="v1", kind="Team"), uid=uid)
    return await channel.unary(
        f"/{OBSERVE_SERVICE}/Why", observe_pb.WhyRequest(id=id), observe_pb.WhyResponse, metadata=metadata
    )


async def stuck(channel: InProcessChannel, metadata: dict[str, str]) -> observe_pb.StuckResponse:
    return await channel.unary(
        f"/{OBSERVE_SERVICE}/Stuck", observe_pb.StuckRequest(), observe_pb.StuckResponse, metadata=metadata
    )


@pytest.mark.parametrize("verbs", [["view"], ["edit"], ["view", "edit"]])
async def test_right_to_observe_is_in_no_other_right(verbs: list[str]) -> None:
    """The refusal is the same whether or not the resource exists."""
    async with guarded(rule(verbs, "staff.v1.Team")) as (_, channel, metadata):
        messages = set()
        for name in ("core", "nobody"):
            with pytest.raises(HeadwayError) as refused:
                await ask(channel, metadata, name)
            assert status_of(refused.value) is Status.PERMISSION_DENIED
            messages.add((str(refused.value)).replace(name, "NAME"))
        assert len(messages) == 1
        with pytest.raises(HeadwayError, match="you may not observe all resources of any type"):
            await stuck(channel, metadata)


async def test_names_of_other_resources_are_redacted() -> None:
    """Whoever may observe teams learns that an account was the cause, but not which one."""
    async with guarded(rule(["observe"], "staff.v1.Team"), lease_rule()) as (engine, channel, metadata):
        app_types = {str(type.name): type for type in engine._registry}
        account = app_types["staff.v1.Account"]
        from tests.helpers.why_programs import Account

        await engine.client.apply(account.new("ada", Account(team="core")))
        await engine.wait_idle()
        reply = await ask(channel, metadata)
        assert reply.why is not None
        causes = [cause.resource for each in reply.why.controllers[0].reconciles for cause in each.causes]
        accounts = [each for each in causes if each is not None and each.type == "staff.v1.Account"]
        assert accounts
        assert all(each.name == "" for each in accounts)
        assert not any("ada" in each for each in reply.sentences)
        whole = await engine.why(ResourceId(app_types["staff.v1.Team"].name, "core", "default", "default"))
        assert any("Account ada" in each for each in sentences(whole))


async def test_stuck_lists_only_types_that_the_caller_may_observe_everywhere() -> None:
    async with guarded(rule(["observe"], "staff.v1.Account"), reconcile=fail) as (_, channel, metadata):
        assert (await stuck(channel, metadata)).sentences == []
    async with guarded(rule(["observe"], "staff.v1.Team"), reconcile=fail) as (_, channel, metadata):
        [sentence] = (await stuck(channel, metadata)).sentences
        assert sentence.startswith("Team core: controller staff/teams (server) has had work pending since ")


async def test_attending_needs_the_right_to_the_leases() -> None:
    """A stranger could otherwise answer in place of a worker."""
    async with guarded(lease_rule(), rule(["view"], "staff.v1.Team")) as (_, channel, metadata):
        async with channel.stream(ATTEND, attend("web-1", "staff/teams"), metadata=metadata) as questions:
            assert (await anext(questions)).number == 0
        with pytest.raises(HeadwayError, match="you may not acquire lease staff/others") as refused:
            async with channel.stream(ATTEND, attend("web-2", "staff/others"), metadata=metadata) as questions:
                await anext(questions)
        assert status_of(refused.value) is Status.PERMISSION_DENIED
