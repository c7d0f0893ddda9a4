"""The log of a topic: its last events, for subscribers that come and go. Pure: no Trio, no I/O, no clock.

Rules:
1. The events of one call to publish share a number, and are delivered together. Numbers begin at 1 and have no gaps.
2. The log is bounded by the number of events and by their size. It drops the oldest calls, always as a whole.
   A subscriber that needs a dropped call gets HistoryCompacted, never a gap.
3. A publisher never waits for subscribers: a log does not know them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from headway.errors import HistoryCompacted
from headway.resource import AnyMessage

MAX_EVENTS = 10_000
"""The number of events that a topic keeps."""

MAX_BYTES = 64 << 20
"""The size of the events that a topic keeps."""

AT_ONCE = 1000
"""The number of calls that a subscriber takes at once, at most."""


class TopicEvent(NamedTuple):
    """An event of a topic, encoded."""

    topic: str
    subject: str
    data: AnyMessage


class TopicPosition(NamedTuple):
    """A position in the events of a topic.

    Attributes:
        topic: the name of the topic.
        incarnation: identifies one lifetime of the topic: it changes when the process is restarted, and by `reset`.
        number: the number of the call of `publish`.
    """

    topic: str
    incarnation: str
    number: int


class TopicLog:
    """The last calls of `publish`.

    Attributes:
        head: the number of the last call; 0 before the first.
        floor: calls up to this number are no longer kept.
    """

    def __init__(self, topic: str, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self.head = 0
        self.floor = 0
        self._topic = topic
        self._max_events = max_events
        self._max_bytes = max_bytes
        # Invariant: exactly the calls above the floor, by number.
        self._calls: dict[int, dict[str, TopicEvent]] = {}
        self._events = 0
        self._bytes = 0

    def append(self, events: Mapping[str, AnyMessage]) -> int:
        """Append what one call has published, by subject, and return its number."""
        self.head += 1
        self._calls[self.head] = {subject: TopicEvent(self._topic, subject, data) for subject, data in events.items()}
        self._events += len(events)
        self._bytes += sum(len(data.value) for data in events.values())
        # The newest call is always kept, so that a subscriber at the head can take it.
        while (self._events > self._max_events or self._bytes > self._max_bytes) and self.floor + 1 < self.head:
            self.floor += 1
            dropped = self._calls.pop(self.floor)
            self._events -= len(dropped)
            self._bytes -= sum(len(event.data.value) for event in dropped.values())
        return self.head

    def check(self, after: int) -> None:
        """Raise HistoryCompacted if the calls after this number are not all kept."""
        if not self.floor <= after <= self.head:
            raise HistoryCompacted(
                f"topic {self._topic} keeps what was published after {self.floor}, up to {self.head}, "
                f"and the subscriber is at {after}"
            )

    def take(self, after: int, subjects: Set[str] | None) -> tuple[list[tuple[int, list[TopicEvent]]], int]:
        """Return the calls after a number with their events of these subjects, and the number reached.

        Calls without such an event are left out. ``subjects`` is None for all of them.

        Raises:
            HistoryCompacted: the calls after this number are not all kept.
        """
        self.check(after)
        reached = min(self.head, after + AT_ONCE)
        found: list[tuple[int, list[TopicEvent]]] = []
        for number in range(after + 1, reached + 1):
            call = self._calls[number]
            events = [event for subject, event in call.items() if subjects is None or subject in subjects]
            if events:
                found.append((number, events))
        return found, reached
