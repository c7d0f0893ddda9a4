"""Own writes that are remembered, and the delays of keys that they trigger, without a running controller."""

from __future__ import annotations

from headway.cache import Applied
from headway.client import Acknowledged
from headway.reconcile import RECONCILING, Reason, Reconciling
from headway.resource import pb
from headway.run import OwnWrites, SelfTriggers
from headway.run._own_writes import KEPT
from headway.run._self_triggers import FREE, MERGING, TICK
from tests.helpers.resources import ACCOUNT, at, key, stored


def noted(own: OwnWrites, revision: int) -> None:
    own.note(Acknowledged(ACCOUNT, key("ada"), stored("ada", revision), at(revision)))


def test_number_of_remembered_writes_is_bounded() -> None:
    """A forgotten write counts as another writer's."""
    own = OwnWrites()
    for revision in range(1, KEPT + 2):
        noted(own, revision)
    assert own.find(ACCOUNT.name, key("ada"), 1) is None
    assert own.find(ACCOUNT.name, key("ada"), 2) is not None
    assert len(own.latest) == KEPT


def caused(own: OwnWrites, revision: int) -> Reason:
    """Note an own write by a reconcile of ada, and return the change that it caused."""
    reconciling = Reconciling()
    reconciling.key = key("ada")
    token = RECONCILING.set(reconciling)
    noted(own, revision)
    RECONCILING.reset(token)
    return Reason("changed", ACCOUNT.name, key("ada"), revision)


def stated(own: OwnWrites, revision: int) -> Reason:
    """Note an own status of a reconcile of ada, and return the change that it caused."""
    reconciling = Reconciling()
    reconciling.key = key("ada")
    token = RECONCILING.set(reconciling)
    own.note(Acknowledged(ACCOUNT, key("ada"), stored("ada", revision), at(revision), "ours"))
    RECONCILING.reset(token)
    return Reason("changed", ACCOUNT.name, key("ada"), revision)


def test_keys_whose_own_statuses_follow_each_other_become_due_together() -> None:
    """One wake-up serves all keys whose delays end in the same 5 ms. No delay is shorter than `MERGING`."""
    own = OwnWrites()
    due = list[float]()
    for revision, now in enumerate((1.0001, 1.0049, 1.0051), 1):
        reason = stated(own, revision)
        delay = SelfTriggers(own).delay(key("ada"), [reason], 1, now)
        assert delay is not None
        assert MERGING <= delay.seconds < MERGING + TICK
        due.append(round(now + delay.seconds, 9))
        assert SelfTriggers(own).queued(key("ada"), reason, now) == now + delay.seconds
    assert due == [1.055, 1.055, 1.06]


def test_key_that_is_queued_for_its_own_status_is_delayed_once() -> None:
    """It is due at the same time for each further status. When it is dequeued then, it runs."""
    own = OwnWrites()
    triggers, reasons = SelfTriggers(own), [stated(own, 1), stated(own, 2)]
    due = [triggers.queued(key("ada"), each, now) for each, now in zip(reasons, (0.999, 1.02), strict=True)]
    assert [round(each, 9) for each in due] == [1.05] * 2
    early = triggers.delay(key("ada"), reasons, 1, 1.03)
    assert early is not None
    assert (round(early.seconds, 9), early.quiet) == (0.02, True)
    assert triggers.delay(key("ada"), reasons, 1, due[0]) is None
    # The count goes on: the status of the next reconcile is the second one.
    triggers.queued(key("ada"), stated(own, 3), 2.0)
    assert triggers.loops[key("ada")].count == 2


def test_key_that_is_queued_for_more_than_its_status_runs_at_once() -> None:
    """It does so for an own write of data, and after a failure."""
    for attempt, data in ((1, True), (2, False)):
        own = OwnWrites()
        triggers, reasons = SelfTriggers(own), [stated(own, 1)]
        if data:
            reasons.append(caused(own, 2))
            assert triggers.queued(key("ada"), reasons[1], 1.0) == 1.0
        triggers.queued(key("ada"), reasons[0], 1.0)
        assert triggers.delay(key("ada"), reasons, attempt, 1.0) is None


def test_self_trigger_is_detected_although_the_key_also_requeues() -> None:
    own = OwnWrites()
    triggers = SelfTriggers(own)
    reasons = [[caused(own, revision), Reason("requeue")] for revision in range(1, FREE + 2)]
    delays = [triggers.delay(key("ada"), each, 1, 0.0) for each in reasons]
    assert [delay is not None for delay in delays] == [False] * FREE + [True]


def test_status_is_an_own_write_only_if_nothing_else_changed_at_its_revision() -> None:
    """An unneeded status write returns the revision of another writer's creation or change."""
    ours, theirs = ({"ours": pb.Status(observed_generation="1")}, {"theirs": pb.Status(observed_generation="1")})
    own = OwnWrites()
    said = stored("ada", 7, status=ours)
    own.note(Acknowledged(ACCOUNT, key("ada"), said, at(7), "ours"))
    silent, other, same = (stored("ada", 6, status=status) for status in ({}, theirs, ours))
    for old in (silent, other, same):
        old.generation = said.generation

    def is_own(old: pb.Resource | None, new: pb.Resource | None) -> bool:
        return own.is_own(ACCOUNT.name, Applied(key("ada"), old, new, 7))

    assert is_own(silent, said)
    assert not is_own(same, said)
    assert not is_own(other, said)
    assert not is_own(None, said)
    assert not is_own(said, None)
    assert not is_own(stored("ada", 6), said)


def test_status_that_changed_nothing_is_no_own_write() -> None:
    """Another writer's commit has its revision. The reply says so, or has a later position."""
    said = stored("ada", 7, status={"ours": pb.Status(observed_generation="1")})
    silent = stored("ada", 6)
    silent.generation = said.generation
    for reply in (
        Acknowledged(ACCOUNT, key("ada"), said, at(7), "ours", unchanged=True),
        # The reply of a server that does not say so.
        Acknowledged(ACCOUNT, key("ada"), said, at(8), "ours"),
    ):
        own = OwnWrites()
        own.note(reply)
        assert not own.is_own(ACCOUNT.name, Applied(key("ada"), silent, said, 7))
        assert own.find(ACCOUNT.name, key("ada"), 7) is None
