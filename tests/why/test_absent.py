"""Which controllers are missed: those that workers ran, that run nowhere, and that somebody waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway._gen.headway.internal.v1 import ControllerRecord
from headway.base._clock import WALL
from headway.events import ControllersClash
from headway.resource import CONTROLLER_RECORD, Kind, TypeName
from headway.why import Absences, ObserveHost, _absent, observer_of, sentences
from tests.helpers.why_programs import broken_app
from tests.why.test_workers import ATTEND, attend, channel_to, types_only

TEAMS = "staff/teams"
TEAM = broken_app()[1]


class Server:
    """One server of a store, which looks when a test says so."""

    def __init__(self, stage: Staged, host: ObserveHost) -> None:
        self.stage = stage
        self.host = host
        self.begin()

    def begin(self) -> None:
        """Begin as a server does that knows only the records."""

        async def kinds() -> set[Kind]:
            return self.stage.kinds

        engine = self.stage.engine
        self.reported: list[object] = []
        self.host._gone.clear()
        self.host._left.clear()
        self.listening = trio.Event()
        self.listening.set()
        about = (self.host, engine.client, engine._registry, kinds)
        self.absences = Absences(*about, shared=self.stage.shared, ready=self.listening, report=self.reported.append)

    @asynccontextmanager
    async def attended(self, process: str, *controllers: str, scoped: bool = False) -> AsyncIterator[None]:
        request = attend(process, *controllers)
        for each in request.controllers:
            each.scoped = scoped
        async with channel_to(self.host).stream(ATTEND, request) as questions:
            await anext(questions)
            yield

    @property
    def absent(self) -> list[str]:
        return [each.controller for each in self.host.absent]


class Staged:
    """Two servers of one store, whose clock and stored kinds a test chooses."""

    def __init__(self, engine: headway.Engine, *, shared: bool = False) -> None:
        self.engine = engine
        self.kinds: set[Kind] = set()
        self.wall = 1_000_000.0
        self.shared = shared
        asked = observer_of(engine)
        self.servers = [Server(self, ObserveHost(asked.read, None, asked._read_leases)) for _ in range(2)]

    async def look(self, *servers: Server, looks: int = 1) -> list[str]:
        """Let these servers look, in turn, so many times. Return what the first one misses."""
        for _ in range(looks):
            self.wall += _absent.LOOK
            for each in servers:
                await each.absences._look()
        return servers[0].absent

    async def record(self) -> ControllerRecord:
        [found] = await self.engine.client.list(CONTROLLER_RECORD)
        return found.data

    async def version(self) -> str:
        [found] = await self.engine.client.list(CONTROLLER_RECORD)
        return found.version


@asynccontextmanager
async def staged(*, shared: bool = False) -> AsyncIterator[Staged]:
    stage: list[Staged] = []
    clock: Callable[[], float] = lambda: stage[0].wall if stage else 1_000_000.0  # noqa: E731
    token = WALL.set(clock)
    try:
        async with headway.open_engine("memory:", types_only()) as engine:
            # The engine's own look finds no records, and is the last one, because nobody attends at its host.
            await wait_all_tasks_blocked()
            stage.append(Staged(engine, shared=shared))
            yield stage[0]
    finally:
        WALL.reset(token)


async def test_controller_is_wanted_for_a_day_and_as_long_as_its_type_has_resources(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        server = stage.servers[0]
        async with server.attended("web-1", TEAMS):
            assert await stage.look(server) == []
        # Workers that restart are back within the grace.
        assert await stage.look(server, looks=_absent.GRACE) == []
        assert await stage.look(server) == [TEAMS]
        stage.wall += _absent.DAY
        assert await stage.look(server) == []
        stage.kinds.add(TEAM.kind)
        assert await stage.look(server) == [TEAMS]


async def test_restarted_server_lets_workers_connect_and_knows_since_when_a_controller_is_missed(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        server = stage.servers[0]
        async with server.attended("web-1", TEAMS):
            await stage.look(server)
            stopped = stage.wall
        await stage.look(server, looks=100)
        server.begin()
        # It still starts, for example because its store is large.
        server.listening = server.absences._ready = trio.Event()
        assert await stage.look(server, looks=100) == []
        server.listening.set()
        assert await stage.look(server, looks=_absent.GRACE) == []
        assert await stage.look(server) == [TEAMS]
        assert server.host.absent[0].since == stopped
        core = await stage.engine.client.apply(TEAM.new("core", metadata={"finalizers": "teams"}))
        told = "\n".join(sentences(await server.host.why(core.id)))
        assert "Its finalizer teams is removed by controller staff/teams." in told
        async with server.attended("web-1", TEAMS):
            assert await stage.look(server) == []
            assert (await stage.record()).missed is None


async def test_controller_whose_lease_is_held_runs_somewhere(autojump_clock: MockClock) -> None:
    """A lease of another controller says nothing."""
    async with staged() as stage:
        server = stage.servers[0]
        async with server.attended("web-1", TEAMS):
            await stage.look(server)
        leases = stage.engine.client.leases
        await leases.acquire(f"{TEAMS}-of-others", "web-2", ttl=3600)
        assert await stage.look(server, looks=_absent.GRACE + 1) == [TEAMS]
        await leases.acquire(f"{TEAMS}#3/16", "web-2", ttl=3600)
        assert await stage.look(server) == []


@pytest.mark.parametrize("ahead", [-50_000.0, 0.0, 50_000.0], ids=["behind", "equal", "ahead"])
async def test_worker_that_moves_to_another_server_is_never_missed(ahead: float, autojump_clock: MockClock) -> None:
    """The record of the first server is new, so the second one would not write it for ten minutes. Nor do the clocks of
    the two agree.
    """
    async with staged(shared=True) as stage:
        first, second = stage.servers

        async def look_at_both() -> list[str]:
            missed = await stage.look(first)
            stage.wall += ahead
            missed += await stage.look(second)
            stage.wall -= ahead
            return missed

        for here in (first, second, first):
            async with here.attended("web-1", TEAMS):
                for _ in range(2 * _absent.SHARED_GRACE):
                    assert await look_at_both() == []
        # It ends at the first one.
        for _ in range(_absent.SHARED_GRACE):
            assert await look_at_both() == []
        assert await look_at_both() == [TEAMS, TEAMS]
        versions = set()
        for _ in range(20):
            assert await look_at_both() == [TEAMS, TEAMS]
            versions.add(await stage.version())
        assert len(versions) == 1


async def test_controller_in_another_server_itself_is_not_missed(autojump_clock: MockClock) -> None:
    async with staged(shared=True) as stage:
        first, second = stage.servers
        async with first.attended("web-1", TEAMS):
            await stage.look(first, second)
        async with headway.open_engine("memory:", broken_app()[0]) as engine:
            second.host.supervisors = observer_of(engine).supervisors
            assert await stage.look(first, second, looks=2 * _absent.BELIEVED) == []
            # A slow server is heard as well, as long as it looks within the grace.
            for _ in range(2 * _absent.BELIEVED // _absent.SHARED_GRACE):
                assert await stage.look(first, looks=_absent.SHARED_GRACE - 1) == []
                await stage.look(second)
        second.host.supervisors = ()
        assert await stage.look(first, second, looks=_absent.BELIEVED + _absent.SHARED_GRACE + 2) == [TEAMS]


async def test_old_record_is_deleted_unless_its_type_has_resources(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        server = stage.servers[0]
        async with server.attended("web-1", TEAMS, "staff/groups"):
            await stage.look(server)
            # This server's program does not have the type any more.
            unknown = ControllerRecord(controller="old/rooms", manages="old.v1.Room")
            await stage.engine.client.apply(CONTROLLER_RECORD.new("old", unknown))
        async with server.attended("web-1", TEAMS):
            stage.kinds |= {TEAM.kind, TypeName("old", "v1", "Room").unversioned}
            stage.wall += _absent.FORGET
            await stage.look(server)
            assert len(await stage.engine.client.list(CONTROLLER_RECORD)) == 3
            stage.kinds.clear()
            await stage.look(server)
            assert (await stage.record()).controller == TEAMS


async def test_number_of_records_is_bounded(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """A caller chooses the names of its controllers."""
    monkeypatch.setattr(_absent, "MOST_RECORDS", 2)
    async with staged() as stage, AsyncExitStack() as stack:
        names = [f"staff/{number}" for number in range(5)]
        server = stage.servers[0]
        await stack.enter_async_context(server.attended("web-1", *names))
        await stage.look(server)
        assert len(await stage.engine.client.list(CONTROLLER_RECORD)) == 2


@pytest.mark.parametrize("servers", [1, 2])
async def test_controllers_of_one_name_in_two_processes_are_reported(servers: int, autojump_clock: MockClock) -> None:
    """They share a finalizer: one of them may not clean up. In one process they are refused."""
    async with staged(shared=servers == 2) as stage:
        first, second = stage.servers[0], stage.servers[servers - 1]

        async def clashes() -> list[str]:
            await stage.look(first, second, looks=3)
            return [each.error for each in (await first.host.stuck(0)).items if each.state == "clashing"]

        async with first.attended("web-1", TEAMS), second.attended("web-2", "hr/teams", scoped=True):
            assert await clashes() == []
        async with first.attended("web-1", TEAMS), second.attended("web-2", "staff/rooms"):
            assert await clashes() == []
            async with second.attended("web-3", "hr/teams"):
                [text] = await clashes()
                assert "hr/teams and staff/teams share the finalizer and the status 'teams' of a staff.v1.Team" in text
                await clashes()
            assert await clashes() == []
        [reported] = first.reported
        assert reported == ControllersClash(TEAM.name, "teams", ("hr/teams", "staff/teams"))
