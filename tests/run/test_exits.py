"""`sys.exit()` and similar exits in a user's function. They end the run of one controller, and never the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


class Odd(BaseException):
    """An error that does not inherit from Exception."""


EXITS = [SystemExit, GeneratorExit, asyncio.CancelledError, Odd]
Exit = type[BaseException]


class Program:
    """An app with a controller of teams that exits on request, and a controller of accounts that doesn't.

    Attributes:
        times: how often it exits.
        accounts, teams: what was reconciled to the end.
    """

    def __init__(self, exit: Exit, times: int = 2) -> None:
        self.staff = Staff()
        self.exit = exit
        self.times = times
        self.accounts: list[str] = []
        self.teams: list[str] = []

        @self.staff.app.controller(manages=self.staff.account)
        async def accounts(_: headway.Runtime, request: headway.Request) -> None:
            self.accounts.append(request.id.name)

    def leave(self, *_: object) -> Any:
        """Raise the exit as often as requested."""
        if self.times:
            self.times -= 1
            raise self.exit

    async def leave_async(self, *_: object) -> None:
        self.leave()

    def controller(self, **options: Any) -> None:
        @self.staff.app.controller(manages=self.staff.team, **options)
        async def teams(_: headway.Runtime, request: headway.Request) -> None:
            self.teams.append(request.id.name)

    async def run(self) -> list[events.RunEnded]:
        """Write a team and an account, check that both are reconciled in the end, and return the runs that failed."""
        async with self.staff.open() as engine:
            await trio.sleep(30)
            await self.staff.write_team("core")
            await engine.client.apply(self.staff.account.new("ada", Account()))
            await trio.sleep(200)
            await self.staff.wait_idle()
            assert self.times == 0
            assert "ada" in self.accounts
            assert "core" in self.teams
        return [ended for ended in self.staff.events_of(events.RunEnded) if ended.error is not None]

    async def check(self) -> None:
        """Check that the controller of teams was run again each time, and that no other controller was."""
        ended = await self.run()
        assert [(each.controller, type(each.error)) for each in ended] == [("staff/teams", self.exit)] * 2


def _in_reconcile(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        program.leave()
        program.teams.append(request.id.name)


def _in_task(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(program.leave_async)
        program.teams.append(request.id.name)


def _in_mapper(program: Program) -> None:
    def mapper(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        program.leave()
        return [program.staff.team.id(account.name)]

    program.controller(watches=[headway.watch(program.staff.account, mapper)])


def _in_predicate(program: Program) -> None:
    def when(_: object, __: object) -> bool:
        program.leave()
        return True

    program.controller(when=when)


def _in_source(program: Program) -> None:
    program.controller(sources={"clock": lambda_async(program)})


def lambda_async(program: Program) -> Callable[..., Any]:
    async def source(_: headway.Runtime, __: headway.sources.Enqueue) -> None:
        await trio.sleep(5)
        program.leave()

    return source


def _in_initialiser(program: Program) -> None:
    program.controller(initialiser=program.leave_async)


def _in_daemon(program: Program) -> None:
    @program.staff.app.daemon(program.staff.team)
    async def teams(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        program.leave()
        program.teams.append(team.name)


def _in_timer(program: Program) -> None:
    @program.staff.app.timer(program.staff.team, every=1000)
    async def teams(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        program.leave()
        program.teams.append(team.name)


PLACES = [
    _in_reconcile,
    _in_task,
    _in_mapper,
    _in_predicate,
    _in_source,
    _in_initialiser,
    _in_daemon,
    _in_timer,
]


@pytest.mark.parametrize(
    "exit", [EXITS[0], *(pytest.param(each, marks=pytest.mark.wide) for each in EXITS[1:-1]), EXITS[-1]]
)
@pytest.mark.parametrize("place", PLACES)
async def test_c10_exit_restarts_its_controller_only(
    place: Callable[[Program], None], exit: Exit, autojump_clock: MockClock
) -> None:
    """Other controllers continue, nothing is lost, and the report has the same error object."""
    program = Program(exit)
    place(program)
    await program.check()


async def test_exit_of_a_reconcile_is_reported_with_its_key(autojump_clock: MockClock) -> None:
    """The end of the run alone would not show which of thousands of keys raised it."""
    program = Program(SystemExit)
    _in_reconcile(program)
    await program.check()
    failed = [each for each in program.staff.events_of(events.Reconciled) if each.outcome == "failed"]
    assert [(each.id.name, type(each.error)) for each in failed] == [("core", SystemExit)] * 2


async def test_keys_are_reconciled_although_another_key_always_exits(autojump_clock: MockClock) -> None:
    """The key that exits comes last in the next run, so that each run gets further than the previous one."""
    staff, done = Staff(), set()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "a-bad":
            raise SystemExit(1)
        done.add(request.id.name)

    async with staff.open():
        for name in ("a-bad", "b", "c", "d"):
            await staff.write_team(name)
        await trio.sleep(60)
    assert done == {"b", "c", "d"}


async def test_on_stop_gets_the_exit_that_ended_its_run(autojump_clock: MockClock) -> None:
    """`on_stop` gets the error as it was raised."""
    program, heard = Program(SystemExit), []

    def on_stop(_: headway.Runtime, error: BaseException | None) -> None:
        heard.append(type(error))

    program.controller(initialiser=program.leave_async, on_stop=on_stop)
    await program.check()
    assert heard == [SystemExit, SystemExit, type(None)]


@pytest.mark.parametrize("exit", EXITS)
async def test_exit_of_a_callback_fails_that_callback_only(exit: Exit, autojump_clock: MockClock) -> None:
    """The exit is reported like any other error of the callback."""
    program = Program(exit, times=1)
    program.controller(on_start=program.leave)
    assert await program.run() == []
    [failed] = program.staff.events_of(events.CallbackFailed)
    assert type(failed.error) is exit


@pytest.mark.parametrize("exit", EXITS)
async def test_exit_of_an_index_function_or_projection_drops_that_resource_only(
    exit: Exit, autojump_clock: MockClock
) -> None:
    """These functions run for every controller that reads the type, in a task of the engine."""
    staff, done = Staff(), []
    names = headway.projection(staff.account, Account, lambda _: _exit(exit))
    by_name = headway.indexes.by(staff.team, "name", lambda _: _exit(exit))

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(names, headway.mappers.owner())], indexes=[by_name]
    )
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        done.append(request.id.name)

    async with staff.open() as engine:
        await staff.write_team("core")
        await engine.client.apply(staff.account.new("ada", Account()))
        await staff.wait_idle()
    assert "core" in done
    assert {type(each.error) for each in staff.events_of(events.IndexFailed)} == {exit}
    assert {type(each.error) for each in staff.events_of(events.ProjectionFailed)} == {exit}
    assert not [ended for ended in staff.events_of(events.RunEnded) if ended.error is not None]


def _exit(exit: Exit) -> Any:
    raise exit


@pytest.mark.parametrize("exit", EXITS)
@pytest.mark.parametrize("name", ["mutate", "validate"])
async def test_exit_of_a_hook_fails_that_write_only(name: str, exit: Exit, autojump_clock: MockClock) -> None:
    """The caller's error says that the hook failed."""
    app, heard = headway.App("staff"), list[object]()

    def hook(_: headway.Resource[Team]) -> None:
        _exit(exit)

    hooks = headway.Hooks(mutate=hook) if name == "mutate" else headway.Hooks(validate=hook)
    team = app.type("staff", "v1", "Team", Team, hooks=hooks)
    async with headway.open_engine("memory:", app, report=heard.append) as engine:
        with pytest.raises(headway.errors.Unavailable, match="hook of"):
            await engine.client.write(team.new("core"))
        assert await engine.client.list(team) == []
    [failed] = [each for each in heard if isinstance(each, events.HandlerFailed)]
    assert type(failed.error) is exit


