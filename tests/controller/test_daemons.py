"""Daemons and timers: they start and stop with their resource, and with their controller's run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import DeclarationError, InvalidResult
from headway.reconcile import RECONCILING
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


class Living(Staff):
    """A daemon that records when it begins and ends.

    Attributes:
        lives: (name, uid, "begins" or "ends") in order.
        linger: seconds that it takes to end.
        outcome: the function that it runs; by default it waits for ever.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lives: list[tuple[str, str, str]] = []
        self.linger = 0.0
        self.outcome: Callable[[str], None] | None = None

        @self.app.daemon(self.team, **options)
        async def heart(rt: headway.Runtime, team: headway.Resource[Team]) -> None:
            assert rt.cache.get(self.team, team.id) is not None
            # A write of the daemon does not count as a write of the reconcile that started it.
            assert RECONCILING.get() is None
            self.lives.append((team.name, team.uid, "begins"))
            try:
                if self.outcome is None:
                    await trio.sleep_forever()
                else:
                    self.outcome(team.name)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.linger)
                self.lives.append((team.name, team.uid, "ends"))

    def history(self) -> list[str]:
        return [f"{name} {what}" for name, _, what in self.lives]


async def test_daemon_runs_as_long_as_its_resource_exists(autojump_clock: MockClock) -> None:
    """There is one task per resource. A change doesn't affect it, and the beginning of the deletion ends it."""
    staff = Living()
    async with staff.open() as engine:
        await staff.write_team("a")
        held = staff.team.new("b")
        held.finalizers = {"others"}
        await engine.client.write(held)
        await trio.sleep(1)
        assert sorted(staff.history()) == ["a begins", "b begins"]
        await staff.write_team("a", "changed")
        await trio.sleep(1)
        assert len(staff.lives) == 2
        await engine.client.delete(staff.team.id("b"))
        await staff.wait_idle()
        assert staff.history()[2:] == ["b ends"]
        await engine.client.delete(staff.team.id("a"))
        await staff.wait_idle()
        assert staff.history()[3:] == ["a ends"]


async def test_daemon_of_one_incarnation_ends_before_the_next_begins(autojump_clock: MockClock) -> None:
    """This holds however long the daemon takes to end. The daemons of other resources don't wait."""
    staff = Living()
    staff.linger = 50.0
    async with staff.open() as engine:
        await staff.write_team("a")
        await staff.wait_idle()
        await trio.sleep(1)
        await engine.client.delete(staff.team.id("a"))
        await staff.write_team("a", "again")
        await staff.write_team("b")
        await trio.sleep(10)
        assert staff.history() == ["a begins", "b begins"]
        await staff.wait_idle()
        await trio.sleep(1)
        assert staff.history() == ["a begins", "b begins", "a ends", "a begins"]
        assert staff.lives[0][1] != staff.lives[3][1]


async def test_daemon_that_raises_is_restarted_with_back_off(autojump_clock: MockClock) -> None:
    """The failure is reported, and the other daemon continues. A daemon that returns is not restarted."""
    staff, times = Living(), list[float]()

    def outcome(name: str) -> None:
        if name == "bad":
            times.append(trio.current_time())
            if len(times) < 5:
                raise LookupError(f"life {len(times)}")

    staff.outcome = outcome
    async with staff.open():
        await staff.write_team("bad")
        await staff.write_team("good")
        await trio.sleep(100)
        rests = [round(b - a, 3) for a, b in itertools.pairwise(times)]
        assert rests == [0.5, 1, 2, 4]
        assert staff.history().count("good begins") == 1
    ended = [(event.id.name, event.retry_after, str(event.error)) for event in staff.events_of(events.DaemonEnded)]
    assert ended.count(("good", None, "None")) == 1
    assert [each for each in ended if each[0] == "bad"] == [
        ("bad", 0.5, "life 1"),
        ("bad", 1.0, "life 2"),
        ("bad", 2.0, "life 3"),
        ("bad", 4.0, "life 4"),
        ("bad", None, "None"),
    ]


