"""Events in a simulation: a line of the story each, and nothing that a fault strikes or a check compares."""

from __future__ import annotations

import pytest

import headway
import tests.helpers.corpus.order  # noqa: F401  # declares the cases
from headway.testing import simulation
from headway.testing.simulation import Committed, Setting, run
from tests.helpers.corpus.staff import Account, Staff, Team, members_change, owned


def program(*, records: bool) -> simulation.MakeApp:
    """Return a correct program. It records how often it was called, which differs from run to run."""

    def make(process: simulation.Process) -> headway.App:
        app, calls = headway.App("staff"), 0
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=owned(Staff(process.outside, process.name, app, team, account)))
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            nonlocal calls
            found = rt.resource(request)
            if found is None:
                return
            calls += 1
            if records:
                rt.event(found, "Called", f"for the {calls}th time", warning=True)
            async with rt.outputs(account, owner=found) as wanted:
                for login in found.data.members:
                    await wanted.apply(login, Account(login=login))
            if records:
                rt.event(found, "Deployed", "its accounts are there")

        return app

    return make


def _seen(plan: str, *, records: bool) -> tuple[list[str], list[str], list[str]]:
    """Return the steps of a run, its commits, and the lines of its events."""
    result = run(
        Setting(app=program(records=records), scenario=members_change, quiet=None), simulation.Plan.parse(plan)
    )
    assert result.findings == ()
    lines = [str(each) for each in result.trace.entries]
    commits = [str(each) for each in result.trace.entries if isinstance(each, Committed)]
    return [str(each) for each in result.trace.steps], commits, [each for each in lines if "accounts records" in each]


@pytest.mark.parametrize("plan", ["none", "crash_after(1)", "answer_lost(1)", "conflict(2)"])
def test_event_is_no_step_and_no_commit(plan: str) -> None:
    """With its events, a program does exactly what it does without them, whatever strikes it."""
    steps, commits, told = _seen(plan, records=True)
    assert (steps, commits, []) == _seen(plan, records=False)
    assert "accounts records, a warning: Team core: Called: for the 1th time" in told[0]
    assert any("accounts records: Team core: Deployed: its accounts are there" in each for each in told)


@pytest.mark.wide
def test_correct_program_is_not_refuted_by_its_events() -> None:
    """Its counts differ from run to run, and no comparison of end states sees them."""
    simulation.explore(program(records=True), members_change)
