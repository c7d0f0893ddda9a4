"""Exploration: repeatable runs, the effects of faults, and the text of a refutation."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

import pytest
import trio

import headway
import tests.helpers.corpus.order  # noqa: F401  # declares the cases
from headway.testing import simulation
from headway.testing.simulation import Happened, Setting, Step, faults, run
from tests.helpers.corpus.staff import (
    CASES,
    Account,
    Staff,
    Team,
    members_change,
    one_team,
    owned,
)


def right(process: simulation.Process) -> headway.App:
    """Keep one account for each member, correctly."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

    @app.controller(manages=team, watches=owned(Staff(process.outside, process.name, app, team, account)))
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None:
            async with rt.outputs(account, owner=found) as wanted:
                for login in found.data.members:
                    await wanted.apply(login, Account(login=login))

    return app


def _lines(plan: str) -> list[str]:
    result = run(Setting(app=right, scenario=members_change, quiet=None), simulation.Plan.parse(plan))
    assert result.findings == ()
    return [str(entry) for entry in result.trace.entries]


def test_run_is_repeatable() -> None:
    assert _lines("none") == _lines("none")
    assert _lines("crash_after(2)") == _lines("crash_after(2)")


def test_run_equals_the_faultless_run_up_to_its_fault() -> None:
    plain, struck = _lines("none"), _lines("crash_before(3)")
    at = next(index for index, line in enumerate(struck) if "crash_before(3)" in line)
    # The step's own line is excluded, because it has the outcome of the step.
    assert struck[: at - 1] == plain[: at - 1]


@pytest.mark.parametrize(
    ("plan", "became"),
    [
        ("crash_before(1)", "step 1: write Account ada: killed"),
        ("crash_after(1)", "step 1: write Account ada: killed at 7"),
        ("not_done(1)", "step 1: write Account ada: not done: the connection broke"),
        ("answer_lost(1)", "step 1: write Account ada: done, but the reply was lost at 7"),
        ("conflict(1)", "step 1: write Account ada: conflict: another writer was first"),
        ("commit_late(1, 30.0)", "step 1 arrives late and was rejected:"),
        ("cut_off(1, 40.0)", "step 1: write Account ada: UNAVAILABLE: the process is cut off"),
    ],
)
def test_fault_affects_its_step(plan: str, became: str) -> None:
    assert [line for line in _lines(plan) if became in line]


def test_late_commit_is_stored_if_it_is_not_yet_resolved() -> None:
    lines = _lines("commit_late(1, 0.0)")
    late = [line for line in lines if "arrives late" in line]
    assert late == ["step 1 arrives late and was done"] or "was rejected" in late[0]


@pytest.mark.parametrize(
    ("plan", "received"),
    [
        ("stall('staff.Team', 9, 60.0)", "core stored at 9"),
        ("drop('staff.Team', 9)", "core stored at 9"),
        ("history_lost('staff.Team', 9)", "the end of a snapshot at 9"),
        ("missed('staff.Team', 9)", "DeletionsUnknown"),
        ("restart_behind(4, 7)", "the end of a snapshot at 7"),
    ],
)
def test_fault_affects_its_stream(plan: str, received: str) -> None:
    lines = _lines(plan)
    at = next(index for index, line in enumerate(lines) if line.startswith("**"))
    assert [line for line in lines[at:] if received in line], lines[at:]


def test_repeated_change_is_delivered_twice() -> None:
    line = "p1 receives Team: core stored at 9"
    assert _lines("repeat('staff.Team', 9)").count(line) == _lines("none").count(line) + 1


