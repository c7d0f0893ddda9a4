"""The brake of a run: keys that trigger themselves by their own writes are delayed. No I/O.

A reconcile whose write maps back to its own key is called again because of that write. This is fine unless it never
ends. A reconcile counts if all its reasons are writes by earlier reconciles of the same key. After `FREE` of them in a
row the key is delayed, at first for `FIRST` seconds, doubling up to `LONGEST`. A delayed key stays pending. Any other
reason ends the delay at once, and so does a reconcile that writes nothing.

A key whose only reasons are statuses that its own reconcile wrote is always delayed, by `MERGING` seconds and up to
`TICK` more, so that many keys become due at once. A change that arrives in this time is handled by the same reconcile.
The key stays pending, so no change is lost.

The time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headway.reconcile import Reason
from headway.resource import Key
from headway.run._own_writes import OwnWrite, OwnWrites

FREE = 10
"""The number of consecutive reconciles that a key may trigger itself before it is delayed."""
FIRST, LONGEST = 0.1, 60.0
MERGING = 0.05
"""The delay, in seconds, of a key that only its own status has triggered, in case another change follows."""
TICK = 0.005
"""The interval, in seconds, of the times when such keys become due. One wake-up serves all keys of an interval."""

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


def _merged(now: float) -> float:
    """Return when a key becomes due that is triggered now by its own status."""
    return now + MERGING + -(now + MERGING) % TICK


class SelfTriggers:
    """The keys of one run that were last reconciled because of their own writes.

    Attributes:
        own: the run's own writes.
        writes: these writes by revision. While it is empty, no key has triggered itself.
        loops: those keys. While it is empty, `ended` need not be called.
    """

    def __init__(self, own: OwnWrites) -> None:
        self.own = own
        self.writes = own.latest
        self.loops: dict[Key, _Loop] = {}

    def queued(self, key: Key, reason: Reason, now: float) -> float:
        """Note that a key is enqueued for this reason. Return when it becomes due, which is in the past if at once."""
        write = self._caused(key, reason)
        if write is None:
            self.loops.pop(key, None)
        elif write.what == "status":
            loop = self.loops.setdefault(key, _Loop())
            if loop.due is None and loop.count < FREE:
                loop.count += 1
                loop.due = _merged(now)
            if loop.due is not None:
                return loop.due
        return now

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
        merges = attempt == 1 and all(write.what == "status" for write in writes)
        if loop.due is not None:
            left = loop.due - now
            if left <= 0 or (loop.count <= FREE and not merges):
                loop.due = None
                return None
            return Delay(left, loop.count, tuple(writes), True)
        loop.count += 1
        if loop.count <= FREE:
            if not merges:
                return None
            loop.due = _merged(now)
            return Delay(loop.due - now, loop.count, tuple(writes), True)
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
        write = self.own.find(reason.type, reason.key, reason.revision)
        return write if write is not None and write.by == key else None
