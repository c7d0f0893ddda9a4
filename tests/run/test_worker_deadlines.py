"""The single cancel scope of a worker: its deadline belongs to the current reconcile, and to no other."""

from __future__ import annotations

import structlog.testing
import trio
import trio.testing

import headway
from headway import field
from headway.events import Reconciled, RunEnded
from headway.observe import log_report, reports


@headway.message
class Note:
    """A payload."""

    text: str = field(1)


async def _sleep_and_raise() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("raised beside the cancellation")


async def _first_attempt(name: str) -> None:
    if name == "slow":
        await trio.sleep_forever()
    elif name == "late":
        await trio.sleep(1.9)
    elif name == "swallows":
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return
    elif name == "beside":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sleep_and_raise)
            nursery.start_soon(trio.sleep_forever)
    elif name == "turns":
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("the backend did not answer") from None
    elif name == "raises":
        raise KeyError(name)


async def test_each_reconcile_has_its_own_deadline_and_its_own_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The report distinguishes errors, timeouts, and deadlines that pass while a worker is idle, for each key."""
    assert autojump_clock.autojump_threshold == 0
    app = headway.App("deadlines")
    type = app.type("deadlines", "v1", "Note", Note)
    events: list[object] = []

    @app.controller(manages=type, deadline=2.0, concurrency=2)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        assert rt.controller == "notes"
        if request.attempt == 1:
            await _first_attempt(request.id.name)

    async with headway.open_engine("memory:", app, report=events.append) as engine:
        for name in (
            "raises",
            "slow",
            "beside",
            "swallows",
            "turns",
            "late",
            *(f"quick-{number}" for number in range(30)),
        ):
            await engine.client.write(type.new(name))
        await engine.wait_idle()
        # The idle time belongs to no reconcile, whether the deadline passes in it or not.
        for name, seconds in (("at-once", 0), ("again", 0), ("soon", 1), ("sooner", 0.5), ("after", 10)):
            await trio.sleep(seconds)
            await engine.client.write(type.new(name))
            await engine.wait_idle()

    tried = [(event.id.name, event.attempt) for event in events if isinstance(event, Reconciled)]
    assert tried.count(("beside", 1)) == 1
    timed_out = {event.id.name for event in events if isinstance(event, Reconciled) and event.timed_out}
    assert timed_out == {"slow", "beside", "swallows", "turns"}
    first: dict[str, tuple[str, str, float]] = {}
    for event in events:
        assert not isinstance(event, RunEnded)
        if isinstance(event, Reconciled):
            error = event.error.__class__.__name__ if event.error else ""
            first.setdefault(event.id.name, (event.outcome, error, round(event.seconds, 3)))
    assert {name: found for name, found in first.items() if not name.startswith("quick")} == {
        "raises": ("failed", "KeyError", 0.0),
        "slow": ("failed", "ReconcileTimeout", 2.0),
        "beside": ("failed", "ValueError", 2.0),
        "swallows": ("failed", "ReconcileTimeout", 2.0),
        "turns": ("failed", "ValueError", 2.0),
        "late": ("done", "", 1.9),
        **dict.fromkeys(("at-once", "again", "soon", "sooner", "after"), ("done", "", 0.0)),
    }
    assert {found for name, found in first.items() if name.startswith("quick")} == {("done", "", 0.0)}


async def test_a_timeout_has_the_traceback_of_the_reconcile(autojump_clock: trio.testing.MockClock) -> None:
    """The log shows the line at which the reconcile waited, also if a task in its nursery waited there.

    The status says that the reconcile timed out.
    """
    app, heard = headway.App("deadlines"), list[object]()
    type = app.type("deadlines", "v1", "Note", Note)

    @app.controller(manages=type, deadline=2.0)
    async def notes(_: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_wait_for_ever)
                nursery.start_soon(_wait_for_ever)
        await _wait_for_ever()

    with structlog.testing.capture_logs() as lines:
        report = reports(heard.append, log_report())
        async with headway.open_engine("memory:", app, report=report) as engine:
            await engine.client.write(type.new("plain"))
            await engine.client.write(type.new("nursery"))
            await trio.sleep(5)
            not_done = engine.controllers["notes"].status().not_done
    assert [(each.id.name, each.timed_out) for each in not_done] == [("nursery", True), ("plain", True)]
    failed = [line for line in lines if line["event"] == "ReconcileFailed"]
    assert len(failed) >= 2
    for line in failed:
        assert "trio.sleep_forever()  # waits here" in line["stack"]
        assert "test_worker_deadlines.py" in line["where"]


async def _wait_for_ever() -> None:
    await trio.sleep_forever()  # waits here
