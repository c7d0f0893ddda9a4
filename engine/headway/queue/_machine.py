"""The work queue: keys with reasons go in, one key at a time comes out. No I/O; time is an argument, in seconds.

The rules:

1. A key is in hand at most once. If it is added while in hand, it runs once more after it has been reported back.
2. No add is lost: after it, unless the queue is closed, the key is dequeued at least once.
3. Adds of a waiting key merge into one run. Their reasons are kept (the first three, the last five, and the number of
   the others), and the highest of their priorities counts.
4. A change is handled at once: a direct add makes a delayed key ready, and the overridden delay never fires. Of several
   delays of one key, also of adds that may wait, the earliest counts.
5. A failed key backs off, longer each time, until it succeeds, is dropped or asks to be requeued. It keeps its reasons,
   because they have not been acted on yet. A change in the meantime ends the delay but keeps the count. How long the
   key has been pending bounds the delay, so a burst of changes does not inflate it.
6. A delayed add and a requeue are *scheduled*. Everything else that waits or is in hand is *pending* (`owed`).
7. A closed queue accepts and returns no more keys, but its pending keys can still be read.
8. A rejected call changes nothing.
9. With a minimum interval, a key is not dequeued again before that many seconds have passed since its last dequeue,
   whatever has added it. It is pending for so long, like a key that backs off, and what is added meanwhile is merged.
   Only `end_interval` lets it go earlier.

The design: each key has one entry, in one of four states.

    absent ── add ──► ready ── dequeue ──► in hand ── succeeded, dropped ──► absent
                        ▲                 │  │
                        │ add, due        │  └── requeue_after ──► scheduled
                        ├── backing off ◄─┘ failed                     │
                        └──────────────────────────────────────────────┘ add, due

An entry in hand can have a *following* entry with what has been added since it was dequeued. When the key is reported
back, the following entry replaces the first one. A key that has changed therefore comes back once, at the end of the
line, whatever the result of the run in hand.

Ready entries stand in two lanes, delayed ones in a heap (`_entries.py`). Counts that the common path does not need are
derived and not kept: an add, dequeue and success of one key access the dictionary three times, one lane twice, and the
heap never.
"""

import math
from collections.abc import Iterable

from headway.queue._backoff import Backoff
from headway.queue._entries import LIVE_PER_BACKLOG, Delays, Entry, Lanes, scheduled_entry
from headway.queue._queries import QueueQueries
from headway.queue._values import BACKLOG, LIVE, Dequeued, K, NotInHandError, Priority, R


