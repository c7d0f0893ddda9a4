"""Events that reconcilers record: stored soon, merged and bounded, and never in the way of a reconcile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock, wait_all_tasks_blocked
from typing_extensions import override

import headway
from headway import events
from headway.client import events_of
from headway.engine import combine_apps
from headway.errors import InvalidArgument
from headway.resource import EVENT, MOST_EVENTS, Resource, event_id
from headway.rpc import Channel, InProcessChannel, PassingChannel
from headway.run import EventRecorder, _events
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import MemoryBackend
from headway.why import sentences
from tests.helpers.resources import TEAM, Team
from tests.helpers.service_errors import failed

Record = Callable[[headway.Runtime, Resource[Team]], None]


def program(record: Record) -> headway.App:
    """Return an app whose reconciler records events of a team."""
    app = headway.App("staff")
    app.registry.register(TEAM)

    @app.controller(manages=TEAM)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None:
            record(rt, team)

    return app


async def shown(client: headway.Client, team: Resource[Team]) -> list[tuple[str, str, int]]:
    """Return the stored events, once everything that can go on without time passing has done so."""
    await wait_all_tasks_blocked()
    return [(each.reason, each.text, each.count) for each in await events_of(client, team)]


async def test_equal_events_are_counted_and_written_once_a_second(autojump_clock: MockClock) -> None:
    """The first is stored at once. Those of the next second share a write, which changes no other resource."""

    def record(rt: headway.Runtime, team: Resource[Team]) -> None:
        rt.event(team, "Seen", "it was seen")
        rt.event(team, "Grew", f"to {len(team.data.members)}", warning=True)

    async with headway.open_engine("memory:", program(record), report=events.ignore) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        assert await shown(engine.client, team) == [("Seen", "it was seen", 1), ("Grew", "to 0", 1)]
        first = await engine.client.read(EVENT, event_id(team.id))
        assert (first.owner, first.data.entries[1].warning) == (team.id, True)
        for size in range(1, 4):
            team.data.members = ["a"] * size
            team = await engine.client.write(team)
            await engine.wait_idle()
        assert [each[2] for each in await shown(engine.client, team)] == [1, 1]
        await trio.sleep(1.5)
        assert await shown(engine.client, team) == [
            *(("Grew", f"to {size}", 1) for size in range(3)),
            ("Seen", "it was seen", 4),
            ("Grew", "to 3", 1),
        ]
        assert (await engine.client.read(TEAM, "core")).version == team.version


async def test_at_most_twenty_events_are_kept(autojump_clock: MockClock) -> None:
    def record(rt: headway.Runtime, team: Resource[Team]) -> None:
        for number in range(MOST_EVENTS + 5):
            rt.event(team, "Number", str(number))

    async with headway.open_engine("memory:", program(record), report=events.ignore) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        assert [each[1] for each in await shown(engine.client, team)] == [str(at) for at in range(5, MOST_EVENTS + 5)]
        assert (await engine.client.read(EVENT, event_id(team.id))).data.dropped == 5


async def test_event_is_no_change_that_a_controller_waits_for_or_sees(autojump_clock: MockClock) -> None:
    """Even of a controller that watches events, as any other type: the write is not one of its own (C5)."""
    reconciled: list[str] = []
    app = headway.App("staff")
    app.registry.register(TEAM)

    @app.controller(manages=TEAM)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        reconciled.append(request.id.name)
        if (team := rt.resource(request)) is not None:
            rt.event(team, "Seen", "it was seen")

    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        await trio.sleep(60)
        assert await shown(engine.client, team) == [("Seen", "it was seen", 1)]
        run = engine.controllers["teams"].run
        assert run is not None
        assert run._writes.own.latest == {}
        assert reconciled == ["core"]


async def test_events_go_away_with_their_resource(autojump_clock: MockClock) -> None:
    """An event that comes too late for its resource is not lost: it would have gone with it."""
    seen: list[object] = []
    late: list[tuple[headway.Runtime, Resource[Team]]] = []

    def record(rt: headway.Runtime, team: Resource[Team]) -> None:
        rt.event(team, "Seen", "it was seen")
        late.append((rt, team))

    async with headway.open_engine("memory:", program(record), report=seen.append) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        assert await shown(engine.client, team) == [("Seen", "it was seen", 1)]
        await engine.client.delete(team)
        await trio.sleep(30)
        assert await engine.client.list(EVENT) == []
        late[0][0].event(late[0][1], "Late", "after the deletion")
        await trio.sleep(30)
        assert await engine.client.list(EVENT) == []
    assert not [each for each in seen if isinstance(each, events.EventNotStored)]


async def test_end_of_the_engine_writes_what_waits() -> None:
    """Also what the last reconcile has recorded, in the second in which nothing more would be written."""
    store = MemoryBackend()

    def record(rt: headway.Runtime, team: Resource[Team]) -> None:
        rt.event(team, "Grew", f"to {len(team.data.members)}")

    async with headway.open_engine(store, program(record), report=events.ignore) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        await shown(engine.client, team)
        team.data.members = ["ada"]
        await engine.client.write(team)
        await engine.wait_idle()
    async with headway.open_engine(store, program(record), report=events.ignore) as engine:
        # This engine reconciles the team as well, which is the same event as before.
        found = {each[1]: each[2] for each in await shown(engine.client, team)}
    assert found["to 0"] == 1
    assert found["to 1"] >= 1


async def test_wrong_argument_is_an_error_of_the_program() -> None:
    problems: list[str] = []

    def record(rt: headway.Runtime, team: Resource[Team]) -> None:
        wrong: list[tuple[Any, str, Any]] = [
            ("core", "Seen", ""),
            (TEAM.new("new", Team()), "Seen", ""),
            (team, "two words", ""),
            (team, "Seen", 3),
        ]
        for resource, reason, text in wrong:
            with pytest.raises(InvalidArgument) as caught:
                rt.event(resource, reason, text)
            problems.append(str(caught.value))
        rt.event(team, "Long", "x" * 2000)
        rt.event(team, "Half", "\ud83d")

    async with headway.open_engine("memory:", program(record), report=events.ignore) as engine:
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        found = await shown(engine.client, team)
    said = ("expects a resource", "is not stored yet", "one word", "text must be a string")
    assert all(part in problem for part, problem in zip(said, problems, strict=True)), problems
    assert [(reason, len(text)) for reason, text, _ in found] == [("Long", 1000), ("Half", 1)]


class Failing(PassingChannel):
    """A channel whose writes of events fail as a test says. Everything else passes."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.fails: Status | None = None
        self.tried = 0
        # The write is done, and its answer is lost.
        self.loses = False

    @override
    async def unary(self, path: str, request: Any, *rest: Any, **options: Any) -> Any:
        if not path.endswith("/Write") or request.resource.id.type.kind != "Event":
            return await super().unary(path, request, *rest, **options)
        self.tried += 1
        if self.fails is not None:
            await trio.lowlevel.checkpoint()
            raise failed(self.fails, "no events today")
        reply = await super().unary(path, request, *rest, **options)
        if self.loses:
            self.loses = False
            raise failed(Status.UNKNOWN, "the answer is lost")
        return reply


