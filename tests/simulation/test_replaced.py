"""A random value that is stored must stay: the end looks the same if a crash makes a program draw it again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import headway
from headway import field
from headway.resource import pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Reconcile, Result, Trace
from headway.testing.simulation.oracles import all_replaced
from tests.helpers.corpus.programs import ACCOUNT, CORE, program
from tests.helpers.corpus.staff import Account, Cloud, Team, note_changes, one_team


@headway.message
class Login:
    passwords: dict[str, str] = field(1, secret=True)


async def draws_until_it_is_ready(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> None:
    """Take a team without a status for a new one."""
    team = rt.resource(request)
    if team is None:
        return
    stored = rt.cache.get(account, "core")
    login = uuid.uuid4().hex if stored is None or rt.controller not in team.status else stored.data.login
    await rt.apply(account.new("core", Account(login=login), owner=team))
    async with rt.conditions(team) as conditions:
        conditions.set("Ready", True)


async def keeps_what_is_stored(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> None:
    team = rt.resource(request)
    if team is None:
        return
    stored = rt.cache.get(account, "core")
    login = uuid.uuid4().hex if stored is None else stored.data.login
    await rt.apply(account.new("core", Account(login=login), owner=team))
    async with rt.conditions(team) as conditions:
        conditions.set("Ready", True)


async def renews_for_each_note(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> None:
    """Draw a new login when the note changes. A crash before the status makes it draw one more."""
    team = rt.resource(request)
    if team is None:
        return
    said = team.status.get(rt.controller)
    if said is None or said.observed_generation != team.generation:
        await rt.apply(account.new("core", Account(login=uuid.uuid4().hex), owner=team))
    async with rt.conditions(team) as conditions:
        conditions.set("Ready", True)


async def reports_a_failure(
    rt: headway.Runtime, request: headway.Request[Team], account: Any, process: simulation.Process
) -> None:
    """Say that the disk is missing, until it is there. The text is the same in each run."""
    team = rt.resource(request)
    if team is None:
        return
    try:
        await process.outside.put("core")
    except ConnectionError:
        await rt.apply(account.new("core", Account(login="nowhere"), owner=team))
        raise
    await rt.apply(account.new("core", Account(login="somewhere"), owner=team))


def explore(reconcile: Any, scenario: Any = one_team, **settings: Any) -> simulation.Explored:
    return simulation.explore(program(reconcile), scenario, outside=Cloud, **settings)


def test_random_value_that_is_drawn_again_after_a_crash_is_found() -> None:
    with pytest.raises(simulation.Refuted) as refuted:
        explore(draws_until_it_is_ready)
    story = str(refuted.value)
    assert story.startswith("replaced: Account core.login: accounts has replaced the random value ")
    assert '\n    if either is right: may_differ=["Account.login"]\n' in story
    assert "Account core changed by accounts  <-- replaced" in story
    plan = str(refuted.value.plan)
    explore(draws_until_it_is_ready, may_differ=["Account.login"], plan=plan)
    explore(keeps_what_is_stored, plan=plan)


def test_value_that_is_renewed_without_faults_may_be_renewed_with_them() -> None:
    with pytest.raises(simulation.Refuted, match=r"replaced: Account core\.login"):
        explore(renews_for_each_note, plan="crash_after(1)")
    explore(renews_for_each_note, note_changes, plan="crash_after(1)")


def test_value_that_only_a_fault_replaces_is_not_accused_if_it_is_not_random() -> None:
    explore(reports_a_failure, plan="not_done(1)")


@pytest.mark.parametrize("right", [False, True])
def test_secret_in_a_map_is_compared_by_its_key(right: bool) -> None:
    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, login = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Login", Login)

        @app.controller(manages=team, watches=[headway.watch(login, headway.mappers.owner())])
        async def logins(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is None:
                return
            stored = rt.cache.get(login, "core")
            known = dict(stored.data.passwords) if stored is not None else {}
            if rt.controller not in found.status and not right:
                known = {name: known[name] for name in known if name != "root"}
            passwords = {name: known.get(name) or uuid.uuid4().hex for name in ("root", *found.data.members)}
            await rt.apply(login.new("core", Login(passwords=passwords), owner=found))
            async with rt.conditions(found) as conditions:
                conditions.set("Ready", True)

        return app

    async def scenario(world: simulation.World) -> None:
        for members in (["ada"], ["ada", "grace"]):
            await world.client.apply(world.type("Team").new("core", Team(members=members)))
            await world.wait_idle()

    if right:
        simulation.explore(make, scenario, plan="crash_after(1)")
    else:
        with pytest.raises(simulation.Refuted, match=r"replaced: Login core.passwords: .* value #\w{6} by #\w{6};"):
            simulation.explore(make, scenario, plan="crash_after(1)")


@pytest.mark.parametrize(("term", "found"), [(1, 0), (2, 1)])
def test_write_of_an_earlier_leader_that_a_cluster_has_stored_is_not_accused(term: int, found: int) -> None:
    """The next leader may have drawn a value as well, before it has read that one."""
    trace = Trace()
    for number in (1, 2):
        trace.add(Reconcile(float(number), f"p{number}", "accounts", ACCOUNT, CORE, "", number, {}))
    old, new = (pb.Resource(metadata={"login": login}) for login in ("x1", "x2"))
    trace.add(Committed(3.0, 3, ACCOUNT, CORE, old, new, "accounts", term))
    result = Result(trace, {}, {}, None, (), contents_of=lambda _, resource: resource.metadata)
    assert len(list(all_replaced(result))) == found
