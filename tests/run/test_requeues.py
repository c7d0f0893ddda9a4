"""What becomes of a requeue when its key is reconciled before it is due, and when its run ends."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


@pytest.mark.parametrize(
    ("second", "times"),
    [(None, [0, 20]), (headway.requeue_after(50), [0, 20, 70]), (headway.requeue_after(900), [0, 20, 920])],
)
async def test_c6_reconcile_replaces_the_requeue_of_the_one_before(
    second: headway.RequeueAfter | None, times: list[float], autojump_clock: MockClock
) -> None:
    """Only the result of the last reconcile counts, whether it is None, an earlier time or a later one."""
    staff = Staff()
    called: list[float] = []
    began = trio.current_time()

    @staff.app.controller(manages=staff.team)
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> headway.RequeueAfter | None:
        called.append(round(trio.current_time() - began))
        return {1: headway.requeue_after(600), 2: second}.get(len(called))

    async with staff.open():
        await staff.write_team("core")
        await trio.sleep(20)
        await staff.write_team("core", "ada")
        await trio.sleep(910)
    assert called == times


async def test_c6_delayed_key_is_reconciled_when_it_is_due(autojump_clock: MockClock) -> None:
    """The worker that has waited for the first key is then busy with it, so another one has to wait for the second."""
    staff = Staff()
    called: list[tuple[str, float]] = []

    @staff.app.controller(manages=staff.team, concurrency=2)
    async def look(_: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
        called.append((request.id.name, trio.current_time()))
        if len(called) <= 2:
            return headway.requeue_after(31.0 if request.id.name == "first" else 32.5)
        await trio.sleep(60)
        return None

    async with staff.open():
        await staff.write_team("first")
        await staff.write_team("second")
        await trio.sleep(100)
    # The recording of a checkpoint looks at the queue as well, every 5 s.
    assert [(name, round(time - called[0][1], 3)) for name, time in called[2:]] == [("first", 31.0), ("second", 32.5)]


async def test_c6_next_run_reconciles_a_key_that_had_a_requeue(autojump_clock: MockClock) -> None:
    """Even if the key is of no resource. It does not wait for the requested time."""
    staff = Staff()
    called: list[tuple[str, float]] = []
    began = trio.current_time()
    runs = 0

    async def odd(_: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            enqueue(staff.team.id("absent"))
            await trio.sleep(30)
            raise LookupError("gone")

    @staff.app.controller(manages=staff.team, sources={"odd": odd})
    async def look(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
        assert rt.resource(request) is None
        called.append((request.id.name, round(trio.current_time() - began)))
        return headway.requeue_after(600) if len(called) == 1 else None

    async with staff.open():
        await trio.sleep(30.001)
        await staff.wait_idle()
        assert runs == 2
        await trio.sleep(700)
    assert called == [("absent", 0), ("absent", 30)]