def test_killed_process_changes_nothing() -> None:
    """Code that still runs under a shield changes nothing, either."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())])
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is None or rt.cache.get(account, "ada") is not None:
                return
            try:
                await rt.client.apply(account.new("ada", Account(login="ada"), owner=found))
            finally:
                with trio.CancelScope(shield=True):
                    if rt.cache.get(account, "ada") is None:
                        await rt.client.apply(account.new("ghost", Account(), owner=found))

        return app

    result = run(Setting(app=make, scenario=one_team, quiet=None), simulation.Plan.parse("crash_before(1)"))
    assert not [line for line in map(str, result.trace.entries) if "ghost created" in line]
    assert "Account ada" in str(result.trace.commits[-1])


# Every sixth checkpoint is enough for the default run; `make wide` takes them all.
@pytest.mark.parametrize("apart", [6, pytest.param(1, marks=pytest.mark.wide)])
def test_process_killed_at_any_checkpoint_reaches_the_same_end(apart: int) -> None:
    setting = Setting(app=right, scenario=one_team, quiet=None)
    plain = run(setting, simulation.Plan())
    for checkpoint in range(1, plain.trace.checkpoints[-1][1] + 1, apart):
        plan = simulation.Plan.parse(f"crash_at('p1', {checkpoint})")
        struck = run(setting, plan)
        texts = [entry.text for entry in struck.trace.entries if isinstance(entry, Happened)]
        assert texts[texts.index(str(plan)) + 1].startswith("p1 was about to resume the task ")
        assert texts[texts.index(str(plan)) + 2] == "p1 is killed"
        assert (struck.findings, struck.end) == ((), plain.end), plan


def test_refutation_has_a_story_and_the_line_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["created_then_recorded"]
    with pytest.raises(simulation.Refuted) as caught:
        case.explore(right=False)
    story = str(caught.value)
    assert story.startswith(("end state:", "outside:"))
    assert f"when: {caught.value.plan}" in story
    assert "step 1: call outside.make('core'): killed" in story
    assert story.splitlines()[-1].startswith(f'again: HEADWAY_PLAN="{caught.value.plan}" pytest tests/simulation/')
    monkeypatch.setenv("HEADWAY_PLAN", str(caught.value.plan))
    with pytest.raises(simulation.Refuted) as again:
        case.explore(right=False)
    assert again.value.plan == caught.value.plan
    assert [str(each) for each in again.value.findings] == [str(each) for each in caught.value.findings]


def test_report_lists_the_explored_plans() -> None:
    tried = (faults.CrashAfter, faults.NotDone, faults.Stall, faults.Hurried, faults.DoneAgain)
    without = [each.name for each in faults.FAULTS if each not in tried]
    explored = simulation.explore(right, one_team, pairs=3, without=without)
    assert explored.complete
    assert any(len(plan) == 2 for plan in explored.runs)
    assert set(map(str, explored.struck)) == {str(fault) for plan in explored.runs for fault in plan}


def test_fault_without_effect_is_not_reported_as_tried() -> None:
    with pytest.warns(UserWarning, match="the run ended before every fault of the plan"):
        explored = simulation.explore(right, one_team, plan="crash_after(1); not_done(99)")
    assert explored.complete
    assert (explored.tried, explored.planned) == ({"crash_after": 1}, {"crash_after": 1, "not_done": 1})
    assert [line.split(None, 1) for line in str(explored).splitlines()[1:]] == [
        ["crash_after", "1 of 1: 1"],
        ["not_done", "0 of 1"],
        ["some", "faults never struck: crash_after(1); not_done(99)"],
    ]


def _with_a_secret(*, wrong: bool) -> Callable[[simulation.Process], headway.App]:
    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())])
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is None or (wrong and rt.controller in found.status):
                return
            if wrong:
                async with rt.conditions(found) as conditions:
                    conditions.set("Ready", True)
            if rt.cache.get(account, "secret") is None:
                await rt.client.apply(account.new("secret", Account(login=str(uuid.uuid4())), owner=found))

        return app

    return make


def test_difference_between_faultless_runs_is_reported_and_not_blamed_on_faults() -> None:
    explored = simulation.explore(_with_a_secret(wrong=False), one_team, plan="crash_after(1)")
    assert explored.complete
    (line,) = explored.differing
    assert line.startswith("Account secret is Account(login=")
    assert f"  not compared: {line}" in str(explored)


def test_plans_that_ran_out_of_time_are_reported() -> None:
    explored = simulation.explore(right, one_team, seconds=0.0)
    assert not explored.complete
    assert not explored.runs
    told = str(explored).splitlines()[0]
    assert told.startswith(
        f"NOT COMPLETE: no time for {len(explored.plans)} of {len(explored.plans)} plans, and so for"
    )
    assert all(name in told for name in explored.planned)


def test_exploration_that_must_be_complete_fails_without_time() -> None:
    with pytest.raises(AssertionError, match=r"nothing was found wrong, but no time for \d+ of \d+ plans"):
        simulation.explore(right, one_team, seconds=0.0, require_complete=True)
    assert simulation.explore(right, one_team, plan="crash_after(1)", require_complete=True).shortfall == ""


def test_failing_scenario_names_its_plan() -> None:
    async def fails(world: simulation.World) -> None:
        await one_team(world)
        crashed = [entry for entry in world.trace.entries if isinstance(entry, Happened) and entry.fault]
        assert not crashed or isinstance(world.trace.steps[0], Step) is False, "it was killed"

    with pytest.raises(AssertionError, match="it was killed") as caught:
        simulation.explore(right, fails)
    assert "in a simulation under: " in str(getattr(caught.value, "__notes__", ()))


def test_scenario_broken_by_a_restored_store_is_reported_and_proves_nothing() -> None:
    async def remembers(world: simulation.World) -> None:
        await one_team(world)
        if world.store.position.revision > 1000:
            raise ValueError("the store was replaced")

    explored = simulation.explore(right, remembers, plan="restore(1, 4)")
    assert (explored.spoilt, explored.runs) == ({"restore(1, 4)": "ValueError: the store was replaced"}, ())
    assert not explored.complete
    first, *lines = str(explored).splitlines()
    assert first == "NOT COMPLETE: the scenario itself fails under plans that are listed as spoilt (1)"
    assert "  spoilt: restore(1, 4) by ValueError: the store was replaced" in lines


def test_custom_invariant_is_checked() -> None:
    async def nobody_is_called_ada(world: simulation.World) -> None:
        names = [each.name for each in await world.client.list(world.type("Account"))]
        assert "ada" not in names, "ada is there"

    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(right, one_team, holds=[nobody_is_called_ada])
    assert str(caught.value).startswith("nobody_is_called_ada: ada is there")


@pytest.mark.wide
def test_either_of_two_end_states_is_accepted() -> None:
    async def other(world: simulation.World) -> None:
        await world.client.apply(world.type("Team").new("core", Team(members=["grace", "katherine"])))
        await world.wait_idle()

    simulation.same_end(right, members_change, other)
    with pytest.raises(simulation.Refuted):
        simulation.same_end(right, members_change, one_team)


def test_decorator_makes_a_plain_test() -> None:
    @simulation.explored(right, seconds=0.0)
    async def test_accounts(world: simulation.World) -> None:
        """It says so."""
        await one_team(world)

    assert (test_accounts.__name__, test_accounts.__doc__) == ("test_accounts", "It says so.")
    with pytest.warns(UserWarning, match="no time for"):
        test_accounts()


def test_simulation_cannot_run_within_another_run() -> None:
    async def within() -> None:
        simulation.explore(right, one_team)

    with pytest.raises(headway.errors.DeclarationError, match="isn't async"):
        trio.run(within)


def test_random_state_is_restored() -> None:
    import random

    random.seed(7)
    first = random.random()
    random.seed(7)
    run(Setting(app=right, scenario=one_team, quiet=None), simulation.Plan())
    assert random.random() == first
    assert "HEADWAY_PLAN" not in os.environ