@pytest.mark.parametrize("place", PLACES)
async def test_interrupt_ends_the_engine_wherever_it_is_raised(
    place: Callable[[Program], None], autojump_clock: MockClock
) -> None:
    """Python raises it in whatever code runs when a user presses Ctrl-C."""
    program = Program(KeyboardInterrupt)
    place(program)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # a group, or what is in it
        await program.run()
    assert _leaves(caught.value) == {KeyboardInterrupt}


def _leaves(error: BaseException) -> set[type[BaseException]]:
    if isinstance(error, BaseExceptionGroup):
        return {leaf for each in error.exceptions for leaf in _leaves(each)}
    return {type(error)}


async def test_interrupt_in_an_index_function_ends_the_engine(autojump_clock: MockClock) -> None:
    """The interrupt is not treated as a failure of the function."""
    staff = Staff()
    by_name = headway.indexes.by(staff.team, "name", lambda _: _exit(KeyboardInterrupt))

    @staff.app.controller(manages=staff.team, indexes=[by_name])
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    with pytest.raises(BaseException) as caught:  # noqa: PT011, PT012  # a group, or what is in it
        async with staff.open():
            with contextlib.suppress(headway.HeadwayError):
                await staff.write_team("core")
            await trio.sleep(100)
    assert _leaves(caught.value) == {KeyboardInterrupt}
