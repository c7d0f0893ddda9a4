"""Questions to one of several processes of a server: it answers for all of them, and for the workers of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from grpclib.const import Status

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.errors import HeadwayError
from headway.resource import ResourceId
from headway.rpc import open_channel
from headway.storage import Backend
from headway.why import ATTEND, OBSERVE_SERVICE, QuestionDecoder, Why, beside_siblings
from tests.helpers.service_errors import status_of
from tests.helpers.why_programs import Team, broken_app
from tests.test_shared_store import SharedMemory
from tests.why.test_workers import attend, types_only

T = TypeVar("T")
NAMES = ("web-1", "web-2")
ANSWER = f"/{OBSERVE_SERVICE}/Answer"


@asynccontextmanager
async def kept(store: Backend) -> AsyncIterator[Backend]:
    yield store


@asynccontextmanager
async def process(
    store: Backend, app: headway.App, name: str, folder: Path, *, listen: bool = False
) -> AsyncIterator[headway.Engine]:
    """Open an engine as a process of a server. One of its siblings is never there."""
    public = [f"unix:{folder}/public-{name}"] if listen else []
    opened = headway.open_engine(kept(store), app, process=name, network=headway.Network(public, insecure=listen))
    others = {each: str(folder / each) for each in (*NAMES, "web-3") if each != name}
    async with opened as engine, beside_siblings(engine, name, str(folder / name), others):
        yield engine


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Ask until the answer is as wanted, because a stream between two processes opens without an event."""
    with trio.fail_after(20):
        while not wanted(answer := await ask()):  # noqa: ASYNC110  # it has no event
            await trio.sleep(0.01)
    return answer


def answered_by(*names: str) -> Callable[[Why], bool]:
    return lambda why: {each.process for each in why.controllers} == {*names}


def has_reconciled(why: Why) -> bool:
    """Return True if both processes have answered, and one of them has tried and waits."""
    return answered_by(*NAMES)(why) and any(each.reconciles and each.state == "waiting" for each in why.controllers)


async def test_both_processes_give_the_same_answer(tmp_path: Path) -> None:
    """It has the controllers of both and each write with its writer, although only one process knows that one."""
    (app, team), (other, _) = broken_app(), broken_app()
    async with (
        SharedMemory() as store,
        process(store, app, "web-1", tmp_path) as first,
        process(store, other, "web-2", tmp_path) as second,
    ):
        core = await second.client.apply(team.new("core", Team()))
        for engine in (first, second):
            why = await until(partial(engine.why, core.id), has_reconciled)
            assert [each.process for each in why.controllers] == ["web-1", "web-2"]
            # It is one of the processes too, and has never started.
            assert why.unreachable == (await engine.stuck(0)).unreachable == ["web-3"]
            # The engine that leads is not always the one that has committed the write.
            [leader] = [each for each in why.controllers if each.reconciles]
            cause = leader.reconciles[-1].causes[0]
            assert (cause.what, cause.writer) == ("changed", "a program in the server's process")
            assert [each.writer for each in why.writes if each.verb == "created"] == [cause.writer]
            [item] = (await engine.stuck(0)).items
            assert (item.process, item.state) == (leader.process, "waiting")


async def test_workers_of_any_process_are_part_of_the_answer(tmp_path: Path) -> None:
    """A worker is connected to one process. The others know it too, and learn that it has gone."""
    async with (
        SharedMemory() as store,
        process(store, types_only(), "web-1", tmp_path, listen=True) as first,
        process(store, types_only(), "web-2", tmp_path, listen=True) as second,
    ):
        app, team = broken_app()
        core = await second.client.apply(team.new("core", Team()))
        async with headway.open_workers(first.addresses, app, process="worker"):
            await until(lambda: second.why(core.id), answered_by("worker"))
            await until(lambda: first.why(core.id), answered_by("worker"))
        for engine in (first, second):
            why = await until(partial(engine.why, core.id), lambda why: bool(why.gone))
            assert [each.process for each in why.gone] == ["worker"]


async def test_answer_that_reaches_another_process_is_passed_on(tmp_path: Path) -> None:
    """A worker has several connections, and on a shared port each may reach another process."""
    async with (
        SharedMemory() as store,
        process(store, types_only(), "web-1", tmp_path, listen=True) as first,
        process(store, types_only(), "web-2", tmp_path, listen=True) as second,
        open_channel(first.addresses, decoders={ATTEND: QuestionDecoder}) as asking,
        open_channel(second.addresses) as elsewhere,
        trio.open_nursery() as nursery,
    ):
        answers: list[Why] = []

        async def ask(id: ResourceId) -> None:
            answers.append(await first.why(id))

        _, team = broken_app()
        core = await first.client.apply(team.new("core", Team()))
        async with asking.stream(ATTEND, attend("worker", "staff/teams")) as questions:
            assert (await anext(questions)).number == 0
            nursery.start_soon(ask, core.id)
            question = await anext(questions)
            part = observe_pb.ControllerWhy(name="staff/teams", role="manages", state="idle")
            answer = observe_pb.AnswerRequest(number=question.number, controllers=[part])
            await elsewhere.unary(ANSWER, answer, observe_pb.AnswerResponse)
            with trio.fail_after(20):
                while not answers:
                    await trio.lowlevel.checkpoint()
            [answered] = answers[0].controllers
            assert (answered.process, answered.state) == ("worker", "idle")
            with pytest.raises(HeadwayError, match="no question waits") as refused:
                await elsewhere.unary(ANSWER, answer, observe_pb.AnswerResponse)
            assert status_of(refused.value) is Status.NOT_FOUND


async def test_client_cannot_attend_as_a_process_of_the_server(tmp_path: Path) -> None:
    """The field between processes has no effect on a public address, so a worker cannot name writers."""
    async with (
        SharedMemory() as store,
        process(store, types_only(), "web-1", tmp_path, listen=True) as first,
        open_channel(first.addresses, decoders={ATTEND: QuestionDecoder}) as channel,
    ):
        _, team = broken_app()
        core = await first.client.apply(team.new("core", Team()))
        request = attend("web-2", "staff/teams")
        # The nursery is the inner block: a task that reads the stream must end before the stream is closed.
        async with channel.stream(ATTEND, request) as questions, trio.open_nursery() as nursery:
            assert (await anext(questions)).number == 0

            async def answer() -> None:
                async for question in questions:
                    write = observe_pb.PastWrite(revision=10**6, verb="deleted", writer="somebody")
                    said = observe_pb.AnswerRequest(number=question.number, writes=[write])
                    await channel.unary(ANSWER, said, observe_pb.AnswerResponse)

            nursery.start_soon(answer)
            why = await first.why(core.id)
            nursery.cancel_scope.cancel()
        # The name of the worker does not make it one of them.
        assert why.unreachable == ["web-2", "web-3"]
        assert [each.verb for each in why.writes] == ["created"]
