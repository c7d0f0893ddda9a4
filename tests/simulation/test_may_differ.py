"""Declarations of what may differ, and of the faults to leave out."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headway
from headway.testing import simulation
from headway.testing.simulation import ExploreSettings, faults
from tests.helpers.corpus.staff import one_team
from tests.simulation.test_races import Mail, leaves_the_old_account, program, two_notes


def explore(declared: str, **settings: Any) -> simulation.Explored:
    given = {"plan": "spaced(2.0)", "outside": Mail, **settings}
    return simulation.explore(program(leaves_the_old_account), two_notes, may_differ=[declared], **given)


@pytest.mark.parametrize("declared", ["Account for-x", pytest.param("Account", marks=pytest.mark.wide)])
def test_declared_resource_may_differ(declared: str) -> None:
    assert explore(declared).complete


@pytest.mark.parametrize(
    "declared",
    [
        "outside",
        *(
            pytest.param(each, marks=pytest.mark.wide)
            for each in ("Account.login", "names(Account)", "order(Account.login)")
        ),
    ],
)
def test_declaration_allows_nothing_else(declared: str) -> None:
    with pytest.raises(simulation.Refuted, match="differs with timing alone"):
        explore(declared)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("Acount", r"may_differ='Acount': the program has no type 'Acount'; did you mean 'Account'\?: expected"),
        ("Account.logn", r"Account has no field 'logn'.*expected Account.login, Account.count, Account.owner, Account"),
        ("Account.login.x", "Account.login is not a message: expected Account.login"),
        ("order(Account for-x)", "a single resource is declared as a whole: expected Account NAME"),
        ("names(Account.login)", r"names\(\) expects a type: expected names\(Account\)"),
        ("outside.mails", "the world outside has no 'mails': expected outside.sent, outside.disks"),
        ("", "it is empty"),
    ],
)
def test_unknown_name_is_refused_with_what_there_is(declared: str, said: str) -> None:
    with pytest.raises(headway.errors.DeclarationError, match=said):
        explore(declared)


@pytest.mark.wide
def test_fault_that_is_left_out_is_not_planned_and_reported() -> None:
    names = ["restore", "clock_jump", "spaced", "settled"]
    explored = simulation.explore(program(leaves_the_old_account), two_notes, without=names, seconds=0.0)
    assert not {"restore", "clock_jump"} & {fault.name for plan in explored.plans for fault in plan}
    assert "  left out by the scenario: restore, clock_jump, spaced, settled" in str(explored)


def test_unknown_fault_cannot_be_left_out() -> None:
    with pytest.raises(
        headway.errors.DeclarationError, match=r"without='restor': no such fault; did you mean 'restore'"
    ):
        simulation.explore(program(leaves_the_old_account), two_notes, without=["restor"])


def test_resource_that_never_existed_is_refused_in_the_end() -> None:
    async def nothing_but_a_condition(rt: headway.Runtime, team: Any, _: Any, __: object) -> None:
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)

    every = [each.name for each in faults.FAULTS if each not in (faults.NotDone, faults.Hurried, faults.DoneAgain)]
    settings: dict[str, Any] = {"may_differ": ["Team b"], "without": every}
    with pytest.raises(
        headway.errors.DeclarationError, match="no Team 'b' existed in any schedule: expected Team core"
    ):
        simulation.explore(program(nothing_but_a_condition), one_team, **settings)


def test_decorator_takes_every_setting_of_explore() -> None:
    parameters = inspect.signature(simulation.explore).parameters.values()
    settings = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert settings == {*ExploreSettings.__annotations__}
