"""The keys of one issuer over time: which are known, when to read them again, and until when they are used.

No I/O; times are arguments, in seconds on a clock that never goes back.
"""

from __future__ import annotations

import math

from headway.access._issuers import Issuer
from headway.access._jwks import IssuerKey, Keys

SHORTEST_PAUSE = 10.0
"""The shortest time between two readings of an issuer's keys, in seconds, whatever tokens ask for."""
_FIRST_PAUSE = 1.0
# A server that started while its issuer was down accepts logins at most this long after the issuer is back.
_LONGEST_PAUSE = 60.0


class KeyRing:
    """The keys of an issuer.

    Attributes:
        issuer: the issuer. It may be replaced by one whose keys come from the same place.
        keys: the keys that are known.
        reading: True while they are being read.
        tried_at: the beginning of the last reading.
        failures: the number of readings that have failed since the last successful one.
    """

    def __init__(self, issuer: Issuer, keys: Keys | None = None) -> None:
        self.issuer = issuer
        self.keys = Keys() if keys is None else keys
        self.reading = False
        self.failures = 0
        # Keys that a file gave are not yet checked against a clock: they count from the first reading that fails.
        self._fresh_until = math.inf
        self.tried_at = -math.inf
        self._due = -math.inf
        self._wanted = False

    def find(self, kid: str | None, alg: str) -> IssuerKey | None:
        """Return the only key that a token with this kid and algorithm can be signed with, or None."""
        return self.keys.find(kid, alg)

    def want(self) -> None:
        """Ask for another reading, because a token names a key that is not known."""
        self._wanted = True

    def due(self) -> float:
        """Return the time of the next reading."""
        if not self._wanted:
            return self._due
        # After failures, the growing pause remains: tokens must not make the server call a failing issuer.
        soonest = self.tried_at + SHORTEST_PAUSE
        return self._due if self.failures else min(self._due, soonest)

    def begin(self, now: float) -> None:
        """Note that a reading begins."""
        self.reading, self._wanted, self.tried_at = True, False, now

    def canceled(self) -> None:
        """Note that the reading ended without a result."""
        self.reading = False

    def loaded(self, keys: Keys, now: float) -> None:
        """Replace the keys by those that were read."""
        self.keys = keys
        self.reading, self.failures = False, 0
        self._due = now + self.pause
        self._fresh_until = now + self.issuer.stale_limit

    def failed(self, now: float) -> None:
        """Note that a reading failed, and choose the time of the next one: later after each failure."""
        self.reading = False
        self._fresh_until = min(self._fresh_until, now + self.issuer.stale_limit)
        self._due = now + min(_FIRST_PAUSE * 2.0 ** min(self.failures, 16), self.pause, _LONGEST_PAUSE)
        self.failures += 1

    def drop_if_stale(self, now: float) -> bool:
        """Drop the keys if they have not been read again for too long. Return True if that has dropped any."""
        return now >= self._fresh_until and self.drop()

    def drop(self) -> bool:
        """Drop the keys. Return True if there were any."""
        found = len(self.keys) > 0
        self.keys = Keys()
        return found

    def fresh_for(self, now: float) -> float:
        """Return how many more seconds the keys are used if no reading succeeds."""
        return max(self._fresh_until - now, 0.0) if len(self.keys) else 0.0

    @property
    def pause(self) -> float:
        """The time between two readings, in seconds. A file costs nothing to read, and is read more often."""
        interval = self.issuer.refresh_interval
        return min(interval, SHORTEST_PAUSE) if self.issuer.jwks_file else interval
