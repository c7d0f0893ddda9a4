"""Plans as lines, and the planned faults of a run."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.testing import simulation
from headway.testing.simulation import Committed, Happened, Reconcile, Step, Trace, faults
from headway.testing.simulation.plans import in_fair_turns, merges, pairs, single_faults

_VALUES = {
    "int": st.integers(1, 99),
    "float": st.floats(0, 100, allow_nan=False),
    "str": st.sampled_from(["staff.Team", "staff.Account"]),
}
ANY = st.one_of(
    *(
        st.builds(kind, **{field.name: _VALUES[str(field.type)] for field in dataclasses.fields(kind)})
        for kind in faults.FAULTS
    )
)


@given(found=st.lists(ANY, max_size=3), seed=st.integers(0, 5))
def test_plan_reads_as_the_line_that_makes_it(found: list[faults.Fault], seed: int) -> None:
    plan = faults.Plan(*found, seed=seed)
    assert faults.Plan.parse(str(plan)) == plan
    assert hash(faults.Plan.parse(str(plan))) == hash(plan)


@pytest.mark.parametrize(
    ("listed", "line"),
    [
        ("crash_after 3", "crash_after(3)"),
        ("answer_late 1/45.0; crash_at p1/8", "answer_late(1, 45.0); crash_at('p1', 8)"),
        ("hide staff.Team/11/12", "hide('staff.Team', 11, 12)"),
    ],
)
def test_entry_of_a_report_can_be_pasted(listed: str, line: str) -> None:
    assert simulation.Plan.parse(listed) == simulation.Plan.parse(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("crash_after 1-3", "step must be a whole number >= 0, not '1-3'"),
        ("crash_aftr(3)", "did you mean 'crash_after'"),
        ("crash_after(3, 4)", "crash_after(step)"),
        ("crash_after", "a fault with its arguments"),
        ("crash_after(step=3)", "a fault with its arguments"),
        ("stall('staff.Team'", "a fault with its arguments"),
        ("stall(staff.v1.Team, 12, 60.0)", "such as crash_after(3): quote 'staff.v1.Team'"),
    ],
)
def test_invalid_line_is_refused_with_the_valid_form(line: str, said: str) -> None:
    with pytest.raises(headway.errors.DeclarationError) as caught:
        simulation.Plan.parse(line)
    assert said in str(caught.value)


TEAM, ACCOUNT = ("staff", "Team"), ("staff", "Account")
CORE, ADA = ("default", "default", "core"), ("default", "default", "ada")


def _trace(*steps: tuple[bool, int], end: bool = True) -> Trace:
    """Return a user's commit at 1, these steps (write, revision) and their commits, the end, and one more step."""
    trace = Trace()
    trace.add(Committed(0.0, 1, TEAM, CORE, None, headway.resource.pb.Resource(), "", 0))
    by = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "started", 1, {})
    trace.add(by)
    for number, (write, revision) in enumerate(steps, 1):
        trace.add(Step(0.0, number, by, "write", ACCOUNT, ADA, write, "done", revision))
        if revision:
            new = headway.resource.pb.Resource()
            trace.add(Committed(0.0, revision, ACCOUNT, ADA, None, new, "accounts", 1))
    if end:
        trace.add(Happened(0.0, "the scenario is over; no more faults"))
        trace.add(Step(0.0, len(steps) + 1, by, "write", ACCOUNT, ADA, True, "done", 99))
    return trace


def _planned(trace: Trace, processes: int = 1) -> set[faults.Fault]:
    return set(single_faults(trace, {TEAM, ACCOUNT}, processes)[0])


def test_effective_write_meets_every_fault_of_a_step() -> None:
    planned = _planned(_trace((True, 2)), processes=2)
    found = {type(each) for each in planned if isinstance(each, faults.StepFault)}
    # Nothing was undone, so no past state can be shown. The store has no single method that is unavailable. The program
    # is not upgraded.
    assert found == set(faults.STEP_FAULTS) - {faults.RestartBehind, faults.Outage, faults.Replaced}
    alone = {type(each) for each in _planned(_trace((True, 2))) if isinstance(each, faults.StepFault)}
    assert found - alone == {faults.HandOver}
    # A restore at step 0 comes when all work is done.
    assert all(each.step == 1 or each == faults.Restore(0, 1) for each in planned if isinstance(each, faults.StepFault))


def test_change_of_a_user_before_another_one_may_be_delivered_with_it() -> None:
    trace = _trace((True, 2))
    assert merges(trace, {TEAM, ACCOUNT}) == []
    trace.add(Committed(0.0, 3, TEAM, CORE, None, headway.resource.pb.Resource(), "", 0))
    assert merges(trace, {TEAM, ACCOUNT}) == [faults.Merged("staff.Team", 1)]


def test_write_without_effect_only_fails_or_comes_late_and_the_rest_is_reported() -> None:
    planned, left_out = single_faults(_trace((True, 0)), {TEAM, ACCOUNT})
    found = {each for each in planned if isinstance(each, faults.StepFault)}
    assert found == {faults.NotDone(1), faults.CommitLate(1, 30.0), faults.CommitLast(1), faults.AnswerLate(1)}
    assert {type(each) for each in left_out["the write changed nothing"]} == set(faults.STEP_FAULTS) - {
        *map(type, found),
        faults.RestartBehind,
        faults.Replaced,
        faults.Restore,
        faults.Outage,
    } | {faults.CommitLate}


def test_read_only_fails_or_is_answered_late() -> None:
    planned = {each for each in _planned(_trace((False, 0))) if isinstance(each, faults.StepFault)}
    assert planned == {faults.NotDone(1), faults.AnswerLate(1)}


