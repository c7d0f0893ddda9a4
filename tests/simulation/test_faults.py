"""The effect and the time of each fault."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway.resource import Kind
from headway.testing import simulation
from headway.testing.simulation import Delivered, Explored, Result, Setting, run
from tests.helpers.corpus.programs import ACCOUNT, TEAM, program, puts, result_of, right
from tests.helpers.corpus.staff import Cloud, Team, members_change, one_team


def run_under(plan: str, *, scenario: Any = members_change, **settings: Any) -> Result:
    result = result_of(right, plan, scenario=scenario, quiet=None, **settings)
    assert result.findings == ()
    assert [str(each) for each in result.struck] == plan.split("; ")
    return result


def deliveries(result: Result, kind: Kind) -> list[Delivered]:
    """Return the events before the scenario's end: a restarted process reads its earlier state again."""
    over = next(at for at, each in enumerate(result.trace.entries) if str(each).startswith("the scenario is over"))
    return [each for each in result.trace.entries[:over] if isinstance(each, Delivered) and each.kind == kind]


def starts(result: Result) -> list[tuple[int, float]]:
    """Return the term and the time of each run."""
    notes = [each for each in result.trace.entries if "RunStarted" in str(each)]
    return [(int(str(each).split("term ")[1].split(",")[0]), each.at) for each in notes]


def test_late_reply_arrives_late() -> None:
    first, second = run_under("answer_late(1, 5.0)").trace.steps[:2]
    assert first.at == 0
    assert 5 <= second.at < 6


def test_clock_jumps_before_the_call() -> None:
    first, second = run_under("clock_jump(1, 600.0)").trace.steps[:2]
    assert first.at == 0
    assert 600 <= second.at < 601


def test_lost_lease_ends_a_run() -> None:
    result = run_under("lease_lost(2)")
    assert "the fence of staff/accounts is at" in result.trace.steps[1].outcome
    assert [term for term, _ in starts(result)][:2] == [1, 3]


def test_paused_process_continues_while_another_leads() -> None:
    """Its write is refused; its call of the outside world is not."""
    result = run_under("pause(1, 40.0)", processes=2, scenario=one_team)
    late, other = result.trace.steps[:2]
    assert late.by.process != other.by.process
    # The pause also delays the renewal of its lease, which expires.
    assert (late.by.term, 15 <= other.at < 16) == (1, True)
    assert "the fence of staff/accounts is at" in late.outcome
    delivered = [
        each for each in result.trace.entries if isinstance(each, Delivered) and each.process == late.by.process
    ]
    assert not [each for each in delivered if 0 < each.at < 40]

    result = result_of(puts, "pause(1, 40.0)", processes=2, quiet=None)
    late, other = result.trace.steps[:2]
    assert late.by.process != other.by.process
    assert (late.outcome, other.outcome, result.findings) == ("done", "done", ())


def test_call_of_the_outside_world_is_unreachable_while_its_process_is_cut_off() -> None:
    failures: list[type[Exception]] = []

    async def puts_and_notes(_: object, request: headway.Request[Team], __: object, process: Any) -> None:
        try:
            await process.outside.put(request.id.name)
        except Exception as error:
            failures.append(type(error))
            raise

    assert result_of(puts_and_notes, "cut_off(1, 40.0)", quiet=None).findings == ()
    assert set(failures) == {simulation.OutsideUnreachable}


def test_conflict_fault_does_not_affect_a_read() -> None:
    async def reads(rt: headway.Runtime, _: object, account: Any, __: object) -> None:
        await rt.client.get(account, "ada")

    assert "NOT_FOUND" in result_of(reads, "conflict(1)", quiet=None).trace.steps[0].outcome


def test_streams_resume_from_a_restarted_server() -> None:
    opened: list[bool] = []

    def look(world: simulation.World) -> None:
        opened.extend(resumed for _, resumed in world.processes[0].link.script.opened)

    run_under("server_restart(2)", holds=[look])
    assert opened == [False, False, True, True]


