"""A whole controller's run under virtual time, with every fault of streams, in process and over the network."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from headway.errors import StoreChanged, StoreRolledBack
from headway.events import RunEnded
from tests.helpers.faulty_stream import Behind
from tests.helpers.run_machine import RunMachine, RunOverNetworkMachine


def test_state_that_was_over_before_the_first_run_began_needs_no_reconcile() -> None:
    """The resumed stream brings both changes at once, after the starting revision and before the run (seed 121001)."""
    machine = RunMachine()
    machine.open(concurrency=2, begin=([], [Behind(3, "hangs")], []))
    machine.pass_time(0.5)
    machine.change([("member", "b", "m3"), ("member", "c", "m3")], on=True)
    assert not machine.witness.began
    machine.cut_off(kind=1, begin=[], changes=[], seconds=6.0)
    machine.teardown()
    changed = [commit.revision for commit in machine.store.commits if commit.key[2] == "m3"]
    assert machine.witness.began < changed[0]
    assert {seen.name for seen in machine.witness.reconciles} >= {"a", "c"}


@pytest.mark.parametrize("new_id", [False, True])
def test_restored_store_is_accepted_or_has_a_new_id(new_id: bool) -> None:
    """The rule of the machine does restore the store, and the run that follows is compared with what it has now."""
    machine = RunMachine()
    machine.open(concurrency=2)
    machine.pass_time(2.0)
    machine.back_up()
    machine.change([("pool", "b", ""), ("member", "b", "m3")], on=True)
    before = machine.store.position
    machine.restore(new_id=new_id, changes=[("pool", "c", "")])
    assert machine.store.position.session != before.session
    ended_by = {type(event.error) for event in machine.witness.events_of(RunEnded)}
    assert ended_by >= {StoreChanged if new_id else StoreRolledBack}
    assert not machine.witness.suspended
    machine.nothing_is_broken()
    machine.teardown()


def test_view_is_compared_with_the_store() -> None:
    """It stays as it was while its members change."""
    machine = RunMachine()
    machine.open(concurrency=2)
    machine.pass_time(2.0)
    machine.look_through_a_view(20.0)
    machine.change([("member", "b", "m1"), ("no member", "", "m2")], on=True)
    machine.pass_time(40.0)
    assert machine.views.compared == 1
    machine.teardown()


# A failing example is shrunk for up to five minutes.
TestRun = pytest.mark.timeout(400)(RunMachine.TestCase)
TestRunOverNetwork = pytest.mark.wide(pytest.mark.timeout(400)(RunOverNetworkMachine.TestCase))
# An example over the network takes some ten times the work.
BOUND: Any = settings.default
TestRunOverNetwork.settings = settings(BOUND, max_examples=max(3, BOUND.max_examples // 5))
