"""The brake of a run: keys that trigger themselves by their own writes are delayed. No I/O.

A reconcile whose write maps back to its own key is called again because of that write. This is fine unless it never
ends. A reconcile counts if all its reasons are writes by earlier reconciles of the same key. After `FREE` of them in a
row the key is delayed, at first for `FIRST` seconds, doubling up to `LONGEST`. A delayed key stays pending. Any other
reason ends the delay at once, and so does a reconcile that writes nothing.

A key whose only reasons are statuses that its own reconcile wrote is always delayed, by `MERGING` seconds and up to
`TICK` more, so that many keys become due at once. A change that arrives in this time is handled by the same reconcile.
The key stays pending, so no change is lost.

A key that fights with another writer (`Fights`) is delayed likewise, when a change that is part of the fight maps to
it, or a write of its own. That delays neither a requeue nor a retry, which comes earlier. A change of another resource
soon afterwards may come from the fight: it lets the key wait for `FIRST` seconds at most, and its delays go on.

The time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from headway.cache import Applied
from headway.events import ControllersFight
from headway.reconcile import Reason
from headway.resource import Key, ResourceId, TypeName
from headway.run._own_writes import OwnWrite, OwnWrites

FREE = 10
"""The number of consecutive reconciles that a key may trigger itself before it is delayed."""
FIRST, LONGEST = 0.1, 60.0
MERGING = 0.05
"""The delay, in seconds, of a key that only its own status has triggered, in case another change follows."""
TICK = 0.005
"""The interval, in seconds, of the times when such keys become due. One wake-up serves all keys of an interval."""

CAUSED = 1.0
"""The time after a change of a fight, in seconds, in which changes of other resources may come from the fight."""

_NEUTRAL = frozenset({"retry", "requeue"})


class Fight(Protocol):
    """Writers that undo each other's changes of a resource. ``undone`` has the keys of this run among them."""

    type: TypeName
    key: Key
    undone: dict[Key, Any]


class Fights(Protocol):
    """The fights of a run. ``wait`` is how long the last key has waited in the queue, in seconds."""

    wait: float

    def compare(self, type: TypeName, applied: Applied, now: float) -> Fight | None:
        """Return the fight that a change is part of, or None. Called for each change, once there are own writes."""
        ...

    def event(self, id: ResourceId, fight: Any, delay: float) -> tuple[ControllersFight, str]:
        """Return the event that a key is delayed because of a fight, and what the key does, as a text."""
        ...

    def is_told(self, key: Key, delay: float, now: float) -> bool:
        """Return True if such an event was reported lately. If not, note that it is."""
        ...


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
    """A key that triggers itself or fights.

    Attributes:
        count: the number of reconciles, or of the delays in a fight.
        fight: the last fight of the key, if it fights.
        seen: the time of the last change that may come from the fight.
        told: True if the delay of a key that fights is reported.
    """

    __slots__ = ("count", "due", "fight", "seen", "told")

    def __init__(self) -> None:
        self.count = 0
        self.due: float | None = None
        self.fight: Fight | None = None
        self.seen, self.told = 0.0, False

    def delay(self, number: int, now: float) -> float:
        """Begin the delay with this number, from 1 on, and return its seconds."""
        # Limit the exponent. Its maximum already gives far more than the longest delay.
        seconds = min(FIRST * 2.0 ** min(number - 1, 20), LONGEST)
        self.due = now + seconds
        return seconds

    def due_by(self, reason: Reason, now: float) -> float:
        """Return when a key is due for a reason that is not part of its fight, but may come from it."""
        fight = self.fight
        if fight is None or now - self.seen > CAUSED or (reason.type, reason.key) == (fight.type, fight.key):
            return now
        self.seen = now
        return min(self.due or now, now + FIRST)


def _merged(now: float) -> float:
    """Return when a key becomes due that is triggered now by its own status."""
    return now + MERGING + -(now + MERGING) % TICK


class SelfTriggers:
    """The keys of one run that were last reconciled because of their own writes.

    Attributes:
        own: the run's own writes.
        writes: these writes by revision. While it is empty, no key has triggered itself.
        loops: those keys. While it is empty, `ended` need not be called.
        fights: the fights of the run, if they are looked for.
        on_fight: reports a delay: its key, the fight, the seconds, and True if only to note it.
    """

    def __init__(self, own: OwnWrites, fights: Fights | None = None) -> None:
        self.own = own
        self.writes = own.latest
        self.loops: dict[Key, _Loop] = {}
        self.fights = fights
        self.on_fight: Callable[[Key, Fight, float, bool], None] = lambda *_: None

    def queued(self, key: Key, reason: Reason, now: float, fight: Fight | None = None) -> float:
        """Note that a key is enqueued for this reason. Return when it becomes due, which is in the past if at once.

        ``fight`` is the fight that the reason is part of.
        """
        write, known = self._caused(key, reason), self.loops.get(key)
        if write is None and fight is not None and key in fight.undone:
            if known is None or known.fight is None:
                known = self.loops[key] = _Loop()
            known.fight = fight
            return self._slowed(key, fight, known, now, own=False)
        if write is None:
            if known is not None and (due := known.due_by(reason, now)) > now:
                if known.fight is not None and key in known.fight.undone:
                    self.on_fight(key, known.fight, due - now, True)
                return due
            self.loops.pop(key, None)
        elif known is not None and known.fight is not None:
            # The other writer will react to it.
            return self._slowed(key, known.fight, known, now, own=True)
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
        known = self.loops.get(key)
        if known is not None and known.fight is not None:
            return None
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
        return Delay(loop.delay(loop.count - FREE, now), loop.count, tuple(writes), False)

    def _slowed(self, key: Key, fight: Fight, loop: _Loop, now: float, *, own: bool) -> float:
        """Return when a key that fights becomes due. Note a new delay, and report it if the other writer has acted."""
        loop.seen = now
        begins = loop.due is None or loop.due <= now
        if begins:
            loop.count, loop.told = loop.count + 1, False
            loop.delay(loop.count, now)
        assert loop.due is not None
        if key in fight.undone and (begins or not (own or loop.told)):
            loop.told = not own
            self.on_fight(key, fight, loop.due - now, own)
        return loop.due

    def is_slowed(self, key: Key, now: float) -> bool:
        """Return True if a key is delayed because of a fight."""
        loop = self.loops.get(key)
        return loop is not None and loop.fight is not None and loop.due is not None and loop.due > now

    def ended(self, key: Key, *, wrote: bool) -> None:
        """Note that a reconcile of the key has ended."""
        if not wrote:
            self.loops.pop(key, None)

    def _caused(self, key: Key, reason: Reason) -> OwnWrite | None:
        """Return the write of this key's own reconcile that is the reason, or None."""
        write = self.own.find(reason.type, reason.key, reason.revision)
        return write if write is not None and write.by == key else None
