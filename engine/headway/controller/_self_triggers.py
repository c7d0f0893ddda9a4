"""Detection of keys that trigger themselves, which are then delayed and reported.

A reconcile whose write maps back to its own key is called again because of that write. This is fine unless it never
ends. A reconcile counts if all its reasons are writes by earlier reconciles of the same key. After `FREE` of them in a
row the key is delayed, at first for `FIRST` seconds, doubling up to `LONGEST`. A delayed key stays owed. Any other
reason ends the delay at once, and so does a reconcile that writes nothing.

A key whose only reasons are statuses that its own reconcile wrote is always delayed, by `MERGING` seconds. A change
that arrives in this time is handled by the same reconcile. The key stays owed, so no change is lost.

No I/O; the time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headway.controller._own_writes import OwnWrite, OwnWrites
from headway.controller._request import Reason
from headway.resource import Key

FREE = 10
"""The number of consecutive reconciles that a key may trigger itself before it is delayed."""
FIRST, LONGEST = 0.1, 60.0
MERGING = 0.05
"""The delay, in seconds, of a key that only its own status has triggered, in case another change follows."""

_NEUTRAL = frozenset({"retry", "requeue"})


class Delay(NamedTuple):
    """A delay of ``seconds`` for a key before its ``runs``-th consecutive reconcile that these writes triggered.

    ``quiet`` is True if the delay is not reported: it is a usual one, or the key was already delayed and another write
    of its own has triggered it.
    """

    seconds: float
    runs: int
    writes: tuple[OwnWrite, ...]
    quiet: bool


class _Loop:
    __slots__ = ("count", "due")

    def __init__(self) -> None:
        self.count = 0
        self.due: float | None = None


class SelfTriggers:
    """The keys of one run that were last reconciled because of their own writes.

    Attributes:
        writes: the run's own writes. While it is empty, no key has triggered itself.
        loops: those keys. While it is empty, `queued` and `ended` need not be called.
    """

    def __init__(self, own: OwnWrites) -> None:
        self._own = own
        self.writes = own.latest
        self.loops: dict[Key, _Loop] = {}

    def queued(self, key: Key, reason: Reason) -> None:
        """Note that a key was enqueued for this reason."""
        if key in self.loops and not self._caused(key, reason):
            del self.loops[key]

    def delay(self, key: Key, reasons: Iterable[Reason], attempt: int, now: float) -> Delay | None:
        """Return the delay for a key that was dequeued for these reasons, or None."""
        writes: list[OwnWrite] = []
        for reason in reasons:
            write = self._caused(key, reason)
            if write is not None:
                writes.append(write)
            elif attempt == 1 and reason.what not in _NEUTRAL:
                # A later attempt still has the reasons of the earlier ones. New reasons were already noted by `queued`.
                self.loops.pop(key, None)
                return None
        if not writes:
            return None
        loop = self.loops.setdefault(key, _Loop())
        if loop.due is not None:
            left = loop.due - now
            if left <= 0:
                loop.due = None
                return None
            return Delay(left, loop.count, tuple(writes), True)
        loop.count += 1
        if loop.count <= FREE:
            if attempt > 1 or any(write.what != "status" for write in writes):
                return None
            loop.due = now + MERGING
            return Delay(MERGING, loop.count, tuple(writes), True)
        # Limit the exponent. Its maximum already gives far more than the longest delay.
        seconds = min(FIRST * 2.0 ** min(loop.count - FREE - 1, 20), LONGEST)
        loop.due = now + seconds
        return Delay(seconds, loop.count, tuple(writes), False)

    def ended(self, key: Key, *, wrote: bool) -> None:
        """Note that a reconcile of the key has ended."""
        if not wrote:
            self.loops.pop(key, None)

    def _caused(self, key: Key, reason: Reason) -> OwnWrite | None:
        """Return the write of this key's own reconcile that is the reason, or None."""
        write = self._own.find(reason.type, reason.key, reason.revision)
        return write if write is not None and write.by == key else None
