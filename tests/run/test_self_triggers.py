"""A key that triggers itself by its own writes: it is detected, slowed down and reported, and misses no change."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.cache import Applied
from headway.client import Acknowledged
from headway.reconcile import RECONCILING, Reason, Reconciling
from headway.resource import pb
from headway.run import OwnWrites, SelfTriggers
from headway.run._own_writes import FREE, KEPT, MERGING, TICK
from tests.helpers.resources import ACCOUNT, Account, Team, at, key, stored
from tests.helpers.staff import Staff


class Looping(Staff):
    """A controller that writes team "loop" in every reconcile of it.

    Attributes:
        runs: when each reconcile of it began, and what it saw.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.runs: list[tuple[float, tuple[str, ...]]] = []
        self.others = 0
        self.stop_at = 10**9

        @self.app.controller(manages=self.team, **options)
        async def again(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None or team.name != "loop":
                self.others += 1
                return
            self.runs.append((trio.current_time(), tuple(team.data.members)))
            if len(self.runs) < self.stop_at:
                team.metadata["runs"] = str(len(self.runs))
                await rt.client.write(team)


async def test_self_triggering_key_is_delayed_longer_each_time(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """After ten reconciles the key is delayed by 0.1 s, and the delay doubles up to a minute.

    The report has the key's writes, and the controller is never idle.
    """
    staff = Looping()
    async with staff.open() as engine:
        await staff.write_team("loop")
        await trio.sleep(300)
        heard = staff.events_of(events.SelfTriggered)
        delays = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60, 60, 60]
        assert [round(event.delay, 1) for event in heard] == delays
        assert len(staff.runs) == 1 + FREE + len(heard) - 1
        first = heard[0]
        assert (first.controller, first.id.name, first.count) == ("again", "loop", FREE + 1)
        assert [str(write).split(" at ")[0] for write in first.writes] == ["Team loop written"]
        status = engine.controllers["again"].status()
        assert [(each.id.name, each.outcome) for each in status.not_done] == [("loop", "slowed")]
        assert "Team loop written" in status.not_done[0].error
        with trio.move_on_after(50) as waited:
            await engine.wait_idle()
        assert waited.cancelled_caught


async def test_other_keys_are_not_slowed_by_a_self_triggering_one(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A single worker reconciles the other keys while the self-triggering key is delayed."""
    staff = Looping()
    async with staff.open():
        await staff.write_team("loop")
        await trio.sleep(60)
        began = trio.current_time()
        await staff.write_team("fine")
        await trio.sleep(0.01)
        assert staff.others == 1
        assert trio.current_time() - began < 1


async def test_change_by_another_writer_ends_the_delay_at_once(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """The count of the key starts again."""
    staff = Looping()
    async with staff.open():
        await staff.write_team("loop")
        await trio.sleep(100)
        count, began = len(staff.runs), trio.current_time()
        await staff.write_team("loop", "ada")
        await trio.sleep(0.05)
        assert staff.runs[count][0] - began < 0.01
        assert staff.runs[count][1] == ("ada",)
        assert len(staff.runs) == count + 1 + FREE


async def test_key_from_a_source_ends_the_delay(autojump_clock: MockClock) -> None:  # noqa: ARG001
    send, receive = trio.open_memory_channel[str](1)
    team = headway.ResourceType("staff", "v1", "Team", Team)
    staff = Looping(sources={"outside": headway.sources.from_channel(receive, team.id)})
    async with staff.open():
        await staff.write_team("loop")
        await trio.sleep(100)
        count = len(staff.runs)
        await send.send("loop")
        await trio.sleep(0.05)
        assert len(staff.runs) > count


async def test_self_trigger_that_ends_is_forgotten(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A key that needs some of its own writes isn't slowed, neither this time nor the next."""
    staff = Looping()
    async with staff.open() as engine:
        for number in range(1, 6):
            staff.stop_at = number * FREE
            await staff.write_team("loop", str(number))
            await staff.wait_idle()
            run: Any = engine.controllers["again"].run
            assert run._self_triggers.loops == {}
    assert not staff.events_of(events.SelfTriggered)


async def test_failing_key_that_writes_its_failure_is_slowed(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """Without the delay, a status that differs each time would end every back-off at once."""
    staff, tries = Staff(), list[float]()

    @staff.app.controller(manages=staff.team)
    async def fail(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        tries.append(trio.current_time())
        async with rt.conditions(team, failure="Ready"):
            raise LookupError(f"the {len(tries)}th time")

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(300)
    assert len(tries) < 40
    heard = staff.events_of(events.SelfTriggered)
    assert str(heard[0].writes[0]).startswith("Team core status fail written at ")


async def test_self_trigger_through_an_output_is_detected(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """The write is of another type, and comes back by its mapper."""
    staff = Staff()
    runs = 0

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def flap(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        team = rt.resource(request)
        assert team is not None
        runs += 1
        async with rt.outputs(staff.account, owner=team) as wanted:
            if rt.cache.get(staff.account, "ada") is None:
                await wanted.apply("ada", Account(login="ada"))

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(100)
    assert runs < 30
    whats = {write.what for event in staff.events_of(events.SelfTriggered) for write in event.writes}
    assert whats == {"written", "deleted"}


async def test_two_keys_that_trigger_each_other_are_not_slowed(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A write by the reconcile of another key doesn't count as an own write."""
    staff = Staff()
    runs = 0

    @staff.app.controller(manages=staff.team)
    async def other(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal runs
        runs += 1
        if runs > 60:
            return
        name = {"a": "b", "b": "a"}[request.id.name]
        team = rt.cache.get(staff.team, name)
        if team is not None:
            team.metadata["runs"] = str(runs)
            await rt.client.write(team)

    async with staff.open():
        await staff.write_team("a")
        await staff.write_team("b")
        await staff.wait_idle()
    assert runs > 60
    assert not staff.events_of(events.SelfTriggered)


async def test_change_by_another_writer_ends_the_delay_of_a_failing_key(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A failing key keeps the reasons of all its attempts, so an old reason of another writer doesn't count."""
    staff, tries = Staff(), list[float]()

    @staff.app.controller(manages=staff.team)
    async def fail(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        tries.append(trio.current_time())
        team.metadata["tries"] = str(len(tries))
        await rt.client.write(team)
        raise LookupError

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(100)
        count, began = len(tries), trio.current_time()
        await staff.write_team("core", "ada")
        await trio.sleep(0.05)
        assert tries[count] - began < 0.01
        assert len(tries) >= count + FREE


class Stating(Staff):
    """A controller with eight workers that keeps a status of each team.

    Attributes:
        runs: when each reconcile began, and what it saw: the members, and what the status said of them before.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.runs: list[tuple[float, tuple[str, ...], str]] = []

        @self.app.controller(manages=self.team, concurrency=8, **options)
        async def stating(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            assert team is not None
            status = team.status.get("stating")
            said = status.conditions[0].message if status is not None else ""
            self.runs.append((trio.current_time(), tuple(team.data.members), said))
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", True, ",".join(team.data.members))


async def test_own_status_and_the_next_change_share_one_reconcile(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """A hundred changes of a key, one every 10 ms, cause a hundred reconciles, and one more for the last status."""
    staff = Stating()
    async with staff.open():
        for number in range(100):
            await staff.write_team("core", str(number))
            await trio.sleep(0.01)
            assert staff.runs[-1][1] == (str(number),), "the change was reconciled at once"
        await staff.wait_idle()
    assert len(staff.runs) == 101
    assert staff.runs[-1][1:] == (("99",), "99")
    assert not staff.events_of(events.SelfTriggered)


async def test_own_status_is_seen_by_a_later_reconcile(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """An own status is a change like any other (C6), so the key is pending until a reconcile has seen it."""
    staff = Stating()
    async with staff.open() as engine:
        await staff.write_team("core", "ada")
        await trio.sleep(MERGING / 2)
        assert [said for *_, said in staff.runs] == [""]
        assert engine.controllers["stating"].status().not_done == ()
        await staff.wait_idle()
        assert [said for *_, said in staff.runs] == ["", "ada"]
        began = [at for at, *_ in staff.runs]
        assert MERGING <= began[1] - began[0] < MERGING + 0.01


async def test_controller_that_steps_by_its_own_status_finishes(autojump_clock: MockClock) -> None:  # noqa: ARG001
    """The controller is called after each step, also after the tenth."""
    staff, steps = Staff(), list[int]()

    @staff.app.controller(manages=staff.team, concurrency=8)
    async def stepping(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        status = team.status.get("stepping")
        step = int(status.conditions[0].message) if status is not None else 0
        steps.append(step)
        if step < 12:
            async with rt.conditions(team) as conditions:
                conditions.set("Ready", False, str(step + 1))

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert steps == list(range(13))


# --- the writes that are remembered --------------------------------------------


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


def test_own_write_is_recognized_by_key_and_revision() -> None:
    """A revision alone is not enough to recognize a write."""
    own = OwnWrites()
    noted(own, 7)
    assert own.find(ACCOUNT.name, key("bob"), 7) is None
    assert own.find(None, None, 7) is None


def test_write_outside_a_reconcile_is_no_self_trigger() -> None:
    """A source makes such writes."""
    own = OwnWrites()
    triggers = SelfTriggers(own)
    for revision in range(1, 100):
        noted(own, revision)
        reason = Reason("changed", ACCOUNT.name, key("ada"), revision)
        assert triggers.delay(key("ada"), [reason], 1, float(revision)) is None


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


def test_key_that_is_queued_for_another_reason_is_due_at_once() -> None:
    """The count starts again."""
    own = OwnWrites()
    triggers = SelfTriggers(own)
    triggers.queued(key("ada"), stated(own, 1), 1.0)
    assert triggers.queued(key("ada"), OTHER, 1.01) == 1.01
    assert triggers.loops == {}


def test_key_that_has_triggered_itself_too_often_is_delayed_when_it_is_dequeued() -> None:
    """Only then is it reported."""
    own = OwnWrites()
    triggers = SelfTriggers(own)
    for revision in range(1, FREE + 1):
        reason = stated(own, revision)
        assert triggers.queued(key("ada"), reason, float(revision)) > revision
        assert triggers.delay(key("ada"), [reason], 1, revision + 0.5) is None
    reason = stated(own, FREE + 1)
    assert triggers.queued(key("ada"), reason, 100.0) == 100.0
    delay = triggers.delay(key("ada"), [reason], 1, 100.0)
    assert delay is not None
    assert (delay.runs, delay.quiet) == (FREE + 1, False)
    # Until it is due, it is not reported again.
    assert triggers.queued(key("ada"), stated(own, FREE + 2), 100.01) == 100.0 + delay.seconds


OTHER = Reason("changed", ACCOUNT.name, key("ada"), 10_000)


def test_requeue_is_no_self_trigger() -> None:
    """This holds for any number of requeues, because no write of the key causes them."""
    own = OwnWrites()
    triggers = SelfTriggers(own)
    caused(own, 1)
    for _ in range(3 * FREE):
        assert triggers.delay(key("ada"), [Reason("requeue")], 1, 0.0) is None
    assert triggers.loops == {}


def test_self_trigger_is_detected_although_the_key_also_requeues() -> None:
    own = OwnWrites()
    triggers = SelfTriggers(own)
    reasons = [[caused(own, revision), Reason("requeue")] for revision in range(1, FREE + 2)]
    delays = [triggers.delay(key("ada"), each, 1, 0.0) for each in reasons]
    assert [delay is not None for delay in delays] == [False] * FREE + [True]


def test_reason_from_elsewhere_ends_the_count() -> None:
    """A reason from elsewhere ends the count, even with an own reason, unless it is from an earlier attempt."""
    own = OwnWrites()
    for attempt, ends in ((1, True), (2, False)):
        triggers = SelfTriggers(own)
        for revision in range(1, FREE + 1):
            assert triggers.delay(key("ada"), [caused(own, revision)], 1, 0.0) is None
        delay = triggers.delay(key("ada"), [caused(own, FREE + 1), OTHER], attempt, 0.0)
        assert (delay is None) is ends
        assert (triggers.loops == {}) is ends


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
