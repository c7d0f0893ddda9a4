"""A single run: every oracle finds a run that is wrong without faults."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway.resource import pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Reconcile, Reconciled, Seen, Setting, _run, oracles, run
from tests.helpers.corpus.programs import ACCOUNT, CORE, TEAM, found, program, result_of, right
from tests.helpers.corpus.staff import Account, Team, one_team

# --- what is wrong with a run by itself ---


def test_program_that_never_becomes_idle_is_found() -> None:
    async def fails(*_: object) -> None:
        raise ValueError("never")

    result = result_of(fails)
    assert found(result) == ["converges"]
    # The first line of a failed test says why.
    assert "has work left, such as Team core: ValueError: never" in str(result.findings[0])


@pytest.mark.parametrize("calls", [False, True])
def test_endless_run_is_found(calls: bool) -> None:
    async def goes_on(rt: headway.Runtime, _: object, account: Any, __: object) -> headway.RequeueAfter:
        while calls:
            await rt.client.get(account, "ada")
        return headway.requeue_after(0)

    result = result_of(goes_on, most=50)
    what = "calls" if calls else "reconciles"
    assert [str(each) for each in result.findings] == [f"converges: still busy after 50 {what}"]


def test_endless_run_without_passing_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spins(*_: object) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(_run, "_TASK_STEPS", 20_000)
    assert [str(each) for each in result_of(spins).findings] == [
        "converges: tasks have run 20000 steps while no time passed, and there is no end"
    ]


def test_periodic_writes_are_found() -> None:
    async def counts(rt: headway.Runtime, _: object, account: Any, __: object) -> headway.RequeueAfter:
        last = rt.cache.get(account, "count")
        await rt.apply(account.new("count", Account(count=last.data.count + 1 if last is not None else 1)))
        return headway.requeue_after(50)

    assert found(result_of(counts, quiet=120.0)) == ["quiet", "again"]


def test_write_at_every_start_is_found() -> None:
    lives: list[int] = []

    async def start(_: headway.Runtime) -> None:
        lives.append(1)

    async def writes(rt: headway.Runtime, _: object, account: Any, __: object) -> None:
        await rt.apply(account.new("lives", Account(count=len(lives))))

    setting = Setting(app=program(writes, on_start=start), scenario=one_team)
    assert found(run(setting, simulation.Plan())) == ["again"]


def test_outside_effect_at_every_start_is_found() -> None:
    async def makes(_rt: headway.Runtime, request: Any, _: object, process: simulation.Process) -> None:
        await process.outside.make(request.id.name)

    assert found(result_of(makes)) == ["again"]


def test_process_that_does_not_end_is_found() -> None:
    async def lingers(_: headway.Runtime, __: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(30)

    setting = Setting(app=program(right, sources={"lingers": lingers}), scenario=one_team, quiet=None)
    assert [str(each) for each in run(setting, simulation.Plan()).findings] == [
        "shutdown: the processes took 30 s to end"
    ]


def test_reconciler_that_triggers_itself_is_found() -> None:
    async def counts(rt: headway.Runtime, request: headway.Request[Team], _: object, __: object) -> None:
        team = rt.resource(request)
        if team is not None and team.data.note != "x" * 20:
            team.data.note += "x"
            await rt.client.write(team)

    assert found(result_of(counts, quiet=None)) == ["self-trigger"]


def test_contract_is_checked() -> None:
    def began(version: int) -> Reconcile:
        seen = [Seen(TEAM, CORE, version, "read", 0)]
        return Reconcile(0.0, "p9", "accounts", TEAM, CORE, "started", 1, {}, seen)

    def harm(world: simulation.World) -> None:
        newer, older = began(2), began(1)
        world.trace.add(Reconciled(0.0, newer, "done"))
        world.trace.add(Reconciled(0.0, older, "done"))
        world.trace.add(began(2))
        world.trace.add(began(2))
        # They are inserted before all other commits, so they do not count as writes after a restart.
        for term in (2, 1):
            world.trace.commits.insert(0, Committed(0.0, 9, TEAM, CORE, None, None, "others", 3 - term))
        owner = pb.Id(uid="gone", name="gone", type=pb.Type(group="staff", group_version="v1", kind="Team"))
        world.store.now[ACCOUNT, CORE] = pb.Resource(owner=owner)

    assert found(result_of(right, quiet=None, holds=[harm])) == ["reads", "terms", "one at a time", "orphans"]


def test_cache_reads_and_writes_are_recorded() -> None:
    async def reads(rt: headway.Runtime, request: Any, account: Any, _: object) -> None:
        rt.resource(request)
        rt.cache.list(account)
        await rt.client.apply(account.new("ada", Account()))

    result = result_of(reads, quiet=None)
    seen = {(each.kind[1], each.key[2], each.how) for reconcile in result.trace.reconciles for each in reconcile.seen}
    assert seen == {("Team", "core", "read"), ("Account", "ada", "read"), ("Account", "ada", "written")}


def test_description_contains_everything_that_users_see() -> None:
    team = pb.Type(group="staff", group_version="v1", kind="Team")
    condition = pb.Condition(type="Ready", state=pb.ConditionState(1), reason="Because")
    resource = pb.Resource(
        id=pb.Id(uid="1", name="ada", type=team),
        owner=pb.Id(uid="2", name="core", type=team),
        metadata={"finalizers": "b a", "deletionTimestamp": "now", "note": "x"},
        generation="2",
        status={"accounts": pb.Status(observed_generation="1", conditions=[condition])},
    )
    text = oracles.described(resource, "payload")
    assert text.startswith("payload, owned by ")
    assert "core" in text
    assert "metadata {'finalizers': 'a b', 'note': 'x'}" in text
    assert "Because" in text
    assert "of an earlier generation" in text
