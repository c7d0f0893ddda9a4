"""What the work queue says of its keys. Nothing here changes it."""

from collections.abc import Container
from typing import Generic

from headway.queue._backoff import Backoff
from headway.queue._entries import Delays, Entry, Lanes
from headway.queue._values import K, KeyInQueue, QueueStatistics, R, State


class QueueQueries(Generic[K, R]):
    """The questions to a `WorkQueue`, which has the attributes."""

    __slots__ = (
        *("_adds", "_backing_off", "_backoff", "_closed", "_delays", "_entries", "_lanes", "_merged", "_not_before"),
        "min_interval",
    )

    min_interval: float
    _adds: int
    _backing_off: int
    _backoff: Backoff
    _closed: bool
    _delays: Delays[K, R]
    _entries: dict[K, Entry[K, R]]
    _lanes: Lanes[K, R]
    _merged: int
    _not_before: dict[K, float]

    def is_idle(self) -> bool:
        """Return True if no key is pending: none is ready, in hand or backing off after a failure."""
        return len(self._entries) == len(self._delays) - self._backing_off

    def owes_only(self, keys: Container[K]) -> bool:
        """Return True if every pending key is one of these. This visits them."""
        return all(key in keys or entry.state == "scheduled" for key, entry in self._entries.items())

    def owed(self) -> list[K]:
        """Return the keys whose last change has not been acted on, which a run that ends now leaves undone."""
        owed = [key for key, entry in self._entries.items() if entry.state != "scheduled"]
        # Keys in hand come last: one of them may have ended the run, and could end the next one before any other key
        # ran.
        return sorted(owed, key=lambda key: self._entries[key].state == "in hand")

    def scheduled(self) -> dict[K, float]:
        """Return the keys that only wait for a requested delay, with their due times."""
        return {key: entry.due for key, entry in self._entries.items() if entry.state == "scheduled"}

    def find(self, key: K) -> KeyInQueue[R] | None:
        """Return what the queue knows of a key, as of the last `dequeue` or `promote`, or None if it is not in it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        state: State = entry.state
        due = entry.due if state in ("backing off", "scheduled") else 0.0
        since = due if state == "scheduled" else entry.since
        if state == "backing off" and not entry.failures and due == self._not_before.get(key):
            state = "paced"
        following = () if entry.following is None else entry.following.reasons
        return KeyInQueue(state, since, due, entry.failures + 1, entry.reasons, entry.omitted, following)

    def before(self, key: K) -> int:
        """Return the number of keys before a ready one in line, apart from turns out of line. This visits them."""
        return next((number for number, entry in enumerate(self._lanes) if entry.key == key), 0)

    def oldest(self, before: float) -> list[tuple[float, K]]:
        """Return each key that became pending before a time, with the time when it did, in no order.

        A key that only waits for the end of its interval does not count: it could not be dequeued before.
        """
        found = [
            (entry.since, key)
            for key, entry in self._entries.items()
            if entry.since < before and entry.state != "scheduled"
        ]
        return [each for each in found if not self._is_paced(each[1], before)] if self.min_interval else found

    def _is_paced(self, key: K, at: float) -> bool:
        """Return True if nothing but its interval keeps a pending key waiting at a time."""
        entry = self._entries[key]
        return entry.state != "in hand" and not entry.failures and self._not_before.get(key, at) > at

    def statistics(self) -> QueueStatistics:
        """Return the statistics of the queue, as of the last `dequeue` or `promote`. This visits every ready key."""
        ready, delayed = len(self._lanes), len(self._delays)
        return QueueStatistics(
            ready=ready,
            backlog=self._lanes.backlog_size(),
            delayed_by_failure=self._backing_off,
            scheduled=delayed - self._backing_off,
            in_hand=len(self._entries) - ready - delayed,
            oldest_queued_at=min((entry.queued_at for entry in self._lanes), default=None),
            adds=self._adds,
            merged=self._merged,
        )
