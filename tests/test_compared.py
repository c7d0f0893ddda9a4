"""Clients and workers of a server that has other types than their program: told at the first call, and told rightly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway.access import Access, Authorizer
from headway.engine import ComparedChannel
from headway.errors import OutcomeUnknown, PermissionDenied, Unavailable
from headway.resource import ResourceType, describe, field, message, types_pb
from headway.rpc import Services, open_server
from headway.service import OriginService, ResourceService
from headway.storage import MemoryBackend


@message
class Team:
    members: list[str] = field(1)
    color: str = field(2)


@message(renamed={2: "color"})
class Newer:
    members: list[str] = field(1)
    shade: str = field(2)
    size: int = field(3)


@message
class Wrong:
    members: str = field(1)
    color: str = field(2)


TEAM: ResourceType[Team] = ResourceType("staff", "v1", "Team", Team)
NEWER: ResourceType[Newer] = ResourceType("staff", "v1", "Team", Newer)
WRONG: ResourceType[Wrong] = ResourceType("staff", "v1", "Team", Wrong)
SAID = (
    "the server has other schemas than this program:\n"
    "staff.v1.Team.members (field 1): expected list of string as stored, got string; "
    "keep list of string, or use a new number, such as field(3)"
)


def program(type: ResourceType[Any], *, controller: bool = False) -> headway.App:
    app = headway.App("staff")
    app.registry.register(type)
    if controller:

        @app.controller(manages=type)
        async def teams(_: headway.Runtime, request: headway.Request[Any]) -> None:
            reconciled.append(request.id.name)

    return app


reconciled: list[str] = []


@asynccontextmanager
async def serving(type: ResourceType[Any] = TEAM, **options: Any) -> AsyncIterator[str]:
    options = options or {"insecure": True}
    async with headway.open_engine("memory:", program(type), listen=["127.0.0.1:0"], **options) as engine:
        await engine.client.write(type.new("core"))
        yield engine.addresses[0]


async def test_a_client_that_would_misread_is_told_at_its_first_call() -> None:
    """And at every later one; nothing is sent to the store."""
    async with serving() as address, headway.connect(address, program(WRONG)) as client:
        with pytest.raises(headway.errors.SchemaMismatch) as caught:
            await client.read(WRONG, "core")
        assert str(caught.value) == SAID
        with pytest.raises(headway.errors.SchemaMismatch):
            await client.write(WRONG.new("core", Wrong(members="a")))
        with pytest.raises(headway.errors.SchemaMismatch):
            async with client.watch(WRONG) as events:
                await anext(events)
        async with headway.connect(address, program(TEAM)) as other:
            assert (await other.read(TEAM, "core")).data.members == []


async def test_clients_older_and_newer_than_their_server_are_taken() -> None:
    """What one side lacks, the other one keeps."""
    pairs: list[tuple[ResourceType[Any], ResourceType[Any]]] = [(TEAM, NEWER), (NEWER, TEAM)]
    for theirs, ours in pairs:
        async with serving(theirs) as address, headway.connect(address, program(ours)) as client:
            assert (await client.read(ours, "core")).name == "core"


async def test_workers_end_by_what_their_server_would_misread() -> None:
    """The error comes out of the block, and no controller has run."""
    async with serving() as address:
        with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch) as caught:
            async with headway.open_workers(address, program(WRONG, controller=True), process="web-1"):
                await trio.sleep_forever()
        assert str(caught.value) == SAID
        with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch):
            async with headway.open_workers(address, program(WRONG, controller=True), process="web-1") as workers:
                await workers.client.read(WRONG, "core")
    assert reconciled == []


async def test_workers_without_controllers_are_compared_too() -> None:
    """Nothing calls the server for them, so the comparison itself must begin the talk."""
    async with serving() as address:
        with trio.fail_after(20), pytest.raises(headway.errors.SchemaMismatch) as caught:
            async with headway.open_workers(address, program(WRONG), process="web-1"):
                await trio.sleep_forever()
        assert str(caught.value) == SAID


async def test_a_server_that_is_away_is_compared_once_it_answers(autojump_clock: trio.testing.MockClock) -> None:
    """Its absence is no failure; each wait is longer than the one before, up to a bound."""
    away = GRPCError(Status.UNAVAILABLE, "away")
    lists = Lists(*[away] * 20, describe([TEAM]))
    lists.may_answer.set()
    channel = ComparedChannel(lists, [WRONG])
    began = autojump_clock.current_time()
    with trio.fail_after(5000), pytest.raises(headway.errors.SchemaMismatch):
        await channel.wait_refused()
    assert (lists.asked, 60 < autojump_clock.current_time() - began < 1200) == (21, True)


async def test_a_comparison_elsewhere_ends_the_wait(nursery: trio.Nursery) -> None:
    """A controller's call may find the mismatch while the first question rests."""
    lists = Lists(GRPCError(Status.UNAVAILABLE, "away"), describe([TEAM]))
    lists.may_answer.set()
    channel = ComparedChannel(lists, [WRONG])
    ended: list[BaseException] = []

    async def wait() -> None:
        try:
            await channel.wait_refused()
        except headway.errors.SchemaMismatch as error:
            ended.append(error)

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(headway.errors.SchemaMismatch):
        await channel.unary("/a/B", None, str)
    await trio.testing.wait_all_tasks_blocked()
    assert (len(ended), lists.asked) == (1, 2)