async def test_daemons_end_with_their_run_and_start_with_the_next(autojump_clock: MockClock) -> None:
    """A resource never has two daemons at once."""
    staff = Living(watches=[])
    staff.linger = 5.0
    async with staff.open() as engine:
        await staff.write_team("a")
        await staff.wait_idle()
        await trio.sleep(1)
        run = engine.controllers["heart"].run
        assert run is not None
        _end(run)
        await trio.sleep(1)
        assert staff.history() == ["a begins"]
        await trio.sleep(100)
        assert staff.history() == ["a begins", "a ends", "a begins"]
    assert staff.history() == ["a begins", "a ends", "a begins", "a ends"]


def _end(run: Any) -> None:
    """End a run by replacing the store."""
    for subscription in run._caches.subscriptions.values():
        subscription.fail(headway.errors.StoreChanged("replaced"))


async def test_finalizer_keeps_the_resource_until_its_daemon_has_ended(autojump_clock: MockClock) -> None:
    staff = Living(finalizer=True)
    staff.linger = 20.0
    async with staff.open() as engine:
        await staff.write_team("a")
        await staff.wait_idle()
        await trio.sleep(1)
        assert (await engine.client.read(staff.team, "a")).finalizers == {"heart"}
        await engine.client.delete(staff.team.id("a"))
        await trio.sleep(10)
        assert await engine.client.get(staff.team, "a") is not None
        assert staff.history() == ["a begins"]
        await staff.wait_idle()
        assert await engine.client.get(staff.team, "a") is None
        assert staff.history() == ["a begins", "a ends"]


# --- timers ------------------------------------------------------------------


