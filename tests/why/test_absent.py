"""Which controllers are missed: those that workers ran, that run nowhere, and that somebody waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.base._clock import WALL
from headway.resource import CONTROLLER_RECORD, Kind
from headway.why import Absences, _absent
from tests.helpers.why_programs import broken_app
from tests.why.test_workers import ATTEND, attend, channel_to, types_only

TEAMS = "staff/teams"
TEAM = broken_app()[1]


class Staged:
    """Absences of a host whose clock and stored kinds a test chooses."""

    def __init__(self, engine: headway.Engine, *, shared: bool = False) -> None:
        self.engine = engine
        self.host = engine._asked()
        self.kinds: set[Kind] = set()
        self.wall = 1_000_000.0
        self.shared = shared
        self.restart()

    def restart(self) -> None:
        """Begin as a server does that knows only the records."""

        async def kinds() -> set[Kind]:
            return self.kinds

        self.host._gone.clear()
        self.absences = Absences(self.host, self.engine.client, self.engine._registry, kinds, shared=self.shared)

    async def found(self, after: float) -> list[str]:
        """Return what is absent after so many more seconds."""
        self.wall += after
        await self.absences._look()
        return [each.controller for each in self.host.absent]


@asynccontextmanager
async def staged(*, shared: bool = False) -> AsyncIterator[Staged]:
    stage: list[Staged] = []
    clock: Callable[[], float] = lambda: stage[0].wall if stage else 1_000_000.0  # noqa: E731
    token = WALL.set(clock)
    try:
        async with headway.open_engine("memory:", types_only()) as engine:
            stage.append(Staged(engine, shared=shared))
            yield stage[0]
    finally:
        WALL.reset(token)


async def test_controller_is_wanted_for_a_day_and_as_long_as_its_type_has_resources(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    async with staged() as stage:
        async with channel_to(stage.host).stream(ATTEND, attend("web-1", TEAMS)) as questions:
            await anext(questions)
            assert await stage.found(0) == []
        # Workers that restart are back within the grace.
        assert await stage.found(_absent.GRACE / 2) == []
        assert await stage.found(_absent.GRACE) == [TEAMS]
        assert await stage.found(_absent.DAY) == []
        stage.kinds.add(TEAM.kind)
        assert await stage.found(0) == [TEAMS]


async def test_restart_of_the_server_does_not_begin_another_day(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    """A controller that was removed from a program would be missed for a day after each restart."""
    async with staged() as stage:
        async with channel_to(stage.host).stream(ATTEND, attend("web-1", TEAMS)) as questions:
            await anext(questions)
            await stage.found(0)
        stage.wall += _absent.DAY
        stage.restart()
        assert await stage.found(60) == []
        stage.kinds.add(TEAM.kind)
        assert await stage.found(0) == [TEAMS]


async def test_absence_begins_when_the_last_process_has_stopped_running_the_controller(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    """A process keeps its name through an upgrade that renames its controller."""
    async with staged() as stage:
        for process in ("web-1", "web-2"):
            async with channel_to(stage.host).stream(ATTEND, attend(process, TEAMS)) as questions:
                await anext(questions)
                await stage.found(100)
        stopped = stage.wall
        async with channel_to(stage.host).stream(ATTEND, attend("web-2", "staff/groups")) as questions:
            await anext(questions)
            assert await stage.found(_absent.GRACE / 2) == []
            assert await stage.found(_absent.GRACE) == [TEAMS]
            [absent] = stage.host.absent
            assert (absent.process, absent.since) == ("web-2", stopped)


async def test_controller_whose_lease_is_held_runs_somewhere(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    """Its worker may be connected to another server of the store. A lease of another controller says nothing."""
    async with staged() as stage:
        async with channel_to(stage.host).stream(ATTEND, attend("web-1", TEAMS)) as questions:
            await anext(questions)
            await stage.found(0)
        leases = stage.engine.client.leases
        await leases.acquire(f"{TEAMS}-of-others", "web-2", ttl=3600)
        assert await stage.found(60) == [TEAMS]
        await leases.acquire(f"{TEAMS}#3", "web-2", ttl=3600)
        assert await stage.found(1) == []


async def test_record_is_refreshed_rarely_and_another_server_believes_it(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    async with staged(shared=True) as stage:
        async with channel_to(stage.host).stream(ATTEND, attend("web-1", TEAMS)) as questions:
            await anext(questions)
            versions = set()
            for _ in range(20):
                await stage.found(_absent.REFRESH / 10)
                versions.add((await stage.engine.client.list(CONTROLLER_RECORD))[0].version)
            assert len(versions) == 2
        stage.host._left.clear()
        # Now it looks as if the worker attends at another server.
        assert await stage.found(_absent.REFRESH) == []
        assert await stage.found(_absent.REFRESH * 2) == [TEAMS]


async def test_number_of_records_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    """A caller chooses the names of its controllers."""
    monkeypatch.setattr(_absent, "MOST_RECORDS", 2)
    async with staged() as stage, AsyncExitStack() as stack:
        names = [f"staff/{number}" for number in range(5)]
        request = attend("web-1", *names)
        questions = await stack.enter_async_context(channel_to(stage.host).stream(ATTEND, request))
        await anext(questions)
        await stage.found(0)
        assert len(await stage.engine.client.list(CONTROLLER_RECORD)) == 2


async def test_server_without_workers_does_not_look(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
) -> None:
    looks: list[None] = []
    look = Absences._look

    async def counted(self: Absences) -> bool:
        looks.append(None)
        return await look(self)

    monkeypatch.setattr(Absences, "_look", counted)
    async with headway.open_engine("memory:", types_only()):
        await trio.sleep(1000)
    assert len(looks) == 1