async def test_a_server_that_has_no_description_is_taken() -> None:
    """Consul's, or one of an earlier version."""
    registry = program(TEAM).registry
    services = Services(ResourceService(MemoryBackend(), registry), OriginService(MemoryBackend(), registry))
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        headway.connect(server.addresses[0], program(WRONG)) as client,
    ):
        assert await client.get(WRONG, "core") is None


async def test_a_token_that_may_know_nothing_learns_nothing() -> None:
    """What a type looks like is not compared for a caller who may do nothing with it; the call itself is refused."""
    access = Authorizer(Access([], []))
    async with serving(access=access) as address, headway.connect(address, program(WRONG)) as client:
        with pytest.raises(PermissionDenied):
            await client.read(WRONG, "core")


class Lists:
    """A types service that answers as it is told, and counts how often it is asked."""

    def __init__(self, *answers: types_pb.ListResponse | GRPCError) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.may_answer = trio.Event()
        self.calls: list[str] = []
        self.knows_outcomes = False

    async def unary(self, path: str, *_: Any, **__: Any) -> Any:
        self.calls.append(path)
        if not path.endswith("TypesService/List"):
            return "answered"
        self.asked += 1
        await self.may_answer.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, GRPCError):
            raise answer
        return answer

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def test_callers_at_one_time_ask_once(nursery: trio.Nursery) -> None:
    """All of them hear of a failure, none of their own calls has begun, and the next call asks again."""
    lists = Lists(GRPCError(Status.UNAVAILABLE, "away"), describe([TEAM]))
    channel = ComparedChannel(lists, [TEAM])
    client = headway.Client(channel, program(TEAM).registry)
    failed: list[BaseException] = []

    async def write() -> None:
        try:
            await client.write(TEAM.new("core"))
        except (Unavailable, OutcomeUnknown) as error:
            failed.append(error)

    for _ in range(5):
        nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    assert lists.asked == 1
    lists.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [type(each) for each in failed] == [Unavailable] * 5
    assert await channel.unary("/a/B", None, str) == "answered"
    assert await channel.unary("/a/B", None, str) == "answered"
    assert (lists.asked, lists.calls[-2:]) == (2, ["/a/B", "/a/B"])


async def test_a_caller_that_is_canceled_leaves_the_question_to_the_next(nursery: trio.Nursery) -> None:
    lists = Lists(describe([TEAM]))
    channel = ComparedChannel(lists, [TEAM])
    answers: list[str] = []
    first = trio.CancelScope()

    async def call(scope: trio.CancelScope) -> None:
        with scope:
            answers.append(await channel.unary("/a/B", None, str))

    nursery.start_soon(call, first)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(call, trio.CancelScope())
    await trio.testing.wait_all_tasks_blocked()
    first.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert lists.asked == 2
    lists.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == ["answered"]


async def test_a_description_that_makes_no_sense_is_named() -> None:
    nonsense = describe([TEAM])
    nonsense.types[0].message = 7
    lists = Lists(nonsense)
    lists.may_answer.set()
    with pytest.raises(headway.errors.PayloadError, match="the server's description of its types can't be read"):
        await ComparedChannel(lists, [TEAM]).unary("/a/B", None, str)