def test_starting_process_can_be_killed() -> None:
    """A crash has an effect at every moment of a start."""
    lives: list[int] = []

    async def scenario(world: simulation.World) -> None:
        (process,) = world.processes
        while not hasattr(process, "link"):
            await trio.lowlevel.checkpoint()
        lives.append(process.life)
        await one_team(world)

    assert result_of(right, scenario=scenario, quiet=None).findings == ()
    assert lives == [1]


def test_restored_store_has_a_new_identity_and_the_old_content() -> None:
    result = run_under("restore(2, 4)")
    assert result.trace.steps[1].outcome == "done, but the reply was lost"
    made = [each.revision for each in result.trace.commits if (each.key[2], each.what) == ("ada", "created")]
    assert len(made) == 2
    assert made[1] > 1000
    assert any("RunEnded" in str(each) and "the store is" in str(each) for each in result.trace.entries)


def test_user_repeats_a_request_lost_by_a_restored_store() -> None:
    plain, struck = run_under("restore(4, 4)"), result_of(right, scenario=members_change, quiet=None)
    assert plain.end == struck.end
    again = [each for each in plain.trace.commits if each.kind == TEAM and not each.by]
    assert [each.revision > 1000 for each in again] == [False, False, True]


def test_stalled_stream_delivers_afterwards() -> None:
    result = run_under("stall('staff.Team', 9, 60.0)")
    assert [each.at >= 60 for each in deliveries(result, TEAM) if each.what == "core stored"] == [True]


def test_hidden_change_is_delivered_to_no_process() -> None:
    result = run_under("hide('staff.Team', 9, 10)")
    assert not [each for each in deliveries(result, TEAM) if each.revision == 9 and each.what == "core stored"]
    assert result.end == run_under("hide('staff.Team', 9, 99)").end


def test_process_shown_a_past_state_starts_when_it_has_caught_up() -> None:
    (_, _), (_, second) = starts(run_under("restart_behind(4, 7)"))[:2]
    assert second >= 61


@pytest.mark.parametrize("what", ["steps", "changes", "checkpoints"])
def test_no_fault_strikes_after_the_scenario(what: str) -> None:
    async def write(world: simulation.World) -> None:
        await world.client.apply(world.type("Team").new("late", Team()))

    setting = Setting(app=program(puts), scenario=one_team, outside=Cloud, holds=[write], quiet=None)
    plain = run(setting, simulation.Plan())
    late = [each.revision for each in plain.trace.commits if each.key[2] == "late"]
    plans = {
        "steps": f"crash_before({plain.trace.steps[-1].number})",
        "changes": f"drop('staff.Team', {late[0]})",
        "checkpoints": f"crash_at('p1', {plain.trace.checkpoints[-1][1] + 40})",
    }
    assert run(setting, simulation.Plan.parse(plans[what])).struck == ()


def test_places_are_reported_as_ranges() -> None:
    plans = [simulation.Plan.parse(f"crash_after({step})") for step in (1, 2, 3, 5, 8, 9)]
    report = Explored(tuple(plans), tuple(plans), tuple(plan[0] for plan in plans), (), {}, (), {}, {}, 0, 0.0)
    assert str(report).splitlines()[1] == "  crash_after  6 of 6: 1-3 5 8-9"


def test_dropped_stream_breaks_before_its_change_and_resumes() -> None:
    """The process opens a second stream of the type, which delivers the change once."""
    opened: list[tuple[Kind, bool]] = []

    def look(world: simulation.World) -> None:
        opened.extend(world.processes[0].link.script.opened)

    result = run_under("drop('staff.Team', 9)", holds=[look])
    assert [resumed for kind, resumed in opened if kind == TEAM] == [False, True]
    assert [resumed for kind, resumed in opened if kind == ACCOUNT] == [False]
    assert [each.revision for each in deliveries(result, TEAM)].count(9) == 1


def test_process_that_misses_a_change_is_killed_before_it_receives_it() -> None:
    """Its next life begins with a snapshot, because the history is compacted."""
    lives: list[int] = []

    def look(world: simulation.World) -> None:
        lives.append(world.processes[0].life)

    result = run_under("missed('staff.Team', 9)", holds=[look])
    assert lives == [2]
    assert "DeletionsUnknown" in "\n".join(map(str, result.trace.entries))
