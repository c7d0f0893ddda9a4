"""Keys that trigger themselves: found, slowed, and told. Pure; time is an argument, in seconds.

A reconcile that writes something which maps back to its own key is called again by its own write. That is as it should
be until it goes on for ever. A reconcile whose every reason is a write of the same key's reconcile before it counts;
from `FREE` such ones in a row on, the key rests before each next one, longer each time. It stays owed while it rests.
Any other reason ends that at once, and so does a reconcile that writes nothing.

A key whose every reason is a status that its own reconcile has written rests from the first time on, for `MERGING`
seconds: a change that comes meanwhile makes one reconcile of the two. The key stays owed, so that no change is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headway.controller._own_writes import OwnWrite, OwnWrites
from headway.controller._request import Reason
from headway.resource import Key

FREE = 10
"""How many reconciles in a row a key may cause itself before it rests."""
FIRST, LONGEST = 0.1, 60.0
MERGING = 0.05
"""For how long, in seconds, a key that only its own status has woken waits for another change."""

_NEUTRAL = frozenset({"retry", "requeue"})


class Rest(NamedTuple):
    """A key is to rest: for ``seconds``, before its ``runs``-th reconcile in a row that these writes caused.

    ``quiet``: nobody is told. It rested already, and another write of its own has woken it, or its rest is usual.
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
        writes: the run's own; while there are none, no key has triggered itself.
        loops: those keys; while there are none, nothing that is queued or ended matters.
    """

    def __init__(self, own: OwnWrites) -> None:
        self._own = own
        self.writes = own.latest
        self.loops: dict[Key, _Loop] = {}

    def queued(self, key: Key, reason: Reason) -> None:
        """A key was queued for this reason."""
        if key in self.loops and not self._caused(key, reason):
            del self.loops[key]

    def rest(self, key: Key, reasons: Iterable[Reason], attempt: int, now: float) -> Rest | None:
        """Whether a key that was taken for these reasons is to rest first."""
        writes: list[OwnWrite] = []
        for reason in reasons:
            write = self._caused(key, reason)
            if write is not None:
                writes.append(write)
            elif attempt == 1 and reason.what not in _NEUTRAL:
                # A later attempt still has the reasons of those before it; a new one was told by `queued`.
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
            return Rest(left, loop.count, tuple(writes), True)
        loop.count += 1
        if loop.count <= FREE:
            if attempt > 1 or any(write.what != "status" for write in writes):
                return None
            loop.due = now + MERGING
            return Rest(MERGING, loop.count, tuple(writes), True)
        # The power is bounded: what is above it is far above the longest rest.
        seconds = min(FIRST * 2.0 ** min(loop.count - FREE - 1, 20), LONGEST)
        loop.due = now + seconds
        return Rest(seconds, loop.count, tuple(writes), False)

    def ended(self, key: Key, *, wrote: bool) -> None:
        """A reconcile of the key has ended."""
        if not wrote:
            self.loops.pop(key, None)

    def _caused(self, key: Key, reason: Reason) -> OwnWrite | None:
        """The write of this very key's reconcile that is the reason."""
        write = self._own.find(reason.type, reason.key, reason.revision)
        return write if write is not None and write.by == key else None
