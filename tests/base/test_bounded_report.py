"""Events that unauthenticated peers cause are reported at a bounded rate, and all of them are counted."""

from __future__ import annotations

import weakref

import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.base import BoundedReport
from headway.events import ConnectionEnded, HandlerFailed, Record
from headway.observe import Metrics


class Refused(Record):
    why: str
    suppressed: int = 0


class Recorder:
    """A report that records its events, with a clock that the test moves."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.now = 100.0
        self.bounded = BoundedReport(self.events.append, clock=lambda: self.now)


def test_one_event_per_kind_and_second_is_reported_with_the_suppressed_count() -> None:
    """The first event passes immediately; the next one has the number of suppressed events."""
    recorder = Recorder()
    for tenth in range(31):
        recorder.now = 100.0 + tenth / 10
        recorder.bounded(ConnectionEnded, peer="a", why=str(tenth))
    assert recorder.events == [
        ConnectionEnded("a", "0", 0),
        ConnectionEnded("a", "10", 9),
        ConnectionEnded("a", "20", 9),
        ConnectionEnded("a", "30", 9),
    ]


def test_kinds_do_not_suppress_each_other() -> None:
    """A flood of one kind hides no event of another kind."""
    recorder = Recorder()
    for _ in range(5):
        recorder.bounded(ConnectionEnded, peer="a", why="b")
        recorder.bounded(Refused, why="c")
    assert recorder.events == [ConnectionEnded("a", "b"), Refused("c")]


async def test_suppressed_rest_of_a_burst_is_reported_after_the_interval(mock_clock: MockClock) -> None:
    """The rest is reported once, with the fields of the last event. An idle kind sets no timer."""
    events: list[object] = []
    bounded = BoundedReport(events.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bounded.report_rest)
        for number in range(5):
            bounded(Refused, why=str(number))
        assert events == [Refused("0")]
        await wait_all_tasks_blocked()
        mock_clock.jump(1.0)
        await wait_all_tasks_blocked()
        assert events == [Refused("0"), Refused("4", 3)]
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
        mock_clock.jump(10.0)
        bounded(Refused, why="5")
        assert events[2:] == [Refused("5")]
        nursery.cancel_scope.cancel()


def test_metrics_count_suppressed_events() -> None:
    """A counter rises by the event and by those suppressed before it."""
    metrics = Metrics()
    metrics(ConnectionEnded("a", "b", 0))
    metrics(ConnectionEnded("a", "b", 41))
    samples = [each for family in text_string_to_metric_families(metrics.text().decode()) for each in family.samples]
    (ended,) = [each.value for each in samples if each.name == "headway_connections_ended_total"]
    assert ended == 1 + 41 + 1


class Mistake(Exception):
    """An error, with a traceback that refers to much."""


async def test_fields_of_a_reported_event_are_not_kept(mock_clock: MockClock) -> None:
    """Only a suppressed event is kept, until it is reported."""
    kept: list[weakref.ref[Mistake]] = []

    def fail(bounded: BoundedReport) -> None:
        error = Mistake()
        kept.append(weakref.ref(error))
        bounded(HandlerFailed, path="/a/b", error=error)

    bounded = BoundedReport(lambda _: None)
    fail(bounded)
    fail(bounded)
    assert [each() is None for each in kept] == [True, False]
    mock_clock.jump(1.0)
    bounded.report_suppressed()
    assert [each() is None for each in kept] == [True, True]
