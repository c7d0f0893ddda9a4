"""What a controller's keys came to: those that are not done, and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.resource import Key, ResourceId

KEPT = 1000
"""How many keys that are not done are kept with their errors; the others are counted."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """A key whose last reconcile didn't end well, or was put off.

    Attributes:
        outcome: ``failed`` and tried again, ``permanent`` and not tried again until something changes, or ``slowed``
            because it triggers itself.
        error: the class and the text of what was raised; for a slowed one what it wrote.
        attempts: how often in a row.
        at: when that was, on Trio's clock, in seconds.
        until: when it is tried again, at the latest; None: not before something changes.
        timed_out: True if its deadline passed before it ended.
    """

    id: ResourceId
    outcome: Literal["failed", "permanent", "slowed"]
    error: str
    attempts: int
    at: float
    until: float | None
    timed_out: bool = False


class Results:
    """The keys of one run that are not done.

    Attributes:
        not_done: each with what is known of it; None beyond the first `KEPT`.
    """

    def __init__(self) -> None:
        self.not_done: dict[Key, NotDone | None] = {}

    def note(self, result: NotDone) -> None:
        """A key isn't done."""
        key = result.id.key
        # Texts, and not the errors, which would keep everything alive that their tracebacks reach.
        known = self.not_done.get(key)
        self.not_done[key] = result if known is not None or len(self.not_done) < KEPT else None

    def done(self, key: Key) -> None:
        """A key is done."""
        self.not_done.pop(key, None)

    def list(self) -> tuple[NotDone, ...]:
        """Those of which something is known, by partition, namespace and name."""
        return tuple(self.not_done[key] for key in sorted(self.not_done) if self.not_done[key] is not None)  # type: ignore[misc]  # just looked at
