"""The work queue: keys with reasons in, one key at a time out. Pure: time is an argument, in seconds.

The rules:

1. A key is in hand at most once. What is added while it is in hand runs once more, after it has been reported
   back.
2. No add is lost: after it, unless the queue is closed, the key is taken at least once.
3. Adds of a key that waits merge into one run: their reasons are kept (the first three, the last five, the
   number of the others), and the best of their priorities counts.
4. A change is looked at at once: a direct add makes a delayed key ready, and the delay it overrides never
   fires. Of several delays of one key the earliest counts.
5. A failed key rests, longer each time, until it succeeds, is dropped or asks to be requeued; its reasons
   stay with it, for nobody has acted on them yet. A change in the meantime ends the rest but not the count.
6. What was asked for later, by a delayed add or a requeue, is *scheduled*; all else that waits or is in hand
   is *owed*.
7. Closed is closed: nothing is added or handed out any more; what is owed can still be read.
8. A call that is refused changes nothing.

The theory: each key has one entry, in one of four states.

    absent ── add ──► ready ── take ──► in hand ── succeeded, dropped ──► absent
                        ▲                 │  │
                        │ add, due        │  └── requeue_after ──► scheduled
                        ├── backing off ◄─┘ failed                     │
                        └──────────────────────────────────────────────┘ add, due

An entry in hand can carry a *following* entry: what has been added since the take. Reporting back puts it in
the place of the first, which is how a dirty key comes back once, at the end of the line, whatever became of
the run in hand.

What is ready stands in two lanes (`_priorities.py`), what is delayed in a heap (`_delays.py`). The counts
that nobody needs in the common path are derived, never kept: an add, take and success of one key touch the
dictionary three times, one lane twice, and the heap never.
"""

import math
from collections.abc import Iterable
from typing import Final, Generic

from headway.queue._backoff import Backoff
from headway.queue._delays import Delays
from headway.queue._entry import BACKLOG, LIVE, Entry, K, NotInHandError, Priority, QueueStatistics, R, Taken
from headway.queue._priorities import Lanes

LIVE_PER_BACKLOG: Final = 8
"""Live keys that may go before a waiting backlog key, unless the queue was told otherwise."""


