"""The outcomes that spans of reconciles have, compared with the events of the same reconciles."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import InvalidResult, ReconcileTimeout, StrayCancelled
from tests.tracing.spans import Spans
from tests.tracing.staff import Team


async def returns_text(_: MockClock) -> object:
    return "oops"


async def overruns(clock: MockClock) -> object:
    """Reach no checkpoint after the deadline, as code that blocks does."""
    clock.jump(2)
    return headway.requeue_after(1)


async def catches(_: MockClock) -> object:
    with contextlib.suppress(trio.Cancelled):
        await trio.sleep_forever()
    return None


async def waits_in_tasks(_: MockClock) -> object:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
    return None


async def fails_beside_a_canceled_task(_: MockClock) -> object:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise headway.PermanentFailure("no such floor")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fail)
    return None


async def keeps_cancellation(_: MockClock) -> object:
    with trio.move_on_after(1) as scope:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as canceled:
            kept = canceled
    assert scope.cancel_called
    raise kept


INVALID = "InvalidResult: staff/teams returned 'oops': return None, or headway.requeue_after(seconds)"
CANCELED = "canceled: its deadline has passed, or the run has ended"
LOST = "PermanentFailure: no such floor"


@pytest.mark.parametrize(
    ("how", "error", "outcome", "description"),
    [
        (returns_text, InvalidResult, "failed", INVALID),
        (overruns, ReconcileTimeout, "canceled", CANCELED),
        (catches, ReconcileTimeout, "canceled", CANCELED),
        (waits_in_tasks, ReconcileTimeout, "canceled", CANCELED),
        (fails_beside_a_canceled_task, headway.PermanentFailure, "permanent", LOST),
        (keeps_cancellation, StrayCancelled, "failed", "StrayCancelled: "),
    ],
)
async def test_span_of_a_failure_agrees_with_its_event(
    autojump_clock: MockClock,
    how: Callable[[MockClock], Awaitable[object]],
    error: type[Exception],
    outcome: str,
    description: str,
) -> None:
    """The span has the exception of a failure, and only the fact of a missed deadline. The retry waits from its end."""
    spans, app = Spans(), headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    reported: list[object] = []

    async def reconcile(_: headway.Runtime, request: headway.Request[Team]) -> Any:
        return await how(autojump_clock) if request.attempt == 1 else None

    app.controller(manages=team, deadline=1.5, name="teams", backoff=headway.Backoff(3, 3))(reconcile)
    async with headway.open_engine("memory:", app, report=reported.append, tracing=spans.provider) as engine:
        await engine.wait_idle()
        with spans.root():
            await engine.client.write(team.new("core", Team(size=1)))
        await engine.wait_idle()
        await trio.sleep(10)
    [failed] = [each for each in reported if isinstance(each, events.Reconciled) and each.error is not None]
    assert type(failed.error) is error
    span, *retried = spans.named("reconcile")
    assert (span.attributes["outcome"], span.status) == (outcome, "ERROR")
    assert span.description.startswith(description)
    assert len(span.exceptions) == (0 if outcome == "canceled" else 1)
    if outcome != "permanent":
        assert [each.attributes["outcome"] for each in retried] == ["done"]
        assert spans.named("wait", attempt=2)[0].start >= span.end - 1_000
