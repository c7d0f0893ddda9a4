"""A bound on the failed exchanges of each host. Pure.

A secret has 256 random bits, so it cannot be guessed. The bound limits the reads of the store and the lines of the log
that a caller can cause.
"""

from __future__ import annotations

from collections import OrderedDict, deque

MOST = 20
"""The number of failures of one host within `SECONDS` after which its calls are refused without a look at them."""

SECONDS = 60.0
MOST_HOSTS = 1_000


class Failures:
    """The recent failures by host. Times are in seconds, on any clock that does not go back."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def refuses(self, host: str, now: float) -> bool:
        """Return True if the host has failed too often."""
        times = self._times.get(host)
        if times is None:
            return False
        while times and now - times[0] >= SECONDS:
            times.popleft()
        if not times:
            del self._times[host]
        return len(times) >= MOST

    def add(self, host: str, now: float) -> None:
        """Note a failure. The host whose failure was the longest ago is forgotten if there are too many."""
        self._times.setdefault(host, deque(maxlen=MOST)).append(now)
        self._times.move_to_end(host)
        if len(self._times) > MOST_HOSTS:
            self._times.popitem(last=False)
