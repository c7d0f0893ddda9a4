"""The state machine: the effects of its rules on the world, and its final checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway.resource import Key, Kind, pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Reconcile, Reconciled, Seen, faults
from tests.helpers.corpus.staff import Account, Team

TEAM: Kind = ("staff", "Team")
CORE: Key = ("default", "default", "core")
Accounts = Callable[[headway.Runtime, headway.Request[Team], Any], Any]


def machine(
    reconcile: Accounts,
    *,
    declared: dict[str, Any] | None = None,
    lives: list[simulation.Process] | None = None,
    **settings: Any,
) -> simulation.Machine:
    """Return a machine that has started, for a program of one reconciler."""

    def make(process: simulation.Process) -> headway.App:
        if lives is not None:
            lives.append(process)
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())], **(declared or {}))
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            result: headway.RequeueAfter | None = await reconcile(rt, request, account)
            return result

        return app

    made: simulation.Machine = type("Made", (simulation.Machine,), {"app": staticmethod(make), **settings})()
    made.open_the_world()
    return made


async def right(rt: headway.Runtime, request: headway.Request[Team], account: Any) -> None:
    team = rt.resource(request)
    if team is not None:
        async with rt.outputs(account, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))


def write(machine: simulation.Machine, *members: str) -> None:
    """Write a team as a user."""
    team = machine.world.type("Team")
    machine.call(machine.world.client.apply, team.new("core", Team(members=list(members))))


def found(machine: simulation.Machine) -> str:
    """Return the first line of the machine's final finding."""
    with pytest.raises(AssertionError) as caught:
        machine.teardown()
    return str(caught.value).splitlines()[0]


class Drawn:
    """A replacement for Hypothesis' data that returns the given answers."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def draw(self, _: object) -> Any:
        """Return the next answer."""
        return self._answers.pop(0)


def test_correct_program_passes() -> None:
    made = machine(right)
    write(made, "ada")
    made.run_until_blocked()
    made.teardown()


def test_custom_invariant_is_checked() -> None:
    async def grace_is_there(world: simulation.World) -> None:
        assert await world.client.get(world.type("Account"), "grace") is not None, "there is no grace"

    made = machine(right, holds=(grace_is_there,))
    write(made, "ada")
    with pytest.raises(AssertionError) as caught:
        made.teardown()
    lines = str(caught.value).splitlines()
    assert lines[0] == "grace_is_there: there is no grace"
    # The story follows the finding.
    assert [line for line in lines if "step 1: write Account ada: done" in line]


def test_reconciler_that_triggers_itself_is_found() -> None:
    async def counts(rt: headway.Runtime, request: headway.Request[Team], _: object) -> None:
        team = rt.resource(request)
        if team is not None and team.data.note != "x" * 20:
            team.data.note += "x"
            await rt.client.write(team)

    made = machine(counts)
    write(made)
    assert found(made).startswith("self-trigger: staff/accounts core triggers itself")


def test_orphan_is_found() -> None:
    made = machine(right)
    owner = pb.Id(uid="gone", name="gone", type=pb.Type(group="staff", group_version="v1", kind="Team"))
    made.world.store.now[("staff", "Account"), CORE] = pb.Resource(owner=owner)
    assert found(made).startswith("orphans: Account core is owned by 'gone'")


def test_contract_is_checked_at_the_end() -> None:
    def began(version: int) -> Reconcile:
        seen = [Seen(TEAM, CORE, version, "read", 0)]
        return Reconcile(0.0, "p9", "accounts", TEAM, CORE, "started", 1, {}, seen)

    made = machine(right)
    newer, older = began(2), began(1)
    for entry in (newer, Reconciled(0.0, newer, "done"), older, Reconciled(0.0, older, "done")):
        made.world.trace.add(entry)
    assert found(made) == "reads: accounts in p9 reads Team core at 1 after it has read it at 2"

    made = machine(right)
    for term in (2, 1):
        made.world.trace.add(Committed(0.0, 9, TEAM, CORE, None, None, "accounts", term))
    assert found(made).startswith("terms: store at 9: Team core deleted by accounts in term 1, after one of term 2")

    made = machine(right)
    for _ in range(2):
        made.world.trace.add(began(2))
    assert found(made).startswith("one at a time: p9 reconciles Team core")


@pytest.mark.parametrize("fault", faults.STEP_FAULTS[:-2])
def test_fault_affects_the_next_call(fault: type[faults.StepFault]) -> None:
    made = machine(right)
    made.harm_the_next_call(fault)
    write(made, "ada")
    made.run_until_blocked()
    assert made.world.struck == [fault(1)]
    made.teardown()


def test_fault_affects_its_stream() -> None:
    made = machine(right)
    write(made, "ada")
    made.run_until_blocked()
    made.harm_a_stream(faults.Drop, Drawn(TEAM))
    assert [str(fault).split(",")[0] for fault in made.world.struck] == ["drop('staff.Team'"]
    made.teardown()


@pytest.mark.parametrize("fault", [faults.Stall, faults.Drop, faults.Repeat, faults.HistoryLost])
def test_stream_may_be_harmed_before_anything_is_written(fault: type[faults.ChangeFault]) -> None:
    made = machine(right)
    made.harm_a_stream(fault, Drawn(TEAM))
    write(made, "ada")
    made.teardown()


@pytest.mark.parametrize("checkpoints", [0, 3])
def test_process_is_killed(checkpoints: int) -> None:
    made = machine(right)
    made.crash(Drawn(0), checkpoints)
    write(made, "ada")
    made.run_until_blocked()
    assert [str(entry) for entry in made.world.trace.entries].count("** p1 is killed **") == 1
    made.teardown()


def test_pending_faults_are_removed_at_the_end() -> None:
    async def reads(rt: headway.Runtime, _: headway.Request[Team], account: Any) -> None:
        await rt.client.get(account, "ada")

    made = machine(reads)
    write(made)
    made.run_until_blocked()
    made.harm_the_next_call(faults.CrashBefore)
    made.crash(Drawn(0), 30)
    made.teardown()
    assert made.world.struck == []
    # There was a call, and there were enough checkpoints, because a restarted process reads.
    assert len(made.world.trace.steps) > 1
    assert made.world.processes[0].checkpoints > 60
