"""What the queue knows about one key, and what it tells about it.

An `Entry` is the queue's own and changes; `Taken` and `QueueStatistics` are handed out and don't.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

Priority = Literal[0, 1]
LIVE: Final = 0
"""The priority of a change that has just come."""
BACKLOG: Final = 1
"""The priority of what was there when the run began: behind what is live, but never starved by it."""

State = Literal["ready", "backing off", "scheduled", "in hand"]

FIRST_REASONS: Final = 3
LAST_REASONS: Final = 5
_KEPT_REASONS: Final = FIRST_REASONS + LAST_REASONS


class NotInHandError(RuntimeError):
    """A key was reported back that isn't in hand: it was never taken, or has been reported back already."""


class Taken(NamedTuple, Generic[K, R]):
    """A key that was handed out, to be reported back as succeeded, failed, requeued or dropped.

    `reasons` are the first three and the last five, oldest first; `omitted` counts those between. `queued_at`
    is the time, in seconds, since which the key has wanted to run. `attempt` is 1, and 1 more for each
    failure in a row.
    """

    key: K
    reasons: tuple[R, ...]
    omitted: int
    queued_at: float
    attempt: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The queue at one moment: keys in each state, and counts since it was made.

    `ready` are all keys that could be taken now, and `backlog` those of them with the lower priority.
    `delayed_by_failure` rest after a failure, `scheduled` wait for a delay that was asked for.
    `oldest_queued_at` is the time, in seconds, since which the longest waiting ready key has wanted to run.
    `adds` counts the adds that were accepted, and `merged` those of them that joined a run already waiting.
    """

    ready: int
    backlog: int
    delayed_by_failure: int
    scheduled: int
    in_hand: int
    oldest_queued_at: float | None
    adds: int
    merged: int


class Entry(Generic[K, R]):
    """One run of one key that is to come or under way, and why."""

    # A plain class with slots: one is made for every change, and a dataclass's extras would be paid each
    # time.
    __slots__ = (
        "due",
        "failures",
        "following",
        "key",
        "omitted",
        "priority",
        "queued_at",
        "reasons",
        "state",
        "ticket",
    )

    def __init__(self, key: K, reasons: tuple[R, ...], priority: Priority, queued_at: float) -> None:
        self.key = key
        # Invariant: len(reasons) <= 8, and len(reasons) + omitted == the reasons noted.
        self.reasons = reasons
        self.omitted = 0
        self.priority: Priority = priority
        self.queued_at = queued_at
        self.failures = 0
        self.state: State = "ready"
        # When a delayed entry becomes ready, in seconds. Means nothing in the other states.
        self.due = 0.0
        # Invariant: ticket != 0 exactly while the entry is in the delays; then it is the ticket of its valid
        # place.
        self.ticket = 0
        # What has been added since the key was taken: the run that comes after the one in hand.
        # Invariant: following is not None implies state == "in hand" and following.state in ("ready",
        # "scheduled").
        self.following: Entry[K, R] | None = None

    def note(self, reason: R) -> None:
        """Add a reason; of many, keep the first (what began it) and the last (what it is about now).

        The same reason again, as of one failure after another, is only counted: it would push out what caused the run.
        """
        reasons = self.reasons
        if reasons[-1] is reason:
            self.omitted += 1
            return
        if len(reasons) == _KEPT_REASONS:
            reasons = reasons[:FIRST_REASONS] + reasons[FIRST_REASONS + 1 :]
            self.omitted += 1
        self.reasons = (*reasons, reason)

    def absorb(self, other: "Entry[K, R]") -> None:
        """Take over the reasons of an entry that came later, and its priority where that is better."""
        for reason in other.reasons:
            self.note(reason)
        self.omitted += other.omitted
        self.raise_to(other.priority)

    def raise_to(self, priority: Priority) -> None:
        """Give the entry this priority where it is better than its own."""
        if priority < self.priority:
            self.priority = priority
