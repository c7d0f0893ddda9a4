"""Stories: where they begin, what they contain, what they say about timing, and the plan that they are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

import headway
from headway.resource import Key, Kind, pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Finding, Plan, Result, Trace
from headway.testing.simulation.faults import SCHEDULES, CrashAfter, Fault, StepFault
from headway.testing.simulation.plans import MOST_RUNS, Judge, simplest
from headway.testing.simulation.stories import is_timing_alone, located, timeline, when
from headway.testing.simulation.stories._report import story
from tests.helpers.corpus.programs import ACCOUNT, program, puts, result_of
from tests.helpers.corpus.staff import Account, Cloud, Team, one_team

TEAM: Kind = ("staff", "Team")
CORE: Key = ("default", "default", "core")
ADA: Key = ("default", "default", "ada")


def causes_in(lines: Sequence[str]) -> list[str]:
    """Return the marked lines, without their times."""
    return [line[9:].strip() for line in lines if "  <-- " in line]


def fighting(busy: int) -> Any:
    """Return a program with two controllers that write one field, and one that first writes many accounts."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team)
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is not None and found.data.note not in ("l", "r"):
                for at in range(busy):
                    await rt.client.apply(account.new(f"a{at}", Account(), owner=found))
                found.data.note = "l"
                await rt.client.write(found)

        def noting(name: str, mine: str, other: str) -> None:
            @app.controller(manages=team, name=name)
            async def notes(rt: headway.Runtime, request: headway.Request[Team]) -> None:
                found = rt.resource(request)
                if found is not None and found.data.note == other:
                    found.data.note = mine
                    await rt.client.write(found)

        noting("left", "l", "r")
        noting("right", "r", "l")
        return app

    return make


def _trace_of(count: int, *, violating: int) -> tuple[Trace, Committed]:
    trace = Trace()
    for revision in range(1, count + 1):
        key = ADA if revision == violating else CORE
        new = pb.Resource(metadata={"at": str(revision)})
        trace.add(Committed(float(revision), revision, TEAM, key, pb.Resource(), new, "notes", 1))
    return trace, trace.commits[violating - 1]


@pytest.mark.parametrize("violating", [1, 100, 500])
def test_violating_commit_is_shown_wherever_it_is(violating: int) -> None:
    trace, commit = _trace_of(500, violating=violating)
    for finding in (
        Finding("always", "is wrong", entries=(commit,)),
        Finding("end state", "Team ada is wrong", (TEAM, ADA)),
    ):
        lines = timeline(trace, [finding])
        assert causes_in(lines) == [f"store at {violating}: Team ada changed by notes  <-- {finding.oracle}"]
        assert len([line for line in lines if "store at" in line]) <= 40


def test_fault_and_cause_that_are_far_apart_are_both_shown() -> None:
    result = result_of(puts, "answer_late(1, 5.0)", quiet=None)
    for at in range(200):
        result.trace.add(Committed(500.0, 1000 + at, TEAM, CORE, pb.Resource(), pb.Resource(), "notes", 1))
    finding = Finding("always", "is wrong", entries=(result.trace.commits[-1],))
    lines = timeline(result.trace, [finding])
    assert [line for line in lines if "** answer_late(1, 5.0) **" in line]
    assert causes_in(lines) == ["store at 1199: Team core changed by notes  <-- always"]
    assert [line for line in lines if line.strip().endswith("(198 lines that repeat those above)")]


def test_struck_step_is_shown_even_if_its_fault_is_far_away() -> None:
    result = result_of(puts, "crash_after(1)", quiet=None)
    struck = next(at for at, each in enumerate(result.trace.entries) if str(each) == "** crash_after(1) **")
    for at in range(60):
        change = Committed(0.0, 1000 + at, TEAM, CORE, pb.Resource(), pb.Resource(metadata={"at": str(at)}), "notes", 1)
        result.trace.commits.append(change)
        # Between the step and its fault, as if other keys were reconciled meanwhile, and after them.
        result.trace.entries.insert(struck if at < 30 else len(result.trace.entries), change)
    findings = [Finding("always", "is wrong", entries=tuple(result.trace.commits[-30 + at :: 5])) for at in range(4)]
    lines = timeline(result.trace, findings)
    assert [line for line in lines if "step 1: call outside.put('core'): killed" in line]
    assert [line for line in lines if "** crash_after(1) **" in line]


