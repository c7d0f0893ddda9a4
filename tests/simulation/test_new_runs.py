"""New runs in the same process: what a program remembers of an earlier run must not change what it does."""

from __future__ import annotations

import time

import pytest

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.faults import NewRun
from headway.testing.simulation.plans import single_faults


@headway.message
class Trial:
    paid: bool = field(1)


def trials(*, counts_calls: bool) -> simulation.MakeApp:
    """Return a program that deletes trials that are not paid within 300 seconds."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("trials")
        type = app.type("trials", "v1", "Trial", Trial)
        # By uid, the time of the end. It is lost with the process, which then gives every trial its time again.
        ends: dict[str, float] = {}

        @app.controller(manages=type)
        async def expire(rt: headway.Runtime, request: headway.Request[Trial]) -> headway.RequeueAfter | None:
            trial = rt.resource(request)
            if trial is None or trial.data.paid:
                return None
            first = trial.uid not in ends
            end = ends.setdefault(trial.uid, time.monotonic() + 300)
            if first or (not counts_calls and time.monotonic() < end):
                return headway.requeue_after(end - time.monotonic())
            await rt.client.delete(trial)
            return None

        return app

    return make


async def scenario(world: simulation.World) -> None:
    trial = world.type("Trial")
    await world.client.apply(trial.new("ada", Trial()))
    await world.client.apply(trial.new("bob", Trial()))
    await world.wait_idle()
    await world.sleep(200)
    await world.client.apply(trial.new("ada", Trial(paid=True)))
    await world.wait_idle()
    await world.sleep(600)
    await world.wait_idle()


@pytest.mark.wide
def test_program_that_takes_a_new_run_for_the_end_of_a_delay_is_refuted() -> None:
    """The first reconcile of the new run is the second one of its process."""
    with pytest.raises(simulation.Refuted, match="Trial ada was deleted once; without faults: never"):
        simulation.explore(trials(counts_calls=True), scenario, plan="new_run(3)")


def test_new_runs_follow_changes_of_the_users() -> None:
    trace = run(Setting(app=trials(counts_calls=False), scenario=scenario), simulation.Plan()).trace
    found, _ = single_faults(trace, {("trials", "Trial")})
    assert [str(each) for each in found if isinstance(each, NewRun)] == ["new_run(3)", "new_run(5)", "new_run(8)"]


@pytest.mark.parametrize(("processes", "plan"), [(1, "new_run(3)"), (2, "new_run(4)")])
def test_same_process_begins_the_new_run(processes: int, plan: str) -> None:
    """Another process waits for the lease, but has nothing to remember."""
    setting = Setting(app=trials(counts_calls=False), scenario=scenario, processes=processes)
    result = run(setting, simulation.Plan.parse(plan))
    assert not result.findings
    entries = [str(entry) for entry in result.trace.entries]
    struck = entries.index(f"** {plan} **")
    begun = [at for at, text in enumerate(entries) if "RunStarted (controller trials/expire" in text]
    last = max(at for at in begun if at < struck)
    following = min(at for at in begun if at > struck)
    assert entries[last].partition(":")[0] == entries[following].partition(":")[0]
