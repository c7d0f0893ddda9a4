"""What the holder of a lease knows of its term, by its own clock alone. Pure.

The holder's time begins before the request that took or renewed the lease was sent, the server's when it was answered;
so, while both clocks run alike, the holder's ends first. What is cut off of it (`SURE`) is for clocks that don't, and
for what the holder does to end in. A process whose garbage collector stops it for long needs more of it.
"""

from __future__ import annotations

SURE = 0.8
"""The part of a ttl for which a holder counts on its lease."""


def counted(ttl: float, pause: float) -> float:
    """Return for how many seconds of a ttl a holder counts on its lease, where the process may pause for ``pause``.

    One pause may come before the holder hears that its time is over, and another one while it ends. At least half of
    the ttl stays: with less there would be no time to renew the lease.
    """
    return min(ttl * SURE, max(ttl / 2, ttl - 2 * pause))


class LeaseTerm:
    """A term, from its holder's side. Every time is a reading of one monotonic clock, in seconds.

    Attributes:
        until: up to when the lease is surely held.
        lost: it is not held any more, and in this term never will be.
    """

    __slots__ = ("lost", "number", "ttl", "until")

    def __init__(self, number: int, ttl: float, sent_at: float, pause: float = 0.0) -> None:
        self.number = number
        self.ttl = ttl
        self.until = sent_at + counted(ttl, pause)
        self.lost = False

    def is_held(self, now: float) -> bool:
        """Whether the lease is surely held. Once it was not, it never is again."""
        self.lost = self.lost or now >= self.until
        return not self.lost

    def kept(self, sent_at: float, now: float, pause: float = 0.0) -> None:
        """A renewal that was sent at that time has been granted. One that comes too late changes nothing."""
        if self.is_held(now):
            self.until = max(self.until, sent_at + counted(self.ttl, pause))
