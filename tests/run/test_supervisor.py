"""Restarts of runs: their delays, and the reset of the delays. Two runs never overlap."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway.cache import Applied
from headway.client import LeaseClient
from headway.errors import LeaseLost, NotHeadway
from headway.events import LeaseAwaited, LeaseTaken, RunEnded
from headway.rpc import InProcessChannel, PassingChannel
from headway.run import ControllerStatus, Leading, Owed, Run, Supervisor, restart_delay
from headway.service import LeaseService
from headway.storage import MemoryBackend
from tests.helpers.pools import SourceFailed
from tests.helpers.resources import TEAM, key, stored
from tests.helpers.rig import Rig
from tests.helpers.service_errors import failed


def test_restart_delays_double_up_to_a_minute() -> None:
    """The delays are 0.5, 1, 2, 4 … 60 seconds, with at most a quarter added. The first has no jitter."""
    wanted = [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    for flaps, base in enumerate(wanted, start=1):
        for _ in range(50):
            assert base <= restart_delay(flaps) <= base * (1 if flaps == 1 else 1.25)
    assert restart_delay(10_000) <= 75
    assert len({restart_delay(1) for _ in range(50)}) == 1
    assert len({restart_delay(2) for _ in range(50)}) > 1


@pytest.mark.parametrize("flaps", [0, -1])
def test_run_that_lasted_is_restarted_at_once(flaps: int) -> None:
    assert restart_delay(flaps) == 0


async def test_runs_that_fail_at_once_are_delayed_until_one_lasts(autojump_clock: MockClock) -> None:
    """The delay grows with each run that fails within 2 seconds, and is reset after a longer run."""
    rig = Rig(autojump_clock)
    lifetimes = iter([0.0, 1.9, 0.0, 2.1, 0.5])

    async def initialiser(_: headway.Runtime) -> None:
        lifetime = next(lifetimes, None)
        if lifetime is not None:
            await trio.sleep(lifetime)
            raise SourceFailed

    async def nothing(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    rig.pools.replace(nothing, initialiser)
    async with rig.open():
        await rig.wait_idle()

    delays = [event.delay for event in rig.witness.events_of(RunEnded)]
    assert delays[0] == 0.5
    assert 1 <= delays[1] <= 1.25
    assert 2 <= delays[2] <= 2.5
    assert delays[3:] == [0.0, 0.5]


class _EndsAtOnce:
    """A run that ends at once with an error."""

    def __init__(self, error: Exception, reconciled: float = 0.0) -> None:
        self.error = error
        self.reconciled = reconciled
        self.began = trio.current_time()
        self.answered = True

    async def run(self) -> None:
        await trio.lowlevel.checkpoint()
        raise self.error

    async def owed(self) -> Owed:
        return Owed()

    def reconciled_for(self) -> float:
        return self.reconciled

    def status(self) -> ControllerStatus:
        return ControllerStatus("pools", "starting", 0.0)


async def test_lost_lease_is_requested_again_at_once(autojump_clock: MockClock) -> None:
    """The loss of a lease is not a failure: it delays no run, and earlier failures are forgotten."""
    ends: list[Exception] = [SourceFailed(), SourceFailed(), LeaseLost("to web-2"), LeaseLost("again"), SourceFailed()]
    delays: list[float | None] = []

    def make(*_: object) -> Any:
        return _EndsAtOnce(ends[len(delays)])

    def report(event: object) -> None:
        assert isinstance(event, RunEnded)
        delays.append(event.delay)
        if len(delays) == len(ends):
            scope.cancel()

    with trio.CancelScope() as scope:
        await Supervisor("pools", make, report).supervise()
    assert delays[0] == 0.5
    assert delays[1] is not None
    assert delays[1] >= 1
    assert delays[2:] == [0.0, 0.0, 0.5]


async def test_failure_counts_from_the_last_run_that_reconciled_for_long(autojump_clock: MockClock) -> None:
    """Without one, it counts from the first failure. A run that reconciles for less time does not begin it again."""
    reconciled, began, ended = [0.0, 1.9, 2.0, 0.0, 9.0, 1.9], list[float | None](), list[float]()

    def make(*_: object) -> Any:
        return _EndsAtOnce(SourceFailed(), reconciled[len(ended)])

    def report(_: object) -> None:
        began.append(supervisor.failing_since)
        ended.append(trio.current_time())
        if len(ended) == len(reconciled):
            scope.cancel()

    supervisor = Supervisor("pools", make, report)
    with trio.CancelScope() as scope:
        await supervisor.supervise()
    assert len(set(ended)) == len(ended)
    assert began == [ended[0], ended[0], ended[2], ended[2], ended[4], ended[4]]


class _Proxy(PassingChannel):
    """A channel to a lease service. A proxy may answer in its place for a while."""

    remote = True
    astray = False

    @override
    async def unary(self, *call: Any, **options: Any) -> Any:
        if self.astray:
            raise failed(Status.UNIMPLEMENTED, "unknown service")
        return await super().unary(*call, **options)


async def test_standby_survives_wrong_answers_after_an_engine_has_answered(autojump_clock: MockClock) -> None:
    """An engine has named the leader before. Otherwise, wrong answers would end the process."""
    proxy = _Proxy(InProcessChannel(LeaseService(MemoryBackend())))
    leases = LeaseClient(proxy)
    await leases.acquire("staff/pools", "web-2", 15.0)
    heard: list[object] = []

    def report(event: object) -> None:
        heard.append(event)
        if isinstance(event, LeaseAwaited):
            proxy.astray = True
        elif isinstance(event, RunEnded):
            proxy.astray = False
        elif isinstance(event, LeaseTaken):
            scope.cancel()

    def supervisor() -> Supervisor:
        leading = Leading(leases, "staff/pools", "web-1", 15.0, report, check=lambda: None, warm=lambda: None)
        return Supervisor("pools", lambda *_: cast("Run", _EndsAtOnce(SourceFailed())), report, leading=leading)

    # The other holder does not renew, so the lease expires after its ttl.
    with trio.move_on_after(60) as scope:
        await supervisor().supervise()
    assert any(isinstance(event, LeaseTaken) for event in heard)
    assert isinstance(next(event for event in heard if isinstance(event, RunEnded)).error, NotHeadway)
    proxy.astray = True
    with pytest.raises(NotHeadway):
        await supervisor().supervise()


async def test_c6_keys_and_changes_that_a_run_left_survive_a_standby(autojump_clock: MockClock) -> None:
    """The next run gets them, although another process has led in between. Only the subscriptions end."""
    leases = LeaseClient(InProcessChannel(LeaseService(MemoryBackend())))
    left = Owed([key("ada")], [(TEAM.name, Applied(key("grace"), None, stored("grace", 7), 7))])
    given: list[Owed] = []
    heard: list[type] = []

    class LosesItsLease(_EndsAtOnce):
        async def run(self) -> None:
            (lease,) = await leases.list()
            await leases.release(lease.name, lease.holder, lease.term)
            await leases.acquire("staff/pools", "web-2", 15.0)
            await super().run()

        async def owed(self) -> Owed:
            return left

    def make(owed: Owed, _: object) -> Any:
        given.append(owed)
        if len(given) == 2:
            scope.cancel()
        return LosesItsLease(LeaseLost("to web-2"))

    leading = Leading(
        leases,
        "staff/pools",
        "web-1",
        15.0,
        lambda event: heard.append(type(event)),
        check=lambda: None,
        warm=lambda: None,
    )
    with trio.move_on_after(60) as scope:
        await Supervisor("pools", make, lambda _: None, leading=leading).supervise()
    assert LeaseAwaited in heard
    assert given == [Owed(), left]


async def test_c10_status_summarizes_the_errors_of_many_tasks(autojump_clock: MockClock) -> None:
    """Each error is named once, however deeply it is nested, with the number of times that it was raised."""
    workers = ExceptionGroup("the workers", [ValueError("a"), ValueError("a"), KeyError("b")])
    ended = ExceptionGroup("the run", [workers, SourceFailed("c")])
    heard: list[RunEnded] = []
    supervisor = Supervisor("pools", lambda *_: cast("Run", _EndsAtOnce(ended)), heard.append)  # type: ignore[arg-type]  # it reports no other event
    with trio.move_on_after(0.4):
        await supervisor.supervise()
    assert supervisor.status().error == "4 errors: ValueError: a (2 times); KeyError: 'b'; SourceFailed: c"
    assert [each.error for each in heard] == [ended]


async def test_error_during_cancellation_is_reported_but_not_raised(autojump_clock: MockClock) -> None:
    """A source raises because the engine ends, and the engine doesn't fail."""
    rig = Rig(autojump_clock)

    async def source(_: headway.Runtime, __: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise SourceFailed

    @rig.pools.app.controller(manages=rig.pools.pool, sources={"bad": source})
    async def other(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""

    async with headway.open_engine(rig.store, rig.pools.app, report=rig.witness.report):
        await trio.sleep(1)

    errors = [(event.controller, type(event.error)) for event in rig.witness.events_of(RunEnded)]
    assert errors == [("test/other", SourceFailed)]