class WorkQueue(Generic[K, R]):
    """Which key, when. All times and delays are in seconds, on whatever monotonic clock the caller keeps.

    Args:
        backoff: how long a key rests after it has failed.
        live_per_backlog: after this many live keys in a row one waiting backlog key goes first.

    Raises:
        ValueError: `live_per_backlog` is below 1.
    """

    __slots__ = ("_adds", "_backing_off", "_backoff", "_closed", "_delays", "_entries", "_lanes", "_merged")

    def __init__(self, backoff: Backoff | None = None, *, live_per_backlog: int = LIVE_PER_BACKLOG) -> None:
        self._backoff = Backoff() if backoff is None else backoff
        # Invariant: an entry is in _lanes exactly while it is ready, and in _delays exactly while it is
        # backing off or scheduled; all others in _entries are in hand. A following entry is in none of the
        # three.
        self._entries: dict[K, Entry[K, R]] = {}
        self._lanes: Lanes[K, R] = Lanes(live_per_backlog)
        self._delays: Delays[K, R] = Delays()
        # Invariant: _backing_off == the entries in _delays whose state is "backing off".
        self._backing_off = 0
        self._closed = False
        self._adds = 0
        self._merged = 0

    # ---- in

    def add(self, key: K, reason: R, now: float, *, priority: Priority = LIVE) -> None:
        """Queue a key at once.

        A key that waits merges, one that is delayed becomes ready, and one in hand runs once more when it is
        reported back. On a closed queue this does nothing.

        Raises:
            ValueError: `priority` is neither LIVE nor BACKLOG.
        """
        if priority:
            _check_priority(priority)
        if self._closed:
            return
        self._adds += 1
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = entry = Entry(key, (reason,), priority, now)
            self._lanes.append(entry)
        else:
            self._add_known(entry, reason, now, priority)

    def add_all(self, keys: Iterable[K], reason: R, now: float, *, priority: Priority = LIVE) -> None:
        """Queue many keys at once for one reason: `add` for each of them, in order.

        Raises:
            ValueError: `priority` is neither LIVE nor BACKLOG.
        """
        _check_priority(priority)
        if self._closed:
            return
        entries, append = self._entries, self._lanes.append
        added = 0
        # One for all of them: as many tuples more would be as many objects more for the garbage collector.
        reasons = (reason,)
        for key in keys:
            added += 1
            entry = entries.get(key)
            if entry is None:
                entries[key] = entry = Entry(key, reasons, priority, now)
                append(entry)
            else:
                self._add_known(entry, reason, now, priority)
        self._adds += added

    def add_after(self, key: K, reason: R, due: float, now: float, *, priority: Priority = LIVE) -> None:
        """Queue a key at the time `due`; when that isn't after `now`, this is `add`.

        For a key that is delayed already the earlier time counts; a key that is ready takes the reason and
        nothing else. Such an add is scheduled, not owed: a change that must not be missed goes through `add`.

        Raises:
            ValueError: `due` isn't finite, or `priority` is neither LIVE nor BACKLOG.
        """
        _check_finite("due", due)
        _check_priority(priority)
        if due <= now:
            self.add(key, reason, now, priority=priority)
        elif not self._closed:
            self._adds += 1
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = entry = _scheduled_entry(key, reason, priority, due)
                self._delays.put(entry, due)
            else:
                self._add_known_after(entry, reason, due, priority)

    # ---- out

    def promote(self, now: float) -> None:
        """Make ready what is due at `now`, in order of due time. `take` does this by itself."""
        if self._closed:
            return
        while (entry := self._delays.pop_due(now)) is not None:
            if entry.state == "backing off":
                self._backing_off -= 1
            self._ready(entry, entry.due)

    def take(self, now: float) -> Taken[K, R] | None:
        """Hand out the next ready key; None when there is none or the queue is closed.

        The key is in hand from now on, until it is reported back by exactly one of `succeeded`, `failed`,
        `requeue_after`, `dropped` and `rest`.
        """
        if self._closed:
            return None
        if self._delays:
            self.promote(now)
        entry = self._lanes.pop()
        if entry is None:
            return None
        entry.state = "in hand"
        return Taken(entry.key, entry.reasons, entry.omitted, entry.queued_at, entry.failures + 1)

    # ---- back

    def succeeded(self, key: K, now: float) -> None:
        """Report that the key in hand is done. Its failures are forgotten.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        following = self._in_hand(key).following
        if following is None:
            del self._entries[key]
            if not self._entries:
                # Emptied key by key it would keep the room for all that it has ever held at once.
                self._entries.clear()
        else:
            self._entries[key] = following
            self._queue(following, now)

    def failed(self, key: K, reason: R, now: float) -> float:
        """Report that the key in hand has failed, and return the seconds until it is ready again.

        A key that was added again while it was in hand is ready at once, and this returns 0.0: a change may
        have mended what failed. The failure counts all the same.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        entry = self._in_hand(key)
        delay = self._backoff.delay(entry.failures)
        due = now + delay
        entry.failures += 1
        following, entry.following = entry.following, None
        entry.note(reason)
        if following is not None:
            entry.absorb(following)  # after the failure: it is what causes the next run
            if following.state == "ready":
                self._ready(entry, following.queued_at)
                return 0.0
            if following.due < due:
                due, delay = following.due, max(following.due - now, 0.0)
        if due <= now:
            self._ready(entry, due)
        else:
            entry.state = "backing off"
            self._backing_off += 1
            self._delays.put(entry, due)
        return delay

    def requeue_after(self, key: K, delay: float, reason: R, now: float) -> None:
        """Report that the key in hand is done and wants to run again in `delay` seconds; 0 or less is at
        once.

        That isn't a failure: its failures are forgotten. A key that was added again while it was in hand is
        ready at once, whatever the delay.

        Raises:
            NotInHandError: the key isn't in hand.
            ValueError: `delay` isn't finite.
        """
        _check_finite("delay", delay)
        following = self._in_hand(key).following
        again: Entry[K, R] = _scheduled_entry(key, reason, LIVE, now + max(delay, 0.0))
        if following is not None:
            following.note(reason)
            following.raise_to(LIVE)
            following.due = min(following.due, again.due)
            again = following
        self._entries[key] = again
        self._queue(again, now)

    def dropped(self, key: K, now: float) -> None:
        """Report that the key in hand was given up for good. Its failures are forgotten; what was added
        since, runs.

        For the queue that is the same as success: nothing of this run is owed any more. A reconcile that is
        cut off because its run ends must *not* be dropped: left in hand, it is among what the run still owes.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        self.succeeded(key, now)

    def rest(self, key: K, delay: float, now: float) -> None:
        """Report that the key in hand is to rest: its run is put off for `delay` seconds, and is still owed.

        It keeps its reasons and its failures; as with a failed key, a change ends the rest.

        Raises:
            NotInHandError: the key isn't in hand.
            ValueError: `delay` isn't finite.
        """
        _check_finite("delay", delay)
        entry = self._in_hand(key)
        following, entry.following = entry.following, None
        if following is not None:
            entry.absorb(following)
        if following is not None or delay <= 0:
            self._ready(entry, now)
        else:
            entry.state = "backing off"
            self._backing_off += 1
            self._delays.put(entry, now + delay)

    def close(self) -> None:
        """Stop: adds are ignored, nothing is handed out. Keys in hand can still be reported back."""
        self._closed = True

    # ---- seen from outside

    @property
    def closed(self) -> bool:
        """Whether the queue has been closed."""
        return self._closed

    def ready_count(self) -> int:
        """Return how many keys could be taken, as of the last `take` or `promote`."""
        return len(self._lanes)

    def next_due(self) -> float | None:
        """Return the time at which the soonest delayed key becomes ready; None when none will."""
        return None if self._closed else self._delays.next_due()

    def is_idle(self) -> bool:
        """Whether nothing is owed: nothing is ready, in hand or resting after a failure."""
        return len(self._entries) == len(self._delays) - self._backing_off

    def owed(self) -> list[K]:
        """Return the keys whose last change has not been acted on: what a run that ends now leaves undone."""
        owed = [key for key, entry in self._entries.items() if entry.state != "scheduled"]
        # Those in hand last: one of them may have ended the run, and would end the next one before any other key.
        return sorted(owed, key=lambda key: self._entries[key].state == "in hand")

    def scheduled(self) -> dict[K, float]:
        """Return the keys that only wait for a delay that was asked for, and when each is due."""
        return {key: entry.due for key, entry in self._entries.items() if entry.state == "scheduled"}

    def statistics(self) -> QueueStatistics:
        """Count the queue, as of the last `take` or `promote`. This looks at every ready key."""
        ready, delayed = len(self._lanes), len(self._delays)
        return QueueStatistics(
            ready=ready,
            backlog=self._lanes.backlog_size(),
            delayed_by_failure=self._backing_off,
            scheduled=delayed - self._backing_off,
            in_hand=len(self._entries) - ready - delayed,
            oldest_queued_at=min((entry.queued_at for entry in self._lanes), default=None),
            adds=self._adds,
            merged=self._merged,
        )

    # ---- within

    def _in_hand(self, key: K) -> Entry[K, R]:
        entry = self._entries.get(key)
        if entry is None or entry.state != "in hand":
            state = "not in the queue" if entry is None else entry.state
            raise NotInHandError(f"key {key!r} is {state}, not in hand: report a key back exactly once for each take")
        return entry

    def _ready(self, entry: Entry[K, R], queued_at: float) -> None:
        entry.state = "ready"
        entry.queued_at = queued_at
        self._lanes.append(entry)

    def _queue(self, entry: Entry[K, R], now: float) -> None:
        """Give an entry that was beside the queue its place in it."""
        if entry.state == "ready":
            self._lanes.append(entry)
        elif entry.due <= now:
            self._ready(entry, entry.due)
        else:
            self._delays.put(entry, entry.due)

    def _add_known(self, entry: Entry[K, R], reason: R, now: float, priority: Priority) -> None:
        """Add a key that has an entry."""
        if entry.state == "in hand":
            if entry.following is None:
                entry.following = Entry(entry.key, (reason,), priority, now)
                return
            entry = entry.following
            if entry.state == "scheduled":
                entry.state = "ready"
                entry.queued_at = now
            entry.raise_to(priority)
        elif entry.state == "ready":
            if priority < entry.priority:
                self._lanes.make_live(entry)
        else:
            self._delays.discard(entry)
            if entry.state == "backing off":
                self._backing_off -= 1
            entry.raise_to(priority)
            self._ready(entry, now)
        self._merged += 1
        entry.note(reason)

    def _add_known_after(self, entry: Entry[K, R], reason: R, due: float, priority: Priority) -> None:
        """Add a key that has an entry, not before `due`."""
        if entry.state == "in hand":
            if entry.following is None:
                entry.following = _scheduled_entry(entry.key, reason, priority, due)
                return
            entry = entry.following
            if entry.state == "scheduled":
                entry.raise_to(priority)
                entry.due = min(entry.due, due)
        elif entry.state != "ready":
            entry.raise_to(priority)
            if due < entry.due:
                self._delays.discard(entry)
                self._delays.put(entry, due)
        self._merged += 1
        entry.note(reason)


def _scheduled_entry(key: K, reason: R, priority: Priority, due: float) -> Entry[K, R]:
    entry = Entry(key, (reason,), priority, due)
    entry.state = "scheduled"
    entry.due = due
    return entry


def _check_priority(priority: int) -> None:
    if priority not in (LIVE, BACKLOG):
        raise ValueError(f"priority is {priority!r}: it must be LIVE (0) or BACKLOG (1)")


def _check_finite(name: str, seconds: float) -> None:
    if not math.isfinite(seconds):
        raise ValueError(f"{name} is {seconds!r}: it must be a finite number of seconds")
