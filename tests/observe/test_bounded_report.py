"""Events that strangers cause are reported at a bounded rate, and each of them is counted."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headway._bounded_report import BoundedReport
from headway._records import Record
from headway.events import ConnectionEnded
from headway.observe import Metrics


class Refused(Record):
    why: str
    suppressed: int = 0


class Heard:
    """A report that keeps its events, with a clock that the test moves."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.now = 100.0
        self.bounded = BoundedReport(self.events.append, clock=lambda: self.now)


def test_one_event_of_a_kind_passes_each_second_and_counts_the_others() -> None:
    """The first passes at once; the next carries the number of those between."""
    heard = Heard()
    for tenth in range(31):
        heard.now = 100.0 + tenth / 10
        heard.bounded(ConnectionEnded, peer="a", why=str(tenth))
    assert heard.events == [
        ConnectionEnded("a", "0", 0),
        ConnectionEnded("a", "10", 9),
        ConnectionEnded("a", "20", 9),
        ConnectionEnded("a", "30", 9),
    ]


def test_kinds_do_not_suppress_each_other() -> None:
    """A flood of one kind hides none of another."""
    heard = Heard()
    for _ in range(5):
        heard.bounded(ConnectionEnded, peer="a", why="b")
        heard.bounded(Refused, why="c")
    assert heard.events == [ConnectionEnded("a", "b"), Refused("c")]


def test_metrics_count_what_was_suppressed() -> None:
    """A counter rises by the event and by those before it."""
    metrics = Metrics()
    metrics(ConnectionEnded("a", "b", 0))
    metrics(ConnectionEnded("a", "b", 41))
    samples = [each for family in text_string_to_metric_families(metrics.text().decode()) for each in family.samples]
    (ended,) = [each.value for each in samples if each.name == "headway_connections_ended_total"]
    assert ended == 1 + 41 + 1
