"""The values of the queue: priorities, dequeued keys, the state of a key, and statistics. All of them are immutable."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

Priority = Literal[0, 1]
LIVE: Final = 0
"""The priority of a new change."""
BACKLOG: Final = 1
"""The priority of what existed when the run began: after live changes, but never starved by them."""

State = Literal["ready", "backing off", "paced", "scheduled", "in hand"]
"""The state of a key. The queue itself treats a paced key, which waits for the end of its interval, as backing off."""


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
    `delayed_by_failure` counts those that back off after a failure or wait for the end of their interval, and
    `scheduled` those with a requested delay. `oldest_queued_at` is the time, in seconds, since which the longest
    waiting key has been ready. `adds` counts the accepted adds, and `merged` the part of them that joined a run that
    was already waiting.
    """

    ready: int
    backlog: int
    delayed_by_failure: int
    scheduled: int
    in_hand: int
    oldest_queued_at: float | None
    adds: int
    merged: int


class KeyInQueue(NamedTuple, Generic[R]):
    """A key of the queue at one moment. Times are in seconds, on the clock of the queue.

    Attributes:
        state: ready, backing off, paced, scheduled or in hand.
        since: the time since which the key has been pending, through all failures; for a scheduled key, the time when
            it becomes ready, and once the interval of a paced key has ended, that end.
        due: the time when a delayed key becomes ready; 0 in other states.
        attempt: the number of the current or the next attempt.
        following: the reasons that were added since the key is in hand.
    """

    state: State
    since: float
    due: float
    attempt: int
    reasons: tuple[R, ...]
    omitted: int
    following: tuple[R, ...]
