"""Declarations of what may differ, and of the faults to leave out."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headway
from headway.testing import simulation
from headway.testing.simulation import ExploreSettings, faults
from tests.helpers.corpus.staff import Account, one_team
from tests.simulation.test_races import Mail, leaves_the_old_account, program, two_notes, two_teams


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


async def counts_its_notes(rt: headway.Runtime, team: Any, account: Any, process: simulation.Process) -> None:
    seen = rt.cache.get(account, team.name)
    notes = seen.data.login.split() if seen is not None else []
    if team.data.note not in notes:
        await process.outside.send(team.data.note)
        notes.append(team.data.note)
    await rt.apply(account.new(team.name, Account(login=" ".join(notes), count=len(notes)), owner=team))


@pytest.mark.wide
def test_history_is_declared_field_by_field() -> None:
    """The message of each refutation names the next field, until all that may differ is declared."""
    declared: list[str] = []
    for expected in ("Account.count", "outside.sent"):
        with pytest.raises(simulation.Refuted) as caught:
            simulation.explore(
                program(counts_its_notes), two_notes, outside=Mail, plan="spaced(2.0)", may_differ=declared
            )
        declared += ["Account.count", "Account.login"] if expected == "Account.count" else [expected]
        assert f'may_differ=["{expected}"]' in str(caught.value)
    make = program(counts_its_notes)
    assert simulation.explore(make, two_notes, outside=Mail, plan="spaced(2.0)", may_differ=declared).complete


@pytest.mark.wide
def test_declared_field_may_differ_under_faults_and_others_may_not() -> None:
    async def attempts(rt: headway.Runtime, team: Any, account: Any, process: simulation.Process) -> None:
        if rt.cache.get(account, team.name) is None:
            process.outside.sent.append("tried")
            tried = len(process.outside.sent)
            await rt.apply(account.new(team.name, Account(login=team.data.note, count=tried), owner=team))

    make, plan = program(attempts), "not_done(1)"
    settings: dict[str, Any] = {"outside": Mail, "plan": plan}
    allowed = ["Account.count", "outside.sent"]
    assert simulation.explore(make, two_teams, may_differ=allowed, **settings).complete
    with pytest.raises(simulation.Refuted, match=r"end state: Account a is Account\(count=3\)"):
        simulation.explore(make, two_teams, may_differ=["outside.sent"], **settings)


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
