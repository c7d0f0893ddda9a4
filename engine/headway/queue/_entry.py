"""The queue's state of a key, the records that the queue returns, and the back-off of a failed key.

An `Entry` is internal to the queue and mutable; `Dequeued` and `QueueStatistics` are returned and immutable.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from headway._declarations import check_keywords
from headway.errors import InvalidArgument

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

Priority = Literal[0, 1]
LIVE: Final = 0
"""The priority of a new change."""
BACKLOG: Final = 1
"""The priority of what existed when the run began: after live changes, but never starved by them."""

State = Literal["ready", "backing off", "scheduled", "in hand"]

FIRST_REASONS: Final = 3
LAST_REASONS: Final = 5
_KEPT_REASONS: Final = FIRST_REASONS + LAST_REASONS


class NotInHandError(RuntimeError):
    """A key was reported back that is not in hand: it was never dequeued, or was already reported back."""


class Dequeued(NamedTuple, Generic[K, R]):
    """A dequeued key, to be reported back as succeeded, failed, requeued or dropped.

    `reasons` holds the first three and the last five, oldest first; `omitted` counts those between. `queued_at` is the
    time, in seconds, since which the key has been ready. `attempt` is 1, plus 1 for each consecutive failure.
    """

    key: K
    reasons: tuple[R, ...]
    omitted: int
    queued_at: float
    attempt: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The queue at one moment: the numbers of keys in each state, and counts since its creation.

    `ready` counts all keys that could be dequeued now, and `backlog` the part of them with the lower priority.
    `delayed_by_failure` counts those that back off after a failure, and `scheduled` those with a requested delay.
    `oldest_queued_at` is the time, in seconds, since which the longest waiting key has been ready. `adds` counts the
    accepted adds, and `merged` the part of them that joined a run that was already waiting.
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
    """A coming or current run of a key, with its reasons."""

    # A plain class with slots, because one is created for every change, and a dataclass would cost more each time.
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
        # Invariant: len(reasons) <= 8, and len(reasons) + omitted is the number of reasons noted.
        self.reasons = reasons
        self.omitted = 0
        self.priority: Priority = priority
        self.queued_at = queued_at
        self.failures = 0
        self.state: State = "ready"
        # The time, in seconds, when a delayed entry becomes ready. It has no meaning in other states.
        self.due = 0.0
        # Invariant: ticket != 0 exactly while the entry is delayed. It is then the ticket of its valid place.
        self.ticket = 0
        # The reasons added since the key was dequeued, for the run after the one in hand. Invariant: following is not
        # None implies state == "in hand" and following.state in ("ready", "scheduled").
        self.following: Entry[K, R] | None = None

    def note(self, reason: R) -> None:
        """Add a reason. Of many, keep the first (the original causes) and the last (the current ones).

        A repeated reason, such as one failure after another, is only counted. Otherwise it would push out the causes.
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
        """Add the reasons of a later entry, and raise the priority to the later entry's if that is higher."""
        for reason in other.reasons:
            self.note(reason)
        self.omitted += other.omitted
        self.raise_to(other.priority)

    def raise_to(self, priority: Priority) -> None:
        """Raise the entry to this priority if it is higher than its own."""
        if priority < self.priority:
            self.priority = priority


def scheduled_entry(key: K, reason: R, priority: Priority, due: float) -> Entry[K, R]:
    """Return a new entry that becomes ready at `due`."""
    entry = Entry(key, (reason,), priority, due)
    entry.state = "scheduled"
    entry.due = due
    return entry


@check_keywords
@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential back-off, in seconds: `base * 2**n` after `n` earlier failures, but never more than `maximum`.

    Delays have no jitter. The keys of a controller share one process, so no herd needs to be broken up, and without
    randomness a failing run can be replayed to the second.

    Args:
        base: the delay after the first failure.
        maximum: the longest delay.

    Raises:
        InvalidArgument: if `base` is not a finite number above 0, or `maximum` is not a finite number >= `base`.
    """

    base: float = 0.005
    maximum: float = 1000.0

    def __post_init__(self) -> None:
        if not (_is_finite(self.base) and self.base > 0):
            raise InvalidArgument(f"Backoff.base is {self.base!r}: it must be a finite number of seconds above 0")
        if not (_is_finite(self.maximum) and self.maximum >= self.base):
            raise InvalidArgument(
                f"Backoff.maximum is {self.maximum!r}: "
                f"it must be a finite number of seconds, at least base ({self.base!r})"
            )

    def delay(self, failures: int) -> float:
        """Return the delay, in seconds, after a failure that followed `failures` earlier ones.

        Raises:
            ValueError: if `failures` is negative.
        """
        if failures < 0:
            raise ValueError(f"failures is {failures!r}: it must be a count, 0 or more")
        try:
            return min(math.ldexp(self.base, failures), self.maximum)
        except OverflowError:
            return self.maximum


def _is_finite(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