async def test_timer_is_called_repeatedly(autojump_clock: MockClock) -> None:
    """The first call comes at once. Each later call comes an interval after the end of the previous one.

    A change causes no call.
    """
    staff, calls = Staff(), list[tuple[str, float]]()

    @staff.app.timer(staff.team, every=10, jitter=0)
    async def check(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        calls.append((team.name, trio.current_time()))
        await trio.sleep(1)

    async with staff.open() as engine:
        began = trio.current_time()
        await staff.write_team("a")
        await trio.sleep(5)
        await staff.write_team("a", "changed")
        await trio.sleep(20)
        assert [round(at - began) for _, at in calls] == [0, 11, 22]
        await engine.client.delete(staff.team.id("a"))
        await trio.sleep(50)
        assert len(calls) == 3


async def test_timer_intervals_vary_by_the_jitter(autojump_clock: MockClock) -> None:
    staff, calls = Staff(), list[float]()

    @staff.app.timer(staff.team, every=10, jitter=0.5)
    async def check(_: headway.Runtime, __: headway.Resource[Team]) -> None:
        calls.append(trio.current_time())

    async with staff.open():
        await staff.write_team("a")
        await trio.sleep(400)
    rests = [b - a for a, b in itertools.pairwise(calls)]
    assert 5 <= min(rests) < 9
    assert 11 < max(rests) <= 15.001


async def test_timer_calls_a_new_incarnation_at_once_even_if_the_change_was_unseen(autojump_clock: MockClock) -> None:
    """A resource is recreated while the only worker is busy. The new resource doesn't inherit the old schedule."""
    staff, calls = Staff(), list[tuple[str, float]]()

    @staff.app.timer(staff.team, every=1000, concurrency=1)
    async def check(_: headway.Runtime, team: headway.Resource[Team]) -> None:
        calls.append((",".join(team.data.members), trio.current_time()))
        if team.name == "busy":
            await trio.sleep(10)

    async with staff.open() as engine:
        await staff.write_team("a", "first")
        await staff.wait_idle()
        await staff.write_team("busy", "busy")
        await trio.sleep(1)
        await engine.client.delete(staff.team.id("a"))
        await staff.write_team("a", "second")
        await trio.sleep(20)
    assert [name for name, _ in calls] == ["first", "busy", "second"]


# --- misuse ------------------------------------------------------------------


async def lonely(_: headway.Runtime) -> None:
    """Take no resource."""


async def fine(_: headway.Runtime, __: headway.Resource[Team]) -> None:
    """Take the right arguments."""


MISUSES: list[tuple[str, Callable[[Staff], object]]] = [
    ("the daemon must take a runtime and a resource", lambda staff: staff.app.daemon(staff.team)(lonely)),  # type: ignore[arg-type]
    ("the timer must take a runtime and a resource", lambda staff: staff.app.timer(staff.team, every=1)(lonely)),  # type: ignore[arg-type]
    (
        "every must be a finite number of seconds above 0, not 0",
        lambda staff: staff.app.timer(staff.team, every=0)(fine),
    ),
    (
        "every must be a finite number of seconds above 0, not inf",
        lambda staff: staff.app.timer(staff.team, every=math.inf)(fine),
    ),
    ("finalizer must be True or False", lambda staff: staff.app.daemon(staff.team, finalizer="yes")(fine)),  # type: ignore[arg-type]
    ("jitter must be a number", lambda staff: staff.app.timer(staff.team, every=1, jitter=1)(fine)),
    (
        "app.daemon(): type must be a type from app.type(...), such as TEAM, not 'Team'",
        lambda staff: staff.app.daemon("Team")(fine),  # type: ignore[arg-type]
    ),
    ("backoff must be", lambda staff: staff.app.daemon(staff.team, backoff=5)(fine)),  # type: ignore[arg-type]
    ("the name 'fine' already exists", lambda staff: [staff.app.daemon(staff.team)(fine) for _ in range(2)]),
]


@pytest.mark.parametrize(("says", "misuse"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_a_misuse_is_refused_when_it_is_declared(says: str, misuse: Callable[[Staff], object]) -> None:
    with pytest.raises(DeclarationError) as caught:
        misuse(Staff())
    assert says in str(caught.value)
    assert "The form is:" in str(caught.value)


async def test_change_that_is_mapped_starts_no_call(autojump_clock: MockClock) -> None:
    """It starts neither a daemon that has returned nor a timer that is not due. They read the watched type."""
    staff = Staff()
    calls: list[str] = []
    watches = [headway.watch(staff.account, headway.mappers.owner())]

    @staff.app.daemon(staff.team, watches=watches)
    async def once(rt: headway.Runtime, _: headway.Resource[Team]) -> None:
        calls.append(f"daemon {len(rt.cache.list(staff.account))}")

    @staff.app.timer(staff.team, every=60, watches=watches)
    async def regularly(rt: headway.Runtime, _: headway.Resource[Team]) -> None:
        calls.append(f"timer {len(rt.cache.list(staff.account))}")

    async with staff.open() as engine:
        team = await staff.write_team("core")
        await staff.wait_idle()
        await engine.client.apply(staff.account.new("ada", owner=team))
        await trio.sleep(50)
        assert sorted(calls) == ["daemon 0", "timer 0"]
        await trio.sleep(20)
    assert sorted(calls) == ["daemon 0", "timer 0", "timer 1"]


async def test_result_of_a_daemon_or_timer_is_an_error(autojump_clock: MockClock) -> None:
    """It would have no effect: a daemon that returns is not called again, and `every` decides about a timer."""
    staff = Staff()

    async def heart(*_: object) -> Any:
        return "oops"

    async def check(*_: object) -> Any:
        return headway.requeue_after(1)

    staff.app.daemon(staff.team)(heart)
    staff.app.timer(staff.team, every=60)(check)
    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(0.2)
    (ended,) = staff.events_of(events.DaemonEnded)
    assert repr(ended.error) == (
        """InvalidResult("staff/heart returned 'oops': """
        """return None, because a daemon is called again only if it raises")"""
    )
    assert ended.retry_after is not None
    failed = [each.error for each in staff.events_of(events.Reconciled) if each.error is not None]
    assert isinstance(failed[0], InvalidResult)
    assert "staff/check returned RequeueAfter(seconds=1): return None" in str(failed[0])
