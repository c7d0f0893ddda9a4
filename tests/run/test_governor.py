"""The governor of a controller's writes, in virtual time: a controller that writes too often waits, and says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Reconciled, RunEnded, WritesHeld, ignore
from headway.run import Governor
from headway.why import sentences
from tests.helpers.plain_types import Team


class Program:
    """An app with a controller that writes as often as the test says, in each reconcile, and what it reports."""

    def __init__(self, limit: headway.WriteLimit | None, writes: int, clock: MockClock, **options: Any) -> None:
        self.app = headway.App("staff")
        self.team = self.app.type("staff", "v1", "Team", Team)
        self.clock = clock
        self.times: list[float] = []
        self.events: list[object] = []
        self.began = 0.0
        self.fails = 0

        @self.app.controller(
            manages=self.team, write_limit=limit, name="writer", when=lambda old, _: old is None, **options
        )
        async def writer(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            for number in range(writes):
                if self.fails:
                    self.fails -= 1
                    raise RuntimeError("on purpose")
                # Each status differs, so that each is a commit.
                condition = headway.Condition(type="Written", state=headway.ConditionState.TRUE, reason=f"N{number}")
                team = await rt.client.read(self.team, request.id)
                await rt.client.write_status(team, "writer", [condition])
                self.times.append(clock.current_time() - self.began)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_engine("memory:", self.app, report=self.events.append) as engine:
            self.engine = engine
            await engine.wait_idle()
            self.began = self.clock.current_time()
            yield engine

    def status(self) -> Any:
        (status,) = [each for each in self.engine.status() if each.name == "staff/writer"]
        return status

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]


async def test_n7_runaway_controller_stays_within_its_rate(autojump_clock: MockClock) -> None:
    """Its writes wait in the order of their calls, none fails, and other writers do not wait."""
    program = Program(headway.WriteLimit(2, burst=5), 20, autojump_clock, concurrency=3)
    async with program.running() as engine:
        for number in range(3):
            await engine.client.write(program.team.new(f"team-{number}"))
        await engine.wait_idle()
        assert len(program.times) == 60
        for index, at in enumerate(program.times):
            assert at == pytest.approx(max(index - 4, 0) / 2)
        assert {each.outcome for each in program.of(Reconciled)} == {"done"}
        before = autojump_clock.current_time()
        await engine.client.write(program.team.new("other"))
        assert autojump_clock.current_time() == before


async def test_waiting_for_a_turn_does_not_count_towards_the_deadline(autojump_clock: MockClock) -> None:
    """Otherwise a controller that keeps to its rate would fail for that. Its own time counts as before."""
    program = Program(headway.WriteLimit(0.1, burst=1), 5, autojump_clock, deadline=5.0)
    async with program.running() as engine:
        await engine.client.write(program.team.new("core"))
        await engine.wait_idle()
        assert program.times == pytest.approx([0, 10, 20, 30, 40])
        (done,) = program.of(Reconciled)
        assert (done.outcome, done.timed_out, done.seconds) == ("done", False, pytest.approx(40))


async def test_deadline_after_a_wait_is_that_of_the_reconcile(autojump_clock: MockClock) -> None:
    """The wait takes nothing from the rest of it. The next reconcile has its full deadline."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    ended: list[tuple[str, float]] = []
    events: list[Reconciled] = []

    @app.controller(
        manages=team,
        write_limit=headway.WriteLimit(0.1, burst=1),
        deadline=5.0,
        when=lambda old, _: old is None,
        backoff=headway.Backoff(1000.0, 1000.0),
    )
    async def slow(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        if request.id.name == "waits":
            await trio.sleep(2.0)
            async with trio.open_nursery() as nursery:
                # Several tasks of a reconcile wait at once.
                nursery.start_soon(rt.client.write, team.new("a-by-it"))
                nursery.start_soon(rt.client.write, team.new("b-by-it"))
        elif request.id.name.endswith("by-it"):
            return
        try:
            await trio.sleep(60)
        finally:
            ended.append((request.id.name, trio.current_time()))

    def report(event: object) -> None:
        if isinstance(event, Reconciled):
            events.append(event)

    async with headway.open_engine("memory:", app, report=report) as engine:
        began = trio.current_time()
        await engine.client.write(team.new("waits"))
        await trio.sleep(30)
        await engine.client.write(team.new("zz-sleeps"))
        await trio.sleep(10)
    first = {name: at - began for name, at in reversed(ended)}
    # It slept for 2 s, waited for 10, and had 3 left.
    assert first["waits"] == pytest.approx(15.0)
    assert any(name == "zz-sleeps" and at - began == pytest.approx(35.0) for name, at in ended)
    assert [each for each in events if each.timed_out]


async def test_controller_that_holds_writes_back_says_so(autojump_clock: MockClock) -> None:
    """In its status, its event, the metrics, and in why, for as long as a write waits."""
    program = Program(headway.WriteLimit(0.5, burst=1), 4, autojump_clock)
    text = "holds back 1 write, because its write_limit is 0.5 a second with a burst of 1"
    async with program.running() as engine:
        await engine.client.write(program.team.new("core"))
        await trio.sleep(1.0)
        status = program.status()
        assert (status.governed.waiting, status.governed.seconds, status.governed.held) == (1, 1.0, 1)
        assert status.notice == status.writes_held == text
        assert status.brief_notice == "holds back writes, because of its write_limit"
        assert not status.problem, "it is well, and ready"
        why = await engine.why(program.team.id("core"))
        assert f"It {text}." in " ".join(sentences(why))
        await engine.wait_idle()
        governed = program.status().governed
        assert (governed.waiting, governed.seconds, governed.held, governed.held_seconds) == (0, 0.0, 3, 6.0)
        assert program.status().notice == ""
        assert text not in " ".join(sentences(await engine.why(program.team.id("core"))))
    (held,) = program.of(WritesHeld)
    assert (held.controller, held.waiting) == ("staff/writer", 1)


async def test_failing_run_gets_no_further_burst(autojump_clock: MockClock) -> None:
    """The governor belongs to the process: runs that end and begin again share its bucket."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    times: list[float] = []
    began = trio.current_time()

    async def initialise(rt: headway.Runtime) -> None:
        await rt.client.write(team.new(f"run-{len(times)}"))
        times.append(trio.current_time() - began)
        if len(times) < 4:
            raise RuntimeError("on purpose")

    @app.controller(manages=team, initialiser=initialise, write_limit=headway.WriteLimit(0.01, burst=2))
    async def idle(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        pass

    ends: list[object] = []

    def report(event: object) -> None:
        if isinstance(event, RunEnded) and event.error is not None:
            ends.append(event)

    async with headway.open_engine("memory:", app, report=report) as engine:
        await engine.wait_idle()
    assert len(ends) == 3
    assert times[1] < 5
    assert times[2] == pytest.approx(100, abs=1)
    assert times[3] == pytest.approx(200, abs=1)
    # The run that has written becomes idle in the same moment.
    assert autojump_clock.current_time() == pytest.approx(200, abs=1)


async def test_canceled_wait_takes_nothing_from_the_others(autojump_clock: MockClock) -> None:
    governor = Governor("writer", headway.WriteLimit(1, burst=1), ignore)
    await governor.wait()
    began = autojump_clock.current_time()
    async with trio.open_nursery() as nursery:
        ended: list[float] = []

        async def one() -> None:
            await governor.wait()
            ended.append(trio.current_time() - began)

        with trio.move_on_after(0.5) as scope:
            await governor.wait()
        assert scope.cancelled_caught
        for _ in range(3):
            nursery.start_soon(one)
    assert ended == pytest.approx([1, 2, 3])
    assert governor.status().waiting == 0


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (
            lambda: headway.WriteLimit(0),
            "per_second must be a number of writes from 0.0001 to 1000000, such as 10 or 0.5, not 0",
        ),
        (
            lambda: headway.WriteLimit(float("nan")),
            "per_second must be a number of writes from 0.0001 to 1000000, such as 10 or 0.5, not nan",
        ),
        (lambda: headway.WriteLimit("10"), "such as 10 or 0.5, not '10'"),  # type: ignore[arg-type]
        (lambda: headway.WriteLimit(True), "such as 10 or 0.5, not True"),
        (
            lambda: headway.WriteLimit(10, burst=0),
            "burst must be a whole number of writes from 1 to 1000000, such as burst=10, not 0",
        ),
        (lambda: headway.WriteLimit(10, burst=1.5), "burst must be a whole number of writes from 1"),  # type: ignore[arg-type]
    ],
)
def test_bad_limit_is_refused_with_its_field_and_what_is_right(made: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made()
    assert problem in str(refused.value)


def test_limit_of_another_kind_is_refused_when_it_is_declared() -> None:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    with pytest.raises(
        DeclarationError, match=r"write_limit must be a WriteLimit, such as headway\.WriteLimit\(10, burst=50\), not 5"
    ):

        @app.controller(manages=team, write_limit=5)  # type: ignore[call-overload, untyped-decorator]
        async def writer(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            pass


async def test_write_that_outlives_its_reconcile_takes_no_deadline_from_the_next_one(autojump_clock: MockClock) -> None:
    """A reconcile may start a write in a nursery of the program. It waits while the worker goes on to another key."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    timed_out: list[tuple[str, float]] = []

    def report(event: object) -> None:
        if isinstance(event, Reconciled) and event.timed_out:
            timed_out.append((event.id.name, event.seconds))

    async with trio.open_nursery() as program:

        @app.controller(
            manages=team,
            write_limit=headway.WriteLimit(0.001, burst=1),
            deadline=5.0,
            when=lambda old, _: old is None,
            backoff=headway.Backoff(1000.0, 1000.0),
        )
        async def writer(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            if request.id.name == "a-writes":
                await rt.client.write(team.new("c-by-it"))
                program.start_soon(rt.client.write, team.new("d-by-it"))
            elif request.id.name == "b-sleeps":
                await trio.sleep(60)

        async with headway.open_engine("memory:", app, report=report) as engine:
            for name in ("a-writes", "b-sleeps"):
                await engine.client.write(team.new(name))
            await trio.sleep(30)
            program.cancel_scope.cancel()
    ((name, seconds),) = timed_out
    assert (name, round(seconds, 6)) == ("b-sleeps", 5.0)
