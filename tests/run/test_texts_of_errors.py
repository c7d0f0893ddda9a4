"""Exceptions of a program whose text cannot be computed, or that Python's ``traceback`` cannot format.

They are handled like any other exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

import headway
from headway.base import all_frames, error_text, own_frames, repr_text
from headway.observe import log_report, reports
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff
from tests.run import test_stray_cancelled as places
from tests.run.test_stray_cancelled import Program


class NoText(ValueError):
    """An exception whose `str` raises, as an exception of a client library does if it has no response."""

    def __str__(self) -> str:
        return str(self.answer.text)  # type: ignore[attr-defined]


class NoRepr(ValueError):
    """An exception whose repr raises as well."""

    def __repr__(self) -> str:
        raise LookupError("no repr")

    __str__ = __repr__


class OddSyntax(SyntaxError):
    """An exception whose place in a text has the wrong types, as a parser may give them. Before 3.13.2, Python's
    ``traceback`` computes with them.
    """

    def __init__(self) -> None:
        place: Any = ("page.html", 3, "7", "{{ title }")
        super().__init__("bad template", place)


class NoTruth(ValueError):
    """An exception that cannot be compared with false, as one that is also an array."""

    def __bool__(self) -> bool:
        raise LookupError("neither true nor false")


class NoNotes(ValueError):
    """An exception whose notes cannot be read."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise LookupError("no notes")


ERRORS = [NoText, NoRepr]
UNFORMATTED = [OddSyntax, NoTruth, NoNotes]


def _in_conditions(program: Program) -> None:
    @program.staff.app.controller(manages=program.staff.team)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        team = rt.resource(request)
        assert team is not None
        async with rt.conditions(team, failure="Ready"):
            program.fail()
        program.done.append(request.id.name)


def _in_index(program: Program) -> None:
    program.controller(indexes=[headway.indexes.by(program.staff.team, "name", program.fail)])


def _in_projection(program: Program) -> None:
    def project(_: headway.Resource[Account]) -> Account:
        program.fail()
        return Account()

    names = headway.projection(program.staff.account, Account, project)
    program.controller(watches=[headway.watch(names, headway.mappers.owner())])


PLACES = [
    places._in_reconcile,
    _in_conditions,
    places._in_mapper,
    places._in_predicate,
    _in_index,
    _in_projection,
    places._in_on_start,
    places._in_initialiser,
    places._in_source,
    places._in_every,
    places._in_daemon,
]


@pytest.mark.parametrize("verbose", [False, pytest.param(True, marks=pytest.mark.wide)])
@pytest.mark.parametrize(
    ("place", "error"), [*((each, NoRepr) for each in PLACES), *((PLACES[0], each) for each in (NoText, *UNFORMATTED))]
)
async def test_error_without_a_text_is_logged_and_the_engine_continues(
    place: Callable[[Program], None], error: type[Exception], verbose: bool, autojump_clock: MockClock
) -> None:
    """The log has the class of the error."""
    program = Program(error)
    place(program)
    staff = program.staff
    ended = ""
    with structlog.testing.capture_logs() as lines:
        report = reports(staff.events.append, log_report(verbose=verbose))
        try:
            async with headway.open_engine("memory:", staff.app, report=report) as engine:
                await trio.sleep(1)
                for name in ("core", "edge"):
                    await engine.client.apply(staff.team.new(name))
                    await engine.client.apply(staff.account.new(name, Account()))
                await trio.sleep(60)
                assert engine.status()
        except (TypeError, LookupError) as left:
            # pytest cannot format what is behind it.
            ended = type(left).__name__
    assert not ended
    assert {"core", "edge"} <= set(program.done)
    told = [str(line["error"]) for line in lines if line.get("error")]
    assert told
    assert all(error.__name__ in each for each in told)
    assert all(("has no text" in each) == (error in ERRORS) for each in told)


@pytest.mark.parametrize("error", ERRORS)
async def test_write_is_rejected_by_a_hook_whose_error_has_no_text(error: type[Exception]) -> None:
    """The caller's error has the class, and the engine continues."""

    def refuse(_: object) -> NoReturn:
        raise error

    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team, hooks=headway.Hooks(validate=refuse))
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(headway.errors.InvalidArgument, match="has no text"):
            await engine.client.write(team.new("core"))
        assert await engine.client.list(team) == []


class Odd:
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise LookupError("no repr")


async def test_reconcile_fails_if_it_returns_a_value_without_a_repr(autojump_clock: MockClock) -> None:
    """The key is retried, and no run ends."""
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, request: headway.Request) -> Any:
        return Odd() if request.attempt == 1 else None

    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        assert engine.controllers["teams"].status().restarts == 0
    assert "teams returned a Odd, whose __repr__ raised LookupError" in staff.errors()[0]


def test_interrupt_while_a_text_is_computed_is_raised_again() -> None:
    """Python raises KeyboardInterrupt in whatever code is running."""

    class Interrupted(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

        __repr__ = __str__

    with pytest.raises(KeyboardInterrupt):
        error_text(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        repr_text(Interrupted())


@pytest.mark.parametrize("error", UNFORMATTED)
def test_error_that_python_cannot_format_is_shown_by_its_class(error: type[Exception]) -> None:
    """Also as the cause of another one."""
    texts: list[str] = []
    failed = False
    try:
        try:
            raise error
        except error as cause:
            raise KeyError("later") from cause
    except KeyError as later:
        try:
            texts = [own_frames(later), all_frames(later)]
        except (TypeError, LookupError):
            # pytest cannot format it either: it would end with an internal error.
            failed = True
    assert not failed
    assert all(error.__name__ in text and "KeyError: 'later'" in text for text in texts)
