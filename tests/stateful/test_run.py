"""A whole controller's run under virtual time, with every fault of streams, in process and over the network."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from headway.errors import StoreChanged, StoreRolledBack
from headway.events import BookmarkRefused, DeletionsUnknown, RunEnded, WatchAdded
from headway.testing import Fault
from tests.helpers.restorable import Backup
from tests.helpers.run_machine import RunMachine, RunOverNetworkMachine
from tests.helpers.stream_beginnings import Behind, Beyond, Compacted, Unreachable


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


def test_false_bookmark_may_come_before_a_write_of_an_earlier_process() -> None:
    """The first process wrote a summary twice. A replica with the first state alone primes the second (seed 335)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.change([("member", "a", "m3")], on=True)
    machine.pass_time(2.0)
    written = [commit.revision for commit in machine.store.commits if commit.kind == machine.pools.summary.kind]
    replica = Behind(written[-2], "stands still")
    machine.restart(
        begin=([], [], [replica]), converges=False, crashes=False, down=[], gone="", meanwhile=[], seconds=2.0
    )
    machine.lie(kind=2, name="a", member="m3", seconds=1.0)
    machine.pass_time(40.0)
    assert machine.witness.events_of(BookmarkRefused)
    machine.nothing_is_broken()
    machine.teardown()


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
    assert machine.witness.lost is None
    machine.nothing_is_broken()
    machine.teardown()


@pytest.mark.parametrize("held", [None, 0, 1], ids=["a key", "a change that waits for another type", "a change below"])
def test_work_that_is_pending_when_a_watch_is_added_is_taken_over(held: int | None) -> None:
    """A member leaves a pool that does not exist, so only the run that ends knows that the pool's key is owed."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.watch_notes(held=held, leave=True, begin=[], seconds=6.0)
    assert len(machine.witness.events_of(WatchAdded)) == 1
    # The witness checks that every key was reconciled after the last change that maps to it.
    machine.teardown()
    assert any(seen.name == "c" for seen in machine.witness.reconciles)


@pytest.mark.parametrize("ends", [False, True])
def test_run_between_a_rollback_and_its_acceptance_sees_only_the_lost_history(ends: bool) -> None:
    """It goes on until its streams are back. If it ends before that, none begins until the store is accepted."""
    machine = RunMachine()
    machine.open(concurrency=2)
    machine.pass_time(2.0)
    machine.back_up()
    machine.change([("pool", "b", ""), ("member", "b", "m3")], on=True)
    machine.pass_time(0.5)
    machine.restore(new_id=False, changes=[], away=3, ends=ends)
    machine.nothing_is_broken()
    assert machine.witness.looks_back
    machine.teardown()


@pytest.mark.parametrize("new_id", [False, True])
def test_change_of_a_lost_history_is_mapped_in_the_present_one(new_id: bool) -> None:
    """The store has not reached its revision again. Without this change, nothing leads to pool c (seeds 777, 778)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.back_up()
    machine.change([("pool", "b", "")] * 20, on=True)
    machine.change([("no pool", "c", ""), ("member", "c", "m3")], on=True)
    machine.pass_time(2.0)
    machine.lag(kind=0, changes=[("member", "a", "m3")], steps=0, after="leave")
    machine.pass_time(0.0)
    machine.nothing_is_broken()
    machine.restore(new_id=new_id, changes=[])
    machine.nothing_is_broken()
    machine.teardown()
    assert machine.witness.mapped_lost