@asynccontextmanager
async def workers(record: Record, seen: list[object]) -> AsyncIterator[tuple[headway.engine.Engine, Failing]]:
    """Run the program against a server, over a channel that can fail."""
    app, store = program(record), MemoryBackend()
    registry, _ = combine_apps([app])
    services = ResourceService(store, registry), LeaseService(store), StoreService(store, registry)
    channel = Failing(InProcessChannel(*services))
    async with headway.open_workers(channel, app, process="web-1", report=seen.append) as engine:
        yield engine, channel


def _grew(rt: headway.Runtime, team: Resource[Team]) -> None:
    rt.event(team, "Grew", f"to {len(team.data.members)}")


@pytest.mark.parametrize(
    ("status", "why", "tries"), [(Status.PERMISSION_DENIED, "denied", 1), (Status.INVALID_ARGUMENT, "refused", 3)]
)
async def test_refused_event_is_counted_and_fails_no_reconcile(
    autojump_clock: MockClock, status: Status, why: str, tries: int
) -> None:
    """Without the right, no write is tried for a while: the server need not refuse each of thousands."""
    seen: list[object] = []
    async with workers(_grew, seen) as (engine, channel):
        channel.fails = status
        team = await engine.client.apply(TEAM.new("core", Team()))
        for size in range(3):
            team.data.members = ["a"] * (size + 1)
            team = await engine.client.write(team)
            await engine.wait_idle()
            await trio.sleep(2)
        lost = engine.controllers["teams"].events
        assert lost is not None
        assert lost.lost.count >= 3
        assert "no events today" in lost.lost.error
        assert channel.tried <= tries + 1
        answer = await engine.why(team.id)
        assert any("of its events could not be stored" in line for line in sentences(answer))
        if why == "denied":
            # After half a minute it tries again.
            channel.fails = None
            await trio.sleep(31)
            team.data.members = []
            await engine.client.write(team)
            await engine.wait_idle()
            assert await shown(engine.client, team) == [("Grew", "to 0", 1)]
    reported = [each for each in seen if isinstance(each, events.EventNotStored)]
    assert {(each.controller, each.why, each.reason) for each in reported} == {("staff/teams", why, "Grew")}
    assert sum(1 + each.suppressed for each in reported) == lost.lost.count
    assert not [each for each in seen if isinstance(each, events.Reconciled) and each.error is not None]