def test_every_cause_is_shown_even_if_there_are_many() -> None:
    trace, _ = _trace_of(1000, violating=1)
    findings = [Finding("always", "is wrong", entries=tuple(trace.commits[at::160])) for at in range(10, 160, 20)]
    lines = timeline(trace, findings)
    assert len(causes_in(lines)) == len(findings) * 6
    assert len([line for line in lines if "store at" in line]) == len(findings) * 6


def test_end_of_a_run_that_never_converges_is_shown() -> None:
    trace, _ = _trace_of(500, violating=1)
    lines = timeline(trace, [Finding("converges", "still busy after 500 reconciles")])
    assert "store at 500" in lines[-1]


async def makes(rt: headway.Runtime, request: headway.Request[Team], _: object, process: simulation.Process) -> None:
    found = rt.resource(request)
    if found is not None and rt.controller not in found.status:
        await process.outside.make(request.id.name)
        await process.outside.put("a")
        await process.outside.put("b")
        async with rt.conditions(found) as conditions:
            conditions.set("Made", True)


def test_call_that_changed_the_world_outside_too_often_is_marked() -> None:
    plain, wrong = result_of(makes), result_of(makes, "crash_after(1)")
    (finding,) = located([Finding("outside", "is wrong")], wrong, [plain])
    assert causes_in(timeline(wrong.trace, [finding])) == [
        "p1 step 1: call outside.make('core'): killed  <-- outside",
        "p1 step 2: call outside.make('core'): done, and returns 'core-2'  <-- outside",
    ]


def test_story_has_the_lines_of_the_program_that_made_the_calls() -> None:
    """Those of calls that a fault struck, and of calls that a finding is about: here the first and its repetition."""
    plain, wrong = result_of(makes), result_of(makes, "crash_after(1)")
    findings = located([Finding("outside", "is wrong")], wrong, [plain])
    first = makes.__code__.co_firstlineno
    call = f"tests/simulation/test_stories.py:{first + 3}: await process.outside.make(request.id.name)"
    assert f"\nthe calls:\n  step 1: {call}\n  step 2: {call}\n\nagain: " in story(
        Plan.parse("crash_after(1)"), wrong, findings
    )
    # A write by a block of the engine's has the line at which the program leaves the block.
    assert {wrong.trace.steps[-1].place} == {(__file__, first + 6)}


def test_call_that_arrives_late_is_marked_where_it_arrives() -> None:
    plain, wrong = result_of(makes), result_of(makes, "commit_late(1, 30.0)")
    (finding,) = located([Finding("outside", "is wrong")], wrong, [plain])
    assert "step 1 arrives late and was done  <-- outside" in causes_in(timeline(wrong.trace, [finding]))


def test_call_has_a_line_where_it_is_made_and_one_where_it_takes_effect() -> None:
    """Meanwhile, others go on: here the user's next change."""
    result = result_of(makes, "slow(1, 30.0)")
    lines = [line.strip() for line in timeline(result.trace)]
    made = lines.index("0.000        p1 step 1: call outside.make('core')")
    done = lines.index("30.000        p1 step 1: call outside.make('core'): done, and returns 'core-1'")
    assert made < lines.index("0.000  ** slow(1, 30.0) **") < done
    assert "p1 step 2: call outside.put('a'): done" in lines[done + 1]


async def makes_two(_: object, request: headway.Request[Team], __: object, process: simulation.Process) -> None:
    async with trio.open_nursery() as nursery:
        for text in ("one", "two"):
            nursery.start_soon(process.outside.later, f"{request.id.name} {text}")


class SlowDisks(Cloud):
    async def later(self, name: str) -> None:
        await trio.sleep(3.0)
        await self.put(name)


def test_calls_that_take_effect_together_have_a_line_each() -> None:
    lines = [line.strip() for line in timeline(result_of(makes_two, outside=SlowDisks).trace)]
    done = [line.partition("outside.")[2] for line in lines if line.startswith("3.000") and "step" in line]
    assert sorted(done) == ["later('core one'): done", "later('core two'): done"]


def never_two_disks(stored: simulation.Stored) -> None:
    assert len(stored.outside.disks) < 2, f"there are {sorted(stored.outside.disks)}"


def test_moment_at_which_always_fails_is_marked() -> None:
    result = result_of(makes, "crash_after(1)", always=[never_two_disks])
    assert causes_in(timeline(result.trace, result.findings))[:1] == [
        "the world outside, after outside.make('core')  <-- never_two_disks"
    ]