@pytest.mark.parametrize("new_id", [False, True])
def test_run_that_goes_on_records_no_checkpoint_in_the_restored_store(
    new_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last checkpoint is above a deletion that the restored store has had since (seed 31337)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.change([("pool", "c", "")], on=True)
    machine.pass_time(2.0)
    machine.back_up()
    # None is recorded before the restore, so that the end of the run has one to record.
    machine.channel.records(*[Fault.FAILED] * 99)
    put_back = machine.store.restore

    def restore(backup: Backup, *, new_id: bool) -> None:
        put_back(backup, new_id=new_id)
        machine.channel.heal()

    monkeypatch.setattr(machine.store, "restore", restore)
    machine.change([("pool", "b", "")] * 9, on=True)
    machine.pass_time(0.5)
    lost = machine.store.position.revision
    more = [("pool", "b", "")] * 12
    machine.restore(new_id=new_id, changes=[("no pool", "c", ""), *more], away=7, ends=False)
    assert machine.store.position.revision > lost
    machine.nothing_is_broken()
    machine.teardown()


def test_cache_that_begins_anew_is_not_held_to_what_the_discarded_one_had() -> None:
    """A replica that lags brings it further before the store is accepted than another one does afterwards."""
    machine = RunMachine()
    machine.open(concurrency=1, begin=([Behind(0, "catches up"), Behind(0, "is slow"), Behind(1, "hangs")], [], []))
    machine.lag(kind=0, changes=[("pool", "a", "m1")] * 3, steps=4, after="release")
    machine.lose(lost=[], leave=False, changes=[], new_id=False)
    machine.nothing_is_broken()
    machine.teardown()


def test_process_that_begins_by_a_false_bookmark_may_see_less_than_the_last_one() -> None:
    """A replica that lags claims to have reached the start of its run."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.change([("pool", "a", "")] * 3, on=True)
    machine.pass_time(2.0)
    machine.restart(crashes=False, gone="", down=[], begin=([Behind(11, "hangs")], [], []), meanwhile=[], seconds=0.0)
    machine.lie(kind=0, name="c", member="m1", seconds=1.0)
    machine.miss(begin=Behind(12, "catches up"), delete=False, kind=0, member="m1", name="b")
    machine.nothing_is_broken()
    machine.teardown()


def test_deletion_before_a_process_adds_the_type_again_may_be_missed() -> None:
    """The process before it had added the type, and its checkpoint is below the deletion (seed 3066016)."""
    machine = RunMachine()
    machine.open(concurrency=1, ending=["a watch is added while a change waits for pools"])
    machine.change_a_note(note="n1", pool="b", delete=False, on=False)
    machine.watch_notes(held=1, leave=True, begin=[], seconds=0.0, converges=True)
    gone = [("no pool", "b", "m2")]
    machine.restart(crashes=True, gone="", down=gone, begin=([], [], []), meanwhile=[], seconds=2.0, converges=True)
    machine.change_a_note(note="n1", pool="a", delete=True, on=True)
    machine.restart(crashes=False, gone="down", down=[], begin=([], [], []), meanwhile=[], seconds=2.0)
    machine.teardown()


def test_deletion_that_a_restored_history_does_not_reach_may_be_missed() -> None:
    """The engine reports that it does not know the deletions of that time (seed 778)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.overtake(name="b", other="c", member="m1", steps=1)
    machine.back_up()
    machine.overtake(name="c", other="a", member="m1", steps=1)
    machine.restore(new_id=True, changes=[("no pool", "a", "")])
    machine.pass_time(40.0)
    assert machine.witness.events_of(DeletionsUnknown)
    assert all(seen.name != "a" for seen in machine.witness.reconciles)
    machine.teardown()


def test_bookmark_of_a_stream_that_resumes_elsewhere_is_not_believed() -> None:
    """A replica that is behind this bookmark is not behind the cache, so it is left later (seed 777)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.lag(kind=0, changes=[("pool", "a", "")], steps=0, after="leave")
    machine.cut_off(kind=0, begin=[Beyond(), Behind(11, "hangs")], changes=[], seconds=40.0)
    machine.nothing_is_broken()
    machine.teardown()


def test_end_of_a_snapshot_of_another_store_is_not_believed() -> None:
    """The cache of the new store begins with a replica that lags behind the refused snapshot (seed 8814507)."""
    machine = RunMachine()
    behind = [Behind(33, "hangs"), Behind(34, "catches up"), Behind(32, "hangs")]
    machine.open(concurrency=1, begin=([], behind, []))
    machine.fall_behind(kind=1, name="b", member="m3", delete=False, back=1, then="stands still")
    machine.back_up()
    machine.change_a_note(note="n2", pool="b", delete=False, on=False)
    machine.restore(new_id=True, changes=[])
    machine.nothing_is_broken()
    machine.teardown()


def test_replica_that_stands_still_is_left_before_the_first_run() -> None:
    """It repeats its bookmark. No other stream of the type has shown yet that the store is further."""
    machine = RunMachine()
    machine.open(concurrency=1, begin=([Behind(1, "stands still")], [], []))
    machine.pass_time(40.0)
    machine.pass_time(40.0)
    machine.nothing_is_broken()
    assert machine.witness.began
    machine.teardown()


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_snapshot_just_below_the_frontier_takes_nothing_back(kind: int) -> None:
    """A replica that lacks only the last change answers after a broken connection."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    for then in ("hangs", "catches up"):
        machine.fall_behind(kind=kind, name="b", member="m2", delete=False, back=1, then=then)
        machine.nothing_is_broken()
        machine.pass_time(40.0)
        machine.nothing_is_broken()
    machine.teardown()


def test_snapshot_after_a_lost_history_deletes_what_it_lacks() -> None:
    """The member was deleted while the stream was cut off."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.cut_off(kind=1, begin=[Compacted()], changes=[("no member", "a", "m1")], seconds=6.0)
    machine.nothing_is_broken()
    machine.teardown()


def test_creation_that_a_false_bookmark_has_overtaken_is_seen_with_the_next_snapshot() -> None:
    """Until then, the cache must take the resource for deleted (seed 15123279)."""
    machine = RunMachine()
    machine.open(concurrency=1)
    machine.pass_time(2.0)
    machine.harm_writes([Fault.SLOW])
    summaries = machine.pools.summary
    machine.channel.begin(summaries, *[Unreachable()] * 4)
    machine.channel.streams(summaries).false_bookmarks += 1
    machine.change([("pool", "c", ""), ("member", "c", "m3")], on=True)
    machine.pass_time(0.5)
    machine.answer_slow_calls()
    machine.run_until_blocked()
    machine.nothing_is_broken()
    machine.pass_time(6.0)
    machine.nothing_is_broken()
    assert machine.pools.runtime is not None
    assert machine.pools.runtime.cache.get(summaries, "c") is not None
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


# A failing example is shrunk for up to five minutes, and the machine may be busy.
TestRun = pytest.mark.timeout(1500)(RunMachine.TestCase)
TestRunOverNetwork = pytest.mark.wide(pytest.mark.timeout(1500)(RunOverNetworkMachine.TestCase))
# An example over the network takes some ten times the work.
BOUND: Any = settings.default
TestRunOverNetwork.settings = settings(BOUND, max_examples=max(3, BOUND.max_examples // 5))