class WorkQueue(QueueQueries[K, R]):
    """A queue of keys. All times and delays are in seconds, on any monotonic clock of the caller.

    Args:
        backoff: the delay of a key after a failure.
        live_per_backlog: a waiting backlog key goes first after this many consecutive live keys.
        min_interval: the time between two dequeues of one key, at least. Also available as an attribute.

    Raises:
        ValueError: if `live_per_backlog` is below 1.

    The methods that report a key back raise NotInHandError if the key is not in hand. A time or delay that is not
    finite, and an unknown priority, raise ValueError.
    """

    __slots__ = ()

    def __init__(
        self,
        backoff: Backoff | None = None,
        *,
        live_per_backlog: int = LIVE_PER_BACKLOG,
        min_interval: float = 0.0,
    ) -> None:
        self._backoff = Backoff() if backoff is None else backoff
        # Invariant: an entry is in _lanes exactly while it is ready, and in _delays exactly while it is backing off or
        # scheduled. All others in _entries are in hand. A following entry is in none of the three.
        self._entries: dict[K, Entry[K, R]] = {}
        self._lanes: Lanes[K, R] = Lanes(live_per_backlog)
        self._delays: Delays[K, R] = Delays()
        # Invariant: _backing_off is the number of entries in _delays whose state is "backing off".
        self._backing_off = 0
        self.min_interval = min_interval
        # The end of the interval of each key that was dequeued last, in the order of these times. Those that have ended
        # are removed by the next dequeue, so there is at most one for each dequeue of the last interval.
        self._not_before: dict[K, float] = {}
        self._closed = False
        self._adds = 0
        self._merged = 0

    def add(self, key: K, reason: R, now: float, *, priority: Priority = LIVE, due: float = -math.inf) -> None:
        """Enqueue a key at once.

        A waiting key is merged, a delayed one becomes ready, and one in hand runs once more after it has been reported
        back. With a `due` after `now`, a key that is not ready becomes so at `due`, unless it is due earlier, and is
        pending meanwhile. A closed queue ignores this.
        """
        if priority:
            _check_priority(priority)
        later = due > now
        if later:
            _check_finite("due", due)
        if self._closed:
            return
        self._adds += 1
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = entry = Entry(key, (reason,), priority, now)
            if later:
                self._back_off_until(entry, due, now)
            else:
                self._lanes.append(entry)
        elif later:
            self._add_known_later(entry, reason, due, now, priority)
        else:
            self._add_known(entry, reason, now, priority)

    def add_all(self, keys: Iterable[K], reason: R, now: float, *, priority: Priority = LIVE) -> None:
        """Enqueue many keys at once for one reason: call `add` for each of them, in order."""
        _check_priority(priority)
        if self._closed:
            return
        entries, append = self._entries, self._lanes.append
        added = 0
        # All share one tuple, which saves the garbage collector one object for each key.
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
        """Enqueue a key at the time `due`, or at once if that is not after `now`.

        If the key is already delayed, the earlier time counts. If it is ready, only the reason is added. A delayed add
        is scheduled, not pending, so use `add` for a change that must not be missed.
        """
        _check_finite("due", due)
        _check_priority(priority)
        if due <= now:
            self.add(key, reason, now, priority=priority)
        elif not self._closed:
            self._adds += 1
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = entry = scheduled_entry(key, reason, priority, due)
                self._delays.put(entry, due)
            else:
                self._add_known_after(entry, reason, due, priority)

    def promote(self, now: float) -> None:
        """Make the keys ready that are due at `now`, in order of due time. `dequeue` includes this."""
        if self._closed:
            return
        while (entry := self._delays.pop_due(now)) is not None:
            if entry.state == "backing off":
                self._backing_off -= 1
                if not entry.failures and entry.due == self._not_before.get(entry.key):
                    # Only its interval has kept it waiting. It could not be dequeued before.
                    entry.since = entry.due
            else:
                entry.since = entry.due
            self._ready(entry, entry.due)

    def dequeue(self, now: float) -> Dequeued[K, R] | None:
        """Dequeue the next ready key. Return None if no key is ready or the queue is closed.

        The key is in hand until it is reported back by exactly one of `succeeded`, `failed`, `requeue_after`, `dropped`
        and `back_off`.
        """
        if self._closed:
            return None
        heap = self._delays.heap
        if heap and heap[0][0] <= now:
            self.promote(now)
        entry = self._lanes.pop()
        if self.min_interval and entry is not None:
            entry = self._spaced(entry, now)
        if entry is None:
            return None
        entry.state = "in hand"
        # A call of the class would run a function of Python for every key.
        return tuple.__new__(Dequeued, (entry.key, entry.reasons, entry.omitted, entry.queued_at, entry.failures + 1))

    def succeeded(self, key: K, now: float) -> None:
        """Report that the key in hand is done. Its failures are forgotten."""
        following = self._in_hand(key).following
        if following is None:
            del self._entries[key]
            if not self._entries:
                # If only emptied by removals, it would keep the memory for its largest size.
                self._entries.clear()
        else:
            self._entries[key] = following
            self._queue(following, now)

    def failed(self, key: K, reason: R, now: float) -> float:
        """Report that the key in hand has failed, and return the number of seconds until it is ready again.

        A key that was added again while it was in hand is ready at once, and this returns 0.0, because the change may
        have removed the cause. The failure still counts.
        """
        entry = self._in_hand(key)
        # Twice, because doubling alone makes a delay as long as all before it, and sums of times are rounded.
        delay = min(self._backoff.delay(entry.failures), self._backoff.base + 2 * (now - entry.since))
        due = now + delay
        entry.failures += 1
        following, entry.following = entry.following, None
        entry.note(reason)
        begin = max(self._not_before.get(key, now), now)  # one that has ended may still be listed
        if following is not None:
            entry.absorb(following)  # after the failure, because it is the cause of the next run
            if following.state == "ready" and begin <= now:
                self._ready(entry, following.queued_at)
                return 0.0
            sooner = now if following.state == "ready" else following.due
            if sooner < due:
                due, delay = sooner, sooner - now
        if begin > due:
            due, delay = begin, begin - now
        self._back_off_until(entry, due, now)
        return delay

    def requeue_after(self, key: K, delay: float, reason: R, now: float) -> None:
        """Report that the key in hand is done and is to run again in `delay` seconds; 0 or less means at once.

        This is not a failure: earlier failures are forgotten. A key that was added again while it was in hand is ready
        at once, whatever the delay.
        """
        _check_finite("delay", delay)
        following = self._in_hand(key).following
        again: Entry[K, R] = scheduled_entry(key, reason, LIVE, now + max(delay, 0.0))
        if following is not None:
            following.note(reason)
            following.raise_to(LIVE)
            following.due = min(following.due, again.due)
            again = following
        self._entries[key] = again
        self._queue(again, now)

    # A key that was given up permanently is done. The key of a reconcile that was interrupted because its run ends must
    # not be reported back: as long as it stays in hand, it is still pending.
    dropped = succeeded

    def back_off(self, key: K, delay: float, now: float) -> None:
        """Report that the key in hand is to be delayed by `delay` seconds. It is still pending.

        It keeps its reasons and its failures. As with a failed key, a change ends the delay. It was not worked on, so
        no interval begins.
        """
        _check_finite("delay", delay)
        entry = self._in_hand(key)
        self.end_interval(key)
        following, entry.following = entry.following, None
        if following is not None:
            entry.absorb(following)
            self._ready(entry, now)
        else:
            self._back_off_until(entry, now + max(delay, 0.0), now)

    def end_interval(self, key: K) -> None:
        """End the interval of a key, so that the next add makes it ready at once."""
        self._not_before.pop(key, None)

    def close(self) -> None:
        """Close the queue: adds are ignored, and no key is returned. Keys in hand can still be reported back."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """True if the queue has been closed."""
        return self._closed

    def ready_count(self) -> int:
        """Return the number of keys that could be dequeued, as of the last `dequeue` or `promote`."""
        return len(self._lanes)

    def next_due(self) -> float | None:
        """Return when the soonest delayed key becomes ready, or None."""
        return None if self._closed else self._delays.next_due()

    def _spaced(self, entry: Entry[K, R] | None, now: float) -> Entry[K, R] | None:
        """Return this ready entry, or the next one whose interval has ended, and begin its interval.

        The others are delayed until theirs end. Each ready entry passes here, so no way into the lanes need check this.
        """
        ends = self._not_before
        while entry is not None and (end := ends.get(entry.key, now)) > now:
            self._back_off_until(entry, end, now)
            entry = self._lanes.pop()
        while ends and ends[oldest := next(iter(ends))] <= now:
            del ends[oldest]
        if entry is not None:
            # The key is not in `ends`, so this is its last.
            ends[entry.key] = now + self.min_interval
        return entry

    def _in_hand(self, key: K) -> Entry[K, R]:
        entry = self._entries.get(key)
        if entry is None or entry.state != "in hand":
            state = "not in the queue" if entry is None else entry.state
            raise NotInHandError(
                f"key {key!r} is {state}, not in hand: report a key back exactly once for each dequeue"
            )
        return entry

    def _ready(self, entry: Entry[K, R], queued_at: float) -> None:
        entry.state = "ready"
        entry.queued_at = queued_at
        self._lanes.append(entry)

    def _back_off_until(self, entry: Entry[K, R], due: float, now: float) -> None:
        if due <= now:
            self._ready(entry, due)
        else:
            entry.state = "backing off"
            self._backing_off += 1
            self._delays.put(entry, due)

    def _queue(self, entry: Entry[K, R], now: float) -> None:
        """Put an entry that was outside the queue in its place."""
        if entry.state == "ready":
            self._lanes.append(entry)
        elif entry.state == "backing off":
            self._back_off_until(entry, entry.due, now)
        elif entry.due <= now:
            entry.since = entry.due
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
            if entry.state != "ready":
                entry.since = now if entry.state == "scheduled" else entry.since
                entry.state, entry.queued_at = "ready", now
            entry.raise_to(priority)
        elif entry.state == "ready":
            if priority < entry.priority:
                self._lanes.make_live(entry)
        else:
            entry.raise_to(priority)
            if entry.state == "scheduled":
                entry.since = now
            begin = self._not_before.get(entry.key, now)
            # While the interval lasts, most adds only add their reason.
            if begin <= now or entry.due != begin or entry.state == "scheduled":
                self._delays.discard(entry)
                if entry.state == "backing off":
                    self._backing_off -= 1
                if begin <= now:
                    self._ready(entry, now)
                else:
                    self._back_off_until(entry, begin, now)
        self._merged += 1
        entry.note(reason)

    def _add_known_later(self, entry: Entry[K, R], reason: R, due: float, now: float, priority: Priority) -> None:
        """Add a key that has an entry. If it is not ready, it need not be before `due`, but is pending."""
        waiting = entry.following if entry.state == "in hand" else entry
        if waiting is None:
            entry.following = following = Entry(entry.key, (reason,), priority, now)
            following.state, following.due = "backing off", due
        elif waiting.state == "ready":
            self._add_known(entry, reason, now, priority)
        else:
            if waiting.state == "scheduled":
                waiting.state, waiting.since = "backing off", now
                self._backing_off += waiting is entry
            if waiting is not entry:
                waiting.due = min(waiting.due, due)
            elif due < entry.due:
                self._delays.discard(entry)
                self._delays.put(entry, due)
            waiting.raise_to(priority)
            self._merged += 1
            waiting.note(reason)

    def _add_known_after(self, entry: Entry[K, R], reason: R, due: float, priority: Priority) -> None:
        """Add a key that has an entry, not before `due`."""
        if entry.state == "in hand":
            if entry.following is None:
                entry.following = scheduled_entry(entry.key, reason, priority, due)
                return
            entry = entry.following
            if entry.state != "ready":
                entry.raise_to(priority)
                entry.due = min(entry.due, due)
        elif entry.state != "ready":
            entry.raise_to(priority)
            if due < entry.due:
                self._delays.discard(entry)
                self._delays.put(entry, due)
        self._merged += 1
        entry.note(reason)


def _check_priority(priority: int) -> None:
    if priority not in (LIVE, BACKLOG):
        raise ValueError(f"priority is {priority!r}: it must be LIVE (0) or BACKLOG (1)")


def _check_finite(name: str, seconds: float) -> None:
    if not math.isfinite(seconds):
        raise ValueError(f"{name} is {seconds!r}: it must be a finite number of seconds")