def test_findings_have_the_place_and_the_entries_that_they_are_about() -> None:
    async def writes(rt: headway.Runtime, _: object, account: Any, __: object) -> None:
        await rt.apply(account.new("count", Account(count=len(rt.cache.list(account)) + int(rt.term))))

    result = result_of(writes)
    (again,) = [each for each in result.findings if each.oracle == "again"]
    assert again.place == (ACCOUNT, ("default", "default", "count"))
    assert again.entries == (result.trace.commits[-1],)


# --- what there was to do ---


# --- timing ---


def test_plan_that_changes_only_the_order_of_tasks_is_timing_alone() -> None:
    assert when(Plan(seed=1)) == "timing alone, without any fault: seed(1) - Ready tasks run in another order."
    assert when(Plan()) == "no faults"
    struck = when(Plan(CrashAfter(1), seed=1))
    assert struck.startswith("crash_after(1) - The process is killed after the call takes effect")
    assert struck.endswith("; seed(1) - Ready tasks run in another order.")


@pytest.mark.parametrize("kind", SCHEDULES)
def test_plan_of_schedules_is_timing_alone(kind: type[Fault]) -> None:
    place: Any = {"step": 1} if issubclass(kind, StepFault) else {}
    fault = kind(**place)
    assert when(Plan(fault)) == f"timing alone, without any fault: {fault} - {(kind.__doc__ or '').strip()}"
    assert not is_timing_alone(Plan(fault, CrashAfter(1)))


# --- the simplest plan ---


def judging(refutes: Callable[[Plan], Sequence[str]], asked: list[Plan]) -> Judge:
    """Return a judge for which these oracles find something. Every fault strikes."""

    def judge(plan: Plan) -> tuple[Result, list[Finding]]:
        asked.append(plan)
        result = Result(trace=Trace(), end={}, counts={}, outside=None, findings=(), struck=tuple(plan))
        return result, [Finding(oracle, "is wrong") for oracle in refutes(plan)]

    return judge


def simple(line: str, refutes: Callable[[Plan], Sequence[str]], *planned: str, oracle: str = "counts") -> str:
    """Return the simplest plan that is found, beginning with this one."""
    asked: list[Plan] = []
    empty = Result(trace=Trace(), end={}, counts={}, outside=None, findings=())
    begin = (Plan.parse(line), empty, [Finding(oracle, "is wrong")])
    found = simplest(begin, list(map(Plan.parse, planned)), [], judging(refutes, asked))
    assert len(asked) <= MOST_RUNS
    assert len(asked) == len(set(asked))
    return str(found[0])


def test_fault_of_a_pair_that_is_not_needed_is_dropped() -> None:
    assert simple("restore(4, 4); crash_after(2)", lambda plan: ["counts"] if CrashAfter(2) in plan else []) == (
        "crash_after(2)"
    )
    both = "hand_over(1); hand_over(3)"
    assert simple(both, lambda plan: ["counts"] if len(plan) == 2 else []) == both


def test_simpler_earlier_and_shorter_faults_are_preferred() -> None:
    always = lambda _: ["counts"]  # noqa: E731
    assert simple("pause(3, 40.0)", always, "pause(3, 40.0)", "not_done(3)", "crash_after(3)") == "crash_after(3)"
    assert simple("crash_after(3)", always, "crash_after(2)", "crash_after(4)", "not_done(3)") == "crash_after(2)"
    assert simple("stall('staff.Team', 4, 60.0)", always) == "stall('staff.Team', 4, 1.0)"
    assert simple("pause(1, 40.0)", lambda plan: ["counts"] if plan[0].seconds > 20 else []) == "pause(1, 40.0)"


def test_simpler_plan_that_refutes_for_another_reason_is_not_taken() -> None:
    by_another = lambda plan: ["counts"] if len(plan) == 2 else ["end state"]  # noqa: E731
    both = "hand_over(1); hand_over(3)"
    assert simple(both, by_another) == both


async def slow_is_bad(rt: headway.Runtime, request: headway.Request[Team], account: Any, process: Any) -> None:
    began = trio.current_time()
    await process.outside.put(request.id.name)
    if trio.current_time() - began > 0.5:
        await rt.apply(account.new("late", Account(login="late")))


@pytest.mark.wide
def test_exploration_tells_the_story_of_the_simplest_plan() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program(slow_is_bad), one_team, outside=Cloud)
    assert str(caught.value.plan) == "answer_late(1, 1.0)"
    assert "when: answer_late(1, 1.0) - " in str(caught.value)


def test_plan_that_was_asked_for_stays_as_it_is() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program(slow_is_bad), one_team, outside=Cloud, plan="answer_late(1, 5.0)")
    assert str(caught.value.plan) == "answer_late(1, 5.0)"