async def test_events_wait_while_the_store_is_away(autojump_clock: MockClock) -> None:
    """They are merged meanwhile, and have the times at which they happened."""
    seen: list[object] = []
    async with workers(_grew, seen) as (engine, channel):
        channel.fails = Status.UNAVAILABLE
        team = await engine.client.apply(TEAM.new("core", Team()))
        await engine.wait_idle()
        await trio.sleep(100)
        team.data.members = ["ada"]
        team = await engine.client.write(team)
        await engine.wait_idle()
        channel.fails = None
        await trio.sleep(20)
        assert await shown(engine.client, team) == [("Grew", "to 0", 1), ("Grew", "to 1", 1)]
        channel.fails = Status.UNAVAILABLE
        team.data.members = ["ada", "bob"]
        team = await engine.client.write(team)
        await trio.sleep(400)
        channel.fails = None
        await trio.sleep(20)
        assert len(await shown(engine.client, team)) == 2
    assert [each.why for each in seen if isinstance(each, events.EventNotStored)] == ["unavailable"]


async def test_write_whose_answer_is_lost_is_not_counted_twice(autojump_clock: MockClock) -> None:
    """Neither the creation of a resource's events, nor a later write of them."""
    async with workers(_grew, []) as (engine, channel):
        team = TEAM.new("core", Team())
        for size in range(2):
            channel.loses = True
            team.data.members = ["ada"] * size
            team = await engine.client.apply(team)
            await engine.wait_idle()
            await trio.sleep(20)
            assert not channel.loses
        assert await shown(engine.client, team) == [("Grew", "to 0", 1), ("Grew", "to 1", 1)]


async def test_memory_is_bounded_while_nothing_can_be_written(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_events, "MOST_WAITING", 5)
    app, store, seen = program(_grew), MemoryBackend(), list[object]()
    registry, _ = combine_apps([app])
    channel = Failing(InProcessChannel(ResourceService(store, registry)))
    channel.fails = Status.UNAVAILABLE
    recorder = EventRecorder(headway.Client(channel, registry), registry, seen.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.run)
        for number in range(5 + 2):
            id = TEAM.id(f"t{number}", uid=f"01{number}")
            for text in range(MOST_EVENTS + 1):
                recorder.record(id, "staff/teams", "Grew", str(text), warning=False)
        assert recorder.lost("staff/teams").count == 2 * (MOST_EVENTS + 1)
        assert sum(len(each.entries) for each in recorder._waiting.values()) == 5 * MOST_EVENTS
        nursery.cancel_scope.cancel()
    await recorder.finish()
    assert recorder._waiting == {}
    assert {each.why for each in seen if isinstance(each, events.EventNotStored)} == {"full", "ended"}


async def test_controllers_of_two_processes_share_the_events_of_a_resource(autojump_clock: MockClock) -> None:
    """Each write is based on what is stored, so none destroys another's."""
    store = MemoryBackend()
    registry, _ = combine_apps([program(_grew)])
    client = headway.Client(InProcessChannel(ResourceService(store, registry)), registry)
    team = await client.apply(TEAM.new("core", Team()))
    recorders = [EventRecorder(client, registry, events.ignore) for _ in range(4)]
    async with trio.open_nursery() as nursery:
        for each in recorders:
            nursery.start_soon(each.run)
        for number in range(20):
            for at, each in enumerate(recorders):
                each.record(team.id, f"staff/c{at}", "Grew", "", warning=False)
            await trio.sleep(0.3 if number % 3 else 1.1)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    stored = await events_of(client, team)
    assert {each.controller: each.count for each in stored} == {f"staff/c{at}": 20 for at in range(4)}
