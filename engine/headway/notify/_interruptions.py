"""The interruptions of streams: why, and since when, the data of a type has not been current. No Trio, no I/O.

An interruption ends when the type is complete again. A stream that has to begin with a snapshot does not end it before
the end of the snapshot, and a snapshot that breaks off adds to its failures.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.cache import Informer
from headway.resource import TypeName


@dataclass(slots=True)
class Interruption:
    """An interruption of a type's stream.

    Attributes:
        why: the reason that the last stream ended.
        since: the time, on Trio's clock, at which the first one ended.
        failures: the number of streams that have ended since the type was complete.
    """

    why: str
    since: float
    failures: int = 0


class Interruptions:
    """The interruptions of several types."""

    def __init__(self) -> None:
        self._present: dict[TypeName, Interruption] = {}
        # The counts of the informer of each interrupted type, when they were last seen.
        self._seen: dict[TypeName, tuple[int, int]] = {}

    def note(self, type: TypeName, informer: Informer) -> Interruption | None:
        """Note the state of a type's stream. Return the interruption, or None if there is none."""
        present = self._present.get(type)
        if informer.cut_off is not None:
            why, since = informer.cut_off
            if present is None:
                present = self._present[type] = Interruption(why, since)
                self._seen[type] = 0, informer.received
            present.why = why
            failures, received = self._seen[type]
            # An informer counts anew once a stream has delivered something.
            present.failures += informer.failures - (failures if informer.received == received else 0)
            self._seen[type] = informer.failures, informer.received
        elif present is not None and not (informer.store.primed and informer.store.gathered):
            del self._present[type], self._seen[type]
            present = None
        return present

    def of(self, type: TypeName) -> Interruption | None:
        """Return the interruption of a type, as it was last noted."""
        return self._present.get(type)
