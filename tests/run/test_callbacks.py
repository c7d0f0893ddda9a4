"""on_start and on_stop: when they are called, what they can read, and how their failures are handled."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


class Called(Staff):
    """A controller that records its calls, in order."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.log: list[str] = []
        staff = self

        async def started(rt: headway.Runtime) -> None:
            await trio.sleep(1)
            self.log.append(f"started with {[each.name for each in rt.cache.list(self.team)]}")

        def stopped(rt: headway.Runtime, error: BaseException | None) -> None:
            try:
                held = str([each.name for each in rt.cache.list(staff.team)])
            except headway.errors.NotPrimed:
                held = "nothing primed"
            self.log.append(f"stopped with {held} by {error!r}")

        @self.app.controller(manages=self.team, **{"on_start": started, "on_stop": stopped, **options})
        async def look(_: headway.Runtime, request: headway.Request[Team]) -> None:
            self.log.append(f"reconciled {request.id.name}")


async def test_callbacks_run_around_the_reconciles_and_can_read_the_cache(autojump_clock: MockClock) -> None:
    """on_start comes before the first reconcile, and on_stop after the last. The end of the engine is not an error."""
    staff = Called()
    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert staff.log == ["started with ['core']", "reconciled core", "stopped with ['core'] by None"]


async def test_on_stop_gets_the_error_of_a_run_that_failed(autojump_clock: MockClock) -> None:
    """A run may also fail while priming. Then on_start was not called, and the cache can't be read."""
    runs = 0

    async def initialiser(_: headway.Runtime) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise LookupError("not yet")

    async def source(_: headway.Runtime, __: headway.sources.Enqueue) -> None:
        if runs == 2:
            await trio.sleep(5)
            raise LookupError("gone")

    staff = Called(initialiser=initialiser, sources={"odd": source})
    async with staff.open():
        await trio.sleep(10)
        assert staff.log == [
            "stopped with nothing primed by LookupError('not yet')",
            "started with []",
            "stopped with [] by LookupError('gone')",
            "started with []",
        ]


@pytest.mark.parametrize("slow", [False, True])
async def test_callback_that_fails_is_reported_and_the_run_continues(slow: bool, autojump_clock: MockClock) -> None:
    """A callback that takes longer than 10 s is canceled, also when the engine ends."""

    async def failing(*_: object) -> None:
        if slow:
            await trio.sleep(1000)
        raise LookupError("odd")

    staff = Called(on_start=failing, on_stop=failing)
    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
        ending = trio.current_time()
    assert staff.log == ["reconciled core"]
    assert trio.current_time() - ending == pytest.approx(10 if slow else 0, abs=0.5)
    failed = [(event.callback, type(event.error).__name__) for event in staff.events_of(events.CallbackFailed)]
    error = "TooSlowError" if slow else "LookupError"
    assert failed == [("on_start", error), ("on_stop", error)]


async def test_on_stop_still_writes_in_the_term_of_its_run(autojump_clock: MockClock) -> None:
    """It comes before the lease is released, and reads its own write."""
    staff = Staff()
    log: list[object] = []

    async def stopped(rt: headway.Runtime, _: BaseException | None) -> None:
        await rt.client.apply(staff.team.new("last", Team(members=[str(rt.term)])))
        last = rt.cache.get(staff.team, "last")
        log.append(last.data.members if last is not None else None)

    def report(event: object) -> None:
        if isinstance(event, events.LeaseEnded):
            log.append(event.term)

    @staff.app.controller(manages=staff.team, on_stop=stopped)
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async with headway.open_engine("memory:", staff.app, report=report) as engine:
        await engine.wait_idle()
    assert log == [["1"], 1]
