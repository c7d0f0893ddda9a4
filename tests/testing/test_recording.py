"""A recording channel turns traffic into the facts of a history, and this package's stores keep its rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway import testing
from headway.client import Client
from headway.resource import Key
from headway.rpc import Channel, InProcessChannel, open_channel
from headway.service import WATCH_LIST, LeaseService, ResourceService, StoreService, WatchDecoder
from headway.storage import MemoryBackend
from headway.testing import (
    CacheSeen,
    Fault,
    History,
    ReconcileDone,
    RecordingChannel,
    ScriptedChannel,
    WatchOpened,
    WriteAnswered,
    WriteSent,
)
from tests.helpers.cluster import Copy, Job

CONTROLLER = "staff/copier"


class Program:
    """A program that copies each job and records the reads of its reconciles."""

    def __init__(self, history: History) -> None:
        self.app = headway.App("staff")
        self.job = job = self.app.type("staff", "v1", "Job", Job)
        self.copy = copy = self.app.type("staff", "v1", "Copy", Copy)
        self.owes = {CONTROLLER: {job.kind: same, copy.kind: same}}

        @self.app.controller(
            manages=job, watches=[headway.watch(copy, headway.mappers.same_name())], concurrency=4, name="copier"
        )
        async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            began = trio.current_time()
            seen = tuple((type.kind, rt.cache.revision(type)) for type in (job, copy))
            types: tuple[headway.ResourceType[Any], ...] = (job, copy)
            for type in types:
                held = tuple((each.id.key, int(each.version)) for each in rt.cache.list(type))
                history.add(CacheSeen(f"run {rt.term}", type.kind, rt.cache.revision(type), held))
            given, made = rt.resource(request), rt.cache.get(copy, request.id.name)
            if given is not None:
                await rt.client.apply(copy.new(request.id.name, Copy(text=given.data.text)))
            elif made is not None:
                await rt.client.delete(made)
            history.add(ReconcileDone("controllers", CONTROLLER, request.id.key, began, seen))

    async def work(self, client: headway.Client) -> None:
        """Write and delete some jobs, several at once."""

        async def write(name: str) -> None:
            for number in range(5):
                await client.apply(self.job.new(name, Job(text=f"{name} {number}")))
            if name in "bd":
                await client.delete(self.job.id(name))

        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(write, name)


def same(key: Key) -> list[Key]:
    return [key]


@asynccontextmanager
async def watching(client: headway.Client, type: headway.ResourceType[Any]) -> AsyncIterator[Callable[[int], Any]]:
    """Open a watch over the whole block, and yield a function that waits until the watch has reached a revision."""
    upto, moved = 0, trio.Event()

    async def watch() -> None:
        nonlocal upto, moved
        async with client.watch(type) as events:
            async for event in events:
                upto = (
                    event.revision
                    if isinstance(event, headway.client.Upserted | headway.client.Deleted)
                    else event.position.revision
                )
                moved.set()
                moved = trio.Event()

    async def reached(revision: int) -> None:
        while upto < revision:
            await moved.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield reached
        nursery.cancel_scope.cancel()


async def test_program_in_one_process_has_a_good_history(tmp_path: Path) -> None:
    """The program runs on SQLite. The history has everything that its controllers do."""
    history = History()
    program = Program(history)
    channel = RecordingChannel("controllers", history.add, clock=trio.current_time)
    async with testing.open_engine(f"sqlite:{tmp_path / 'staff.db'}", program.app, wrap_channel=channel.over) as engine:
        with trio.fail_after(30):
            await program.work(engine.client)
            await engine.wait_idle()
        assert sorted(each.name for each in await engine.client.list(program.copy)) == ["a", "c"]
    history.check(program.owes)
    written = [fact for fact in history.facts if isinstance(fact, WriteAnswered)]
    assert {fact.outcome for fact in written} == {"acknowledged"}
    assert all(fact.fence == (CONTROLLER, "", fact.fence[2]) for fact in written if fact.fence is not None)


async def test_processes_on_a_network_have_a_good_history() -> None:
    """A client that writes and watches, and workers, each have a connection of their own."""
    history = History()
    program = Program(history)
    types = headway.App("types")
    for type in (program.job, program.copy):
        types.registry.register(type)
    async with (
        headway.open_engine("memory:", types, network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine,
        open_channel(engine.addresses[0], decoders={WATCH_LIST: WatchDecoder}) as wire,
        open_channel(engine.addresses[0], decoders={WATCH_LIST: WatchDecoder}) as other,
        headway.open_workers(
            RecordingChannel("controllers", history.add, clock=trio.current_time).over(wire),
            program.app,
            process="web-1",
        ) as workers,
    ):
        client = Client(RecordingChannel("writer", history.add, clock=trio.current_time).over(other), types.registry)
        with trio.fail_after(30):
            async with watching(client, program.job) as reached, watching(client, program.copy) as reached_copies:
                await program.work(client)
                revision = max(fact.revision for fact in history.facts if isinstance(fact, WriteAnswered))
                await reached(revision)
                await workers.wait_idle()
                await reached_copies(max(fact.revision for fact in history.facts if isinstance(fact, WriteAnswered)))
            assert sorted(each.name for each in await client.list(program.copy)) == ["a", "c"]
    history.check(program.owes)
    watches = [fact.watch.partition(".")[0] for fact in history.facts if isinstance(fact, WatchOpened)]
    assert set(watches) == {"controllers", "writer"}


class Scripted:
    """A store behind a script, and a client through a recording channel."""

    def __init__(self, store: MemoryBackend) -> None:
        self.history = History()
        self.program = Program(self.history)
        self.script = ScriptedChannel()
        services = InProcessChannel(
            ResourceService(store, self.program.app.registry),
            LeaseService(store),
            StoreService(store, self.program.app.registry),
        )
        over = RecordingChannel("writer", self.history.add, clock=trio.current_time)
        self.channel: Channel = over.over(self.script.over(services))
        self.client = Client(self.channel, self.program.app.registry)

    async def write(self, text: str) -> int:
        return int((await self.client.apply(self.program.job.new("a", Job(text=text)))).version)

    def rules(self) -> set[str]:
        return {rule for rule, _ in self.history.violations()}


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    async with MemoryBackend() as store:
        yield Scripted(store)


@pytest.mark.parametrize(("fault", "rule"), [("none", ""), ("duplicate", "unique"), ("false_bookmark", "bookmarkable")])
async def test_fault_in_a_stream_is_found_in_its_record(scripted: Scripted, fault: str, rule: str) -> None:
    """The history finds exactly the script's changes to the stream."""
    async with watching(scripted.client, scripted.program.job) as reached:
        await reached(await scripted.write("one"))
        if rule:
            getattr(scripted.script, fault)(scripted.program.job)
        await reached(await scripted.write("two"))
        await reached(await scripted.write("three"))
    assert scripted.rules() == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("fault", "error", "outcome"),
    [
        (Fault.LOST, headway.errors.OutcomeUnknown, "unknown"),
        (Fault.CONFLICT, headway.Conflict, "refused"),
    ],
)
async def test_write_without_a_reply_is_unknown_and_a_refused_one_is_refused(
    scripted: Scripted, fault: Fault, error: type[Exception], outcome: str
) -> None:
    """Neither of these writes counts as acknowledged."""
    scripted.script.writes(fault)
    with pytest.raises(error):
        await scripted.client.write(scripted.program.job.new("a", Job(text="one")))
    written = [fact for fact in scripted.history.facts if isinstance(fact, WriteAnswered)]
    assert [(fact.outcome, fact.stored) for fact in written] == [(outcome, None)]


async def test_write_is_recorded_before_it_is_sent(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before the answer records nothing more."""
    usual, sent = scripted.script.unary, []

    async def unary(path: str, *arguments: Any, **options: Any) -> Any:
        if path.endswith("Write"):
            sent.append(scripted.history.facts[-1])
        return await usual(path, *arguments, **options)

    monkeypatch.setattr(scripted.script, "unary", unary)
    await scripted.write("one")
    [answered] = [fact for fact in scripted.history.facts if isinstance(fact, WriteAnswered)]
    assert sent == [WriteSent("writer", answered.kind, answered.key, answered.digest)]


async def test_write_that_is_stored_although_refused_is_found(scripted: Scripted) -> None:
    """The write is recognized by its content, which no other writer has written."""
    async with watching(scripted.client, scripted.program.job) as reached:
        scripted.script.writes(Fault.CONFLICT)
        with pytest.raises(headway.Conflict):
            await scripted.client.write(scripted.program.job.new("a", Job(text="one")))
        # Over another channel, which is not recorded.
        services: Any = scripted.script
        direct = Client(services, scripted.program.app.registry)
        await reached(int((await direct.write(scripted.program.job.new("a", Job(text="one")))).version))
    assert scripted.rules() == {"refused"}
