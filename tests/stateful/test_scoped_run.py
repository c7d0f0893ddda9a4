"""A whole controller's run with a scope of each type, under virtual time, with every fault of streams."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from tests.helpers.scoped_machine import ScopedRunMachine


def test_own_write_that_leaves_the_scope_is_absent_and_its_change_is_mapped() -> None:
    """Each change of the members moves the summary into its scope or out of it."""
    machine = ScopedRunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    assert machine._outputs().keys() == {"a"}
    # The third change would move a member out of the scope.
    machine.change([("pool", "c", ""), ("member", "a", "m2")], on=True)
    machine.pass_time(2.0)
    assert machine._outputs() == {}
    assert machine.store.resources(machine.pools.summary)["a"].data.members == ["m1", "m2"]
    machine.change([("no member", "a", "m1")], on=True)
    machine.pass_time(2.0)
    assert machine._outputs().keys() == {"a"}
    machine.teardown()


def test_store_may_be_put_back_while_a_run_begins_again() -> None:
    """The fence of the new run has taken a revision that no resource has."""
    machine = ScopedRunMachine()
    machine.open(concurrency=1)
    machine.break_a_snapshot(changes=[], kind=0, resources=1)
    machine.fail_source()
    machine.back_up()
    machine.restore(away=3, changes=[], ends=False, new_id=False)
    machine.teardown()


def test_own_write_is_seen_although_a_false_bookmark_was_faster_than_its_reply() -> None:
    """The cache counts as complete up to the revision of the deletion, and still has the summary (seed 3511961)."""
    machine = ScopedRunMachine()
    machine.open(concurrency=3)
    machine.pass_time(2.0)
    machine.lie(kind=2, name="c", member="m3", seconds=1.0)
    machine.change([("no pool", "a", ""), ("no member", "", "m3"), ("no summary", "b", "")], on=False)
    machine.nothing_is_broken()
    machine.teardown()


# A failing example is shrunk for up to five minutes, and the machine may be busy.
TestScopedRun = pytest.mark.timeout(1500)(ScopedRunMachine.TestCase)
BOUND: Any = settings.default
TestScopedRun.settings = settings(BOUND, max_examples=BOUND.max_examples // 2)
