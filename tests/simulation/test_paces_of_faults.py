"""Faults at other paces of the users than the scenario's, and restores when all work is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headway
from headway.testing import simulation
from tests.helpers.corpus.staff import Account, Cloud, Staff, Team, note_changes, one_team, owned

Make = Callable[[simulation.Process], headway.App]


def program(declare: Callable[[Staff], None]) -> Make:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
        declare(Staff(process.outside, process.name, app, team, account))
        return app

    return make


def remembers(*, memory: bool) -> Make:
    """Give an account to each member, and remember in memory which ones have been given."""

    def declare(staff: Staff) -> None:
        given: set[str] = set()

        @staff.app.controller(manages=staff.team, watches=owned(staff))
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            for login in team.data.members if team is not None else ():
                if not memory or login not in given:
                    await rt.apply(staff.account.new(login, Account(login=login), owner=team))
                    given.add(login)

    return program(declare)


def puts(*, versioned: bool) -> Make:
    """Write a team's note to a disk. A call that arrives late undoes a newer one unless it says how new it is."""

    def declare(staff: Staff) -> None:
        @staff.app.controller(manages=staff.team)
        async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is not None and versioned:
                await staff.outside.put_newer(request.id.name, team.data.note, int(team.version))
            elif team is not None:
                await staff.outside.put(request.id.name, team.data.note)

    return program(declare)


@pytest.mark.wide
def test_memory_of_work_that_a_restored_store_has_lost_is_found() -> None:
    """The call itself succeeds, so that a restore during the call shows nothing: the reconciler repeats it."""
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(remembers(memory=True), one_team, outside=Cloud, plan="restore(0, 3)")
    assert str(caught.value.findings[0]).startswith("again: 1 write after a restart, when there was nothing to do")
    simulation.explore(remembers(memory=True), one_team, outside=Cloud, plan="restore(1, 3)")
    simulation.explore(remembers(memory=False), one_team, outside=Cloud, plan="restore(0, 3)")


def test_restore_when_all_work_is_done_is_tried_after_changes_of_users() -> None:
    explored = simulation.explore(remembers(memory=False), one_team, outside=Cloud, seconds=0)
    assert simulation.Plan.parse("restore(0, 3)") in explored.plans
    left = simulation.explore(remembers(memory=False), one_team, outside=Cloud, seconds=0, without=["restore"])
    assert not [plan for plan in left.plans if "restore" in str(plan)]


HURRIED = "hurried(); spaced(2.0); commit_late(1, 30.0)"


@pytest.mark.wide
def test_call_that_is_on_its_way_while_users_go_on_is_tried() -> None:
    """The scenario waits for each change, so that a call at its own pace arrives before the next change."""
    explored = simulation.explore(puts(versioned=True), note_changes, outside=Cloud, seconds=0)
    assert simulation.Plan.parse(HURRIED) in explored.plans
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(puts(versioned=False), note_changes, outside=Cloud, plan=HURRIED)
    assert str(caught.value.findings[0]) == (
        "again: the outside world was {'core': 'x'}; after a restart it is {'core': 'y'}"
    )
    simulation.explore(puts(versioned=False), note_changes, outside=Cloud, plan="commit_late(1, 30.0)")
    simulation.explore(puts(versioned=True), note_changes, outside=Cloud, plan=HURRIED)