def test_change_before_a_write_is_stalled_hidden_repeated_and_forgotten() -> None:
    planned = {each for each in _planned(_trace((True, 2))) if isinstance(each, faults.ChangeFault)}
    assert {type(each) for each in planned if each.revision == 1} == set(faults.CHANGE_FAULTS) - {faults.Merged}
    assert {type(each) for each in planned if each.revision == 2} == {faults.Missed}
    assert faults.Hide("staff.Team", 1, 2) in planned


def test_steps_after_the_scenario_have_no_faults() -> None:
    assert not any(each.step == 2 for each in _planned(_trace((True, 2))) if isinstance(each, faults.StepFault))


def test_restart_can_be_shown_the_state_before_an_undone_change() -> None:
    assert faults.RestartBehind(2, 2) in _planned(_trace((True, 2), (True, 3)))


def test_omitted_restores_are_reported() -> None:
    planned, left_out = single_faults(_trace(*((True, revision) for revision in range(2, 15))), {TEAM, ACCOUNT})
    restores = [each for each in planned if isinstance(each, faults.Restore)]
    older = faults.Restore(13, 0)
    later = [faults.Restore(at, 1) for at in range(2, 12)]
    assert restores == [faults.Restore(0, 1), faults.Restore(1, 1), older, *later]
    assert left_out["enough restores are tried"] == [faults.Restore(12, 1), faults.Restore(13, 1)]


def test_backup_may_be_older_than_the_change_that_an_effect_outside_is_for() -> None:
    trace = _trace((True, 2))
    by = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "started", 1, {})
    change = Committed(0.0, 7, TEAM, ADA, None, headway.resource.pb.Resource(), "", 0)
    step = Step(0.0, 2, by, "call outside.put('a')", ("", ""), ("", "", ""), True, "done")
    at = next(at for at, each in enumerate(trace.entries) if isinstance(each, Happened))
    trace.entries[at:at] = [change, step]
    trace.commits.append(change)
    trace.steps.insert(1, step)
    planned, _ = single_faults(trace, {TEAM})
    assert faults.Restore(2, 6) in planned
    # Users who change it again may not wait for the program.
    trace.commits.append(dataclasses.replace(change, revision=9))
    planned, _ = single_faults(trace, {TEAM})
    assert faults.Restore(2, 6) not in planned


def test_restores_of_a_program_that_changes_only_the_world_outside_are_left_out_by_name() -> None:
    trace = _trace()
    by = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "started", 1, {})
    trace.entries.insert(1, step := Step(0.0, 1, by, "call outside.put('a')", ("", ""), ("", "", ""), True, "done"))
    trace.steps.insert(0, step)
    planned, left_out = single_faults(trace, {TEAM})
    assert not [each for each in planned if isinstance(each, faults.Restore)]
    assert left_out["the program changes only the world outside"] == [faults.Restore(0, 1)]


def test_kinds_of_plans_take_turns_and_those_that_find_most_come_more_often() -> None:
    trace = _trace((True, 2), (True, 3), (True, 4))
    planned, _ = single_faults(trace, {TEAM, ACCOUNT})
    found = in_fair_turns(map(simulation.Plan, planned), trace, trace)
    kinds = {each.name for each in planned}
    assert sorted(map(str, found)) == sorted(str(simulation.Plan(each)) for each in planned)
    # Two turns, because some kinds come in every other one.
    turns = max(next(at for at, plan in enumerate(found) if plan[0].name == kind) for kind in kinds)
    counts = Counter(plan[0].name for plan in found[: turns + 1])
    assert set(counts) == kinds
    assert counts["crash_after"] == 3
    assert counts["conflict"] == 2
    assert counts["server_restart"] == 1


def test_calls_of_another_sort_come_first_then_the_last_ones() -> None:
    trace = Trace()
    by = Reconcile(0.0, "p1", "accounts", TEAM, CORE, "started", 1, {})
    other = Reconcile(0.0, "p1", "others", TEAM, CORE, "started", 1, {})
    for number, each in enumerate((by, by, by, by, other), 1):
        trace.add(Step(0.0, number, each, "write", ACCOUNT, ADA, True, "done", number))
    crashes = [simulation.Plan(faults.CrashBefore(number)) for number in range(1, 6)]
    assert [plan[0].step for plan in in_fair_turns(crashes, trace, trace)] == [1, 5, 4, 2, 3]


def test_plans_of_several_faults_keep_their_order() -> None:
    trace = _trace((True, 2), (True, 3), (True, 4))
    found = [simulation.Plan(faults.HandOver(one), faults.HandOver(2)) for one in (3, 1, 2)]
    assert in_fair_turns(found, trace, trace) == found


def test_crashes_at_checkpoints_are_a_reported_sample() -> None:
    trace = _trace((True, 2))
    trace.checkpoints = [("p1", number) for number in range(100, 200)]
    planned, left_out = single_faults(trace, {TEAM, ACCOUNT})
    crashes = [each for each in planned if isinstance(each, faults.CrashAt)]
    assert len(crashes) == 16
    assert crashes[0] == faults.CrashAt("p1", 100)
    assert len(left_out["a crash at a nearby checkpoint is tried"]) == 84


def test_pairs_are_repeatable_and_never_at_one_place() -> None:
    planned, _ = single_faults(_trace((True, 2), (True, 3)), {TEAM, ACCOUNT})
    one, other = list(pairs(planned, 40)), list(pairs(planned, 40))
    assert one == other
    assert len(one) == len({frozenset(plan) for plan in one}) == 40
    assert list(pairs(planned[:1], 40)) == []
