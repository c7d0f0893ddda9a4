"""A lease's term from its holder's side, by the holder's own clock. No I/O.

The holder counts its ttl from the moment before it sent the request, and the server from the moment of the reply. If
both clocks run at the same rate, the holder's ttl therefore ends first. The holder gives up a further part of the ttl
(all above `SURE`). It allows for clocks that run at different rates, and leaves the holder time to stop its work. A
process with long garbage collection pauses needs a larger part.
"""

from __future__ import annotations

SURE = 0.8
"""The fraction of the ttl during which a holder relies on its lease."""


def counted(ttl: float, pause: float) -> float:
    """Return the number of seconds that a holder can rely on its lease, if its process may pause for ``pause``.

    One pause may delay the holder's deadline, and another one its shutdown. The result is at least half of the ttl,
    because with less there would be no time to renew the lease.
    """
    return min(ttl * SURE, max(ttl / 2, ttl - 2 * pause))


class LeaseTerm:
    """A term, from its holder's side. All times are readings of the same monotonic clock, in seconds.

    Attributes:
        number: the number of the term.
        ttl: the ttl of the lease.
        until: the time until which the lease is certainly held.
        lost: True if the lease is lost. A lost term is never held again.
    """

    __slots__ = ("lost", "number", "ttl", "until")

    def __init__(self, number: int, ttl: float, sent_at: float, pause: float = 0.0) -> None:
        self.number = number
        self.ttl = ttl
        self.until = sent_at + counted(ttl, pause)
        self.lost = False

    def is_held(self, now: float) -> bool:
        """Return True if the lease is certainly held. Once it has returned False, it never returns True again."""
        self.lost = self.lost or now >= self.until
        return not self.lost

    def kept(self, sent_at: float, now: float, pause: float = 0.0) -> None:
        """Extend the term after a renewal sent at ``sent_at``. If the lease is already lost, do nothing."""
        if self.is_held(now):
            self.until = max(self.until, sent_at + counted(self.ttl, pause))
