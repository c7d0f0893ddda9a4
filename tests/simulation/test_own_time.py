"""Programs that write later by their own clock: the quiet time begins when they have nothing left to wait for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
import trio

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Plan, Setting


@headway.message(name="later.Job")
class Job:
    text: str = field(1)
    rounds: int = field(2)


Make = Callable[[simulation.Process], headway.App]


def program(how: str, seconds: float) -> Make:
    """Count each job's rounds: once after some seconds, three times, or for ever."""
    most = {"once": 1, "three times": 3, "for ever": 1_000_000}[how.partition(", ")[0]]

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("later")
        job = app.type("later", "v1", "Job", Job)

        async def count(rt: headway.Runtime, name: str) -> bool:
            found = await rt.client.read(job, name)
            if found.data.rounds < most:
                found.data.rounds += 1
                await rt.client.write(found)
            return found.data.rounds < most

        if how.endswith("daemon"):

            @app.daemon(job)
            async def counting(rt: headway.Runtime, found: headway.Resource[Job]) -> None:
                going_on = found.data.rounds < most
                while going_on:
                    await trio.sleep(seconds)
                    going_on = await count(rt, found.name)

        else:

            @app.controller(manages=job)
            async def counted(rt: headway.Runtime, request: headway.Request[Job]) -> headway.RequeueAfter | None:
                found = rt.resource(request)
                if found is None or found.data.rounds >= most:
                    return None
                if any(reason.what == "requeue" for reason in request.reasons):
                    await count(rt, request.id.name)
                return headway.requeue_after(seconds)

        return app

    return make


async def one_job(world: simulation.World) -> None:
    await world.client.apply(world.type("Job").new("a", Job(text="x")))
    await world.wait_idle()


@pytest.mark.parametrize("how", [pytest.param("once, daemon", marks=pytest.mark.wide), "three times, daemon"])
def test_program_that_writes_later_by_its_own_clock_is_not_accused(how: str) -> None:
    simulation.explore(program(how, 60.0), one_job, plan="none")


@pytest.mark.parametrize("seconds", [20.0, pytest.param(100.0, marks=pytest.mark.wide)])
def test_endless_writer_is_accused(seconds: float) -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program("for ever, daemon", seconds), one_job, plan="none")
    assert caught.value.findings[0].oracle == "quiet"


def test_wait_that_is_too_long_is_left_out() -> None:
    result = simulation.run(Setting(app=program("once, daemon", 86_400.0), scenario=one_job, quiet=120.0), Plan())
    assert result.waits == 0.0
    assert not result.findings


@headway.message(name="beats.Host")
class Host:
    seen: float = field(1)


@headway.message(name="beats.Session")
class Session:
    ends: float = field(1)


def _heartbeats(*, again: bool = False) -> Make:
    """Note every ten seconds that a host is alive, and delete a session when its time is over.

    If ``again``, a wrong host begins a session of its own in each life of its process.
    """

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("beats")
        host, session = app.type("beats", "v1", "Host", Host), app.type("beats", "v1", "Session", Session)
        lives: list[str] = []

        @app.controller(manages=host)
        async def beat(rt: headway.Runtime, request: headway.Request[Host]) -> headway.RequeueAfter | None:
            found = rt.resource(request)
            if found is None:
                return None
            if again and not lives:
                lives.append(f"life-{rt.term}")
                await rt.client.apply(session.new(lives[0], Session(ends=1e12)))
            left = found.data.seen + 10 - time.time()
            if left <= 0:
                found.data.seen, left = time.time(), 10.0
                await rt.client.write(found)
            return headway.requeue_after(left)

        @app.controller(manages=session)
        async def expire(rt: headway.Runtime, request: headway.Request[Session]) -> headway.RequeueAfter | None:
            found = rt.resource(request)
            if found is None:
                return None
            left = found.data.ends - time.time()
            if left > 0:
                return headway.requeue_after(left)
            await rt.client.delete(found, version=found.version)
            return None

        return app

    return make


def _session_of(seconds: float) -> Callable[[simulation.World], Awaitable[None]]:
    async def session(world: simulation.World) -> None:
        await world.client.apply(world.type("Host").new("x", Host(seen=time.time())))
        await world.client.apply(world.type("Session").new("a", Session(ends=time.time() + seconds)))
        await world.sleep(45)

    return session


@pytest.mark.parametrize(
    ("seconds", "plan"),
    [
        (46, "none"),
        (47, "wall_jump(4, 1.0)"),
        (300, "wall_jump(4, 3600.0)"),
        (300, "clock_jump(1, 600.0)"),
    ],
)
@pytest.mark.wide
def test_heartbeats_with_sessions_that_expire_are_not_accused(seconds: float, plan: str) -> None:
    """A session ends in the very moment of the restart, or only under the fault. It does so by the clock."""
    simulation.explore(_heartbeats(), _session_of(seconds), quiet=None, plan=plan)
