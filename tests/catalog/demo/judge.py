"""The rule for wrong answers while processes are killed and started again.

An answer that names an instance is wrong if the instance has been dead for longer than `BOUND`, counted from its death
or from the last start of the server or of the registrar, whichever is later. The name of the service exists all the
time, so NXDOMAIN is wrong too. SERVFAIL, no instance at all, and a living instance that is missing are not wrong.

`BOUND` is the sum of:

- the interval and the timeout of the check, until the registrar knows;
- the ttl of the registrar's lease and the time between two looks at it, if the registrar is killed before it knows;
- the DNS server's stale limit, if the server is killed before it tells;
- `SLACK`, in which a busy machine does what has become due.

The count begins anew when the server starts, because a lease counts as held for one ttl then, and when the registrar
starts, because it has its lease at once and needs one check.
"""

from __future__ import annotations

from catalog.controllers.registrars import POLL
from catalog.demo.fleet import INTERVAL, STALE_LIMIT, TIMEOUT, TTL
from catalog.demo.lookup import Found

SLACK = 2.0
BOUND = INTERVAL + TIMEOUT + TTL + POLL + STALE_LIMIT + SLACK


class Judge:
    """Judges answers by the deaths and starts so far. All times are readings of one clock."""

    def __init__(self) -> None:
        self._died: dict[str, float] = {}
        self._started = 0.0

    def died(self, host: str, now: float) -> None:
        """Note that an instance has ended."""
        self._died[host] = now

    def starts(self, host: str) -> None:
        """Note that an instance is about to be started."""
        self._died.pop(host, None)

    def controlled(self, now: float) -> None:
        """Note that the server or the registrar has started."""
        self._started = now

    def problem(self, found: Found, asked_at: float) -> str | None:
        """Return the problem of an answer, or None."""
        if found.result == "NXDOMAIN":
            return "the name was denied"
        for host in found.addresses:
            if host in self._died:
                dead = asked_at - max(self._died[host], self._started)
                if dead > BOUND:
                    return f"{host} was answered {dead:.1f} s after its end, and {BOUND:.1f} s are allowed"
        return None
