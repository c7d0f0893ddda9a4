"""A `trio.Cancelled` that a program's function keeps and raises again. It counts as a failure of that function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import StrayCancelled
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


async def _kept() -> trio.Cancelled:
    """Return the Cancelled of a scope that has ended."""
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept.append(error)
    return kept[0]


class Program:
    """An app whose controller of teams raises twice, at a chosen place.

    Attributes:
        done: the teams that were reconciled to the end.
    """

    def __init__(self, error: BaseException | type[BaseException]) -> None:
        self.staff = Staff()
        self.error = error
        self.times = 2
        self.done: list[str] = []

    def fail(self, *_: object) -> Any:
        if self.times:
            self.times -= 1
            raise self.error

    async def fail_later(self, *_: object) -> None:
        await trio.sleep(1)
        self.fail()

    def controller(self, **options: Any) -> None:
        @self.staff.app.controller(manages=self.staff.team, **options)
        async def teams(_: headway.Runtime, request: headway.Request) -> None:
            self.done.append(request.id.name)


def _in_reconcile(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        program.fail()
        program.done.append(request.id.name)


def _beside_an_error(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        try:
            program.fail()
        except trio.Cancelled as error:
            raise BaseExceptionGroup("both", [error, ValueError("beside")]) from None
        program.done.append(request.id.name)


def _in_mapper(program: Program) -> None:
    def mapper(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        program.fail()
        return [program.staff.team.id(account.name)]

    program.controller(watches=[headway.watch(program.staff.account, mapper)])


def _in_predicate(program: Program) -> None:
    program.controller(when=lambda _, __: program.fail() is None)


def _in_daemon(program: Program) -> None:
    @program.staff.app.daemon(program.staff.team)
    async def teams(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        await program.fail_later()
        program.done.append(team.name)


def _in_timer(program: Program) -> None:
    @program.staff.app.timer(program.staff.team, every=1000)
    async def teams(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        await program.fail_later()
        program.done.append(team.name)


def _in_initialiser(program: Program) -> None:
    program.controller(initialiser=program.fail_later)


def _in_source(program: Program) -> None:
    program.controller(sources={"clock": program.fail_later})


def _in_every(program: Program) -> None:
    program.controller(sources={"clock": headway.sources.every(5, program.fail)})


def _in_on_start(program: Program) -> None:
    program.controller(on_start=program.fail)


PLACES: list[tuple[Callable[[Program], None], type[object], type[BaseException]]] = [
    (_in_reconcile, events.Reconciled, StrayCancelled),
    (_beside_an_error, events.Reconciled, ValueError),
    (_in_mapper, events.MappingFailed, StrayCancelled),
    (_in_predicate, events.MappingFailed, StrayCancelled),
    (_in_daemon, events.DaemonEnded, StrayCancelled),
    (_in_timer, events.Reconciled, StrayCancelled),
    (_in_initialiser, events.RunEnded, StrayCancelled),
    (_in_source, events.RunEnded, StrayCancelled),
    (_in_every, events.SourceFailed, StrayCancelled),
    (_in_on_start, events.CallbackFailed, StrayCancelled),
]


@pytest.mark.parametrize(("place", "kind", "expected"), PLACES)
async def test_kept_cancelled_is_reported_as_a_failure_of_its_function(
    place: Callable[[Program], None], kind: type[object], expected: type[BaseException], autojump_clock: MockClock
) -> None:
    """Each event names the controller, and no other kind of event reports the failure."""
    program = Program(await _kept())
    place(program)
    staff = program.staff
    async with staff.open() as engine:
        await trio.sleep(1)
        await staff.write_team("core")
        await engine.client.apply(staff.account.new("core", Account()))
        await trio.sleep(60)
        assert "core" in program.done
        restarts = engine.controllers["teams"].status().restarts
    heard: list[Any] = list(staff.events)
    failures = [each for each in heard if getattr(each, "error", None) is not None]
    assert {type(each) for each in failures} == {kind}
    assert {type(each.error) for each in failures} == {expected}
    assert {each.controller for each in failures} == {"staff/teams"}
    assert program.times == 0 or kind is events.CallbackFailed
    assert restarts == (2 if kind is events.RunEnded else 0)


async def test_reconcile_that_raises_a_kept_cancelled_is_retried(autojump_clock: MockClock) -> None:
    """The report has the key and the time of the next attempt, and the Cancelled as the cause."""
    program = Program(await _kept())
    _in_reconcile(program)
    async with program.staff.open():
        await program.staff.write_team("core")
        await program.staff.wait_idle()
    failed = [each for each in program.staff.events_of(events.Reconciled) if each.error is not None]
    assert [(each.id.name, each.outcome, each.attempt) for each in failed] == [
        ("core", "failed", 1),
        ("core", "failed", 2),
    ]
    assert all(each.retry_after and each.error and each.error.__cause__ is program.error for each in failed)


async def test_report_that_raises_a_kept_cancelled_loses_only_that_event(
    autojump_clock: MockClock, failed_reports: list[BaseException]
) -> None:
    """A report does not wait, so Trio cannot have canceled it."""
    kept, staff = await _kept(), Staff()

    def report(event: object) -> None:
        if isinstance(event, events.Reconciled):
            raise kept

    done: list[str] = []

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> None:
        done.append(request.id.name)

    async with headway.open_engine("memory:", staff.app, report=report) as engine:
        await engine.client.write(staff.team.new("core", Team()))
        await engine.wait_idle()
        assert engine.controllers["teams"].status().restarts == 0
    assert done == ["core"]
    assert failed_reports == [kept]
    failed_reports.clear()
