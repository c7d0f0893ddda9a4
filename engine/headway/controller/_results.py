"""The keys of a controller whose last reconcile did not succeed, and the reasons. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.resource import Key, ResourceId

KEPT = 1000
"""The number of such keys that are kept with their errors. Any others are only counted."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """A key whose last reconcile failed or was delayed.

    Attributes:
        outcome: ``failed`` if it is retried, ``permanent`` if it is not retried until something changes, or ``slowed``
            if
            it is delayed because it triggers itself.
        error: the class and message of the exception; for a slowed key, its writes.
        attempts: the number of consecutive attempts.
        at: the time of the last attempt on Trio's clock, in seconds.
        until: the latest time of the next attempt; None if it waits for a change.
        timed_out: True if the deadline passed before the reconcile ended.
    """

    id: ResourceId
    outcome: Literal["failed", "permanent", "slowed"]
    error: str
    attempts: int
    at: float
    until: float | None
    timed_out: bool = False


class Results:
    """The keys of one run whose last reconcile did not succeed.

    Attributes:
        not_done: the result of each key; None for keys beyond the first `KEPT`.
    """

    def __init__(self) -> None:
        self.not_done: dict[Key, NotDone | None] = {}

    def note(self, result: NotDone) -> None:
        """Record a key that failed or was delayed."""
        key = result.id.key
        # Keep the text and not the exception, whose traceback would keep many objects alive.
        known = self.not_done.get(key)
        self.not_done[key] = result if known is not None or len(self.not_done) < KEPT else None

    def done(self, key: Key) -> None:
        """Record that a key was reconciled successfully."""
        self.not_done.pop(key, None)

    def list(self) -> tuple[NotDone, ...]:
        """Return the known results by partition, namespace and name."""
        return tuple(self.not_done[key] for key in sorted(self.not_done) if self.not_done[key] is not None)  # type: ignore[misc]  # just looked at
