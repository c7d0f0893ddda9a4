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
from tests.run import test_stray_cancelled as places
from tests.run.test_stray_cancelled import Program


class Odd(BaseException):
    """An error that does not inherit from Exception."""


EXITS = [SystemExit, GeneratorExit, asyncio.CancelledError, Odd]
Exit = type[BaseException]


def _in_task(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 2)
            nursery.start_soon(program.fail_later)
        program.done.append(request.id.name)


async def run(program: Program) -> list[events.RunEnded]:
    """Write a team and an account, check that the team is reconciled in the end, and return the runs that failed."""
    staff, accounts = program.staff, list[str]()

    @staff.app.controller(manages=staff.account)
    async def others(_: headway.Runtime, request: headway.Request) -> None:
        accounts.append(request.id.name)

    async with staff.open() as engine:
        await trio.sleep(30)
        await staff.write_team("core")
        await engine.client.apply(staff.account.new("core", Account()))
        await trio.sleep(200)
        await staff.wait_idle()
        assert program.times == 0
        assert accounts == ["core"]
        assert "core" in program.done
    return [ended for ended in staff.events_of(events.RunEnded) if ended.error is not None]


async def check(program: Program) -> None:
    """Check that the controller of teams was run again each time, and that no other controller was."""
    ended = await run(program)
    assert [(each.controller, type(each.error)) for each in ended] == [("staff/teams", program.error)] * 2


Place = Callable[[Program], None]
PLACES: list[Place] = [
    places._in_reconcile,
    _in_task,
    places._in_mapper,
    places._in_predicate,
    places._in_source,
    places._in_initialiser,
    places._in_daemon,
    places._in_timer,
]


@pytest.mark.parametrize(
    ("place", "exit"), [*((each, SystemExit) for each in PLACES), *((PLACES[0], each) for each in EXITS[1:])]
)
async def test_c10_exit_restarts_its_controller_only(place: Place, exit: Exit, autojump_clock: MockClock) -> None:
    """Other controllers continue, nothing is lost, and the report has the same error object."""
    program = Program(exit)
    place(program)
    await check(program)


async def test_exit_of_a_reconcile_is_reported_with_its_key(autojump_clock: MockClock) -> None:
    """The end of the run alone would not show which of thousands of keys raised it."""
    program = Program(SystemExit)
    places._in_reconcile(program)
    await check(program)
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

    program.controller(initialiser=program.fail_later, on_stop=on_stop)
    await check(program)
    assert heard == [SystemExit, SystemExit, type(None)]


async def test_exit_of_a_callback_fails_that_callback_only(autojump_clock: MockClock) -> None:
    """The exit is reported like any other error of the callback."""
    program = Program(SystemExit)
    program.times = 1
    places._in_on_start(program)
    assert await run(program) == []
    [failed] = program.staff.events_of(events.CallbackFailed)
    assert type(failed.error) is SystemExit


@pytest.mark.parametrize("exit", [SystemExit, Odd])
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


@pytest.mark.parametrize(("name", "exit"), [("mutate", SystemExit), ("validate", Odd)])
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


@pytest.mark.parametrize("place", [places._in_reconcile, places._in_mapper, places._in_source, places._in_timer])
async def test_interrupt_ends_the_engine_wherever_it_is_raised(place: Place, autojump_clock: MockClock) -> None:
    """Python raises it in whatever code runs when a user presses Ctrl-C."""
    program = Program(KeyboardInterrupt)
    place(program)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # a group, or what is in it
        await run(program)
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
