"""The journal of an engine: a part for each controller, and one for the writes. No I/O; the clock is an argument.

A part never takes memory from another one: the writes have a quarter, and each controller an equal part of the rest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headway.base import own_frames, story
from headway.events import Reconciled, Report, receives_successes
from headway.journal._entries import ENTRY, PART, EntryKey, Happened, Ran, TurnedAway
from headway.journal._ring import Ring
from headway.journal._writes import Sink, WriteJournal

JOURNAL_BYTES = 16 << 20
"""The default memory of an engine's journal, in bytes."""

SLOT = ENTRY + 6 * PART
"""The memory that counts for a reconcile with one reason and one read. Larger ones take several slots."""

_OF_SUCCESS = 7
"""The number of fields of `ControllerJournal.succeeded`."""


Succeeded = tuple[float, Any, str, float, float | None, Any, Any]


class Journal:
    """The journal of an engine.

    Args:
        size: the memory that its entries may take, in bytes.
        clock: returns the time of entries that have none of their own.
        sink: receives every entry as it is added.

    Attributes:
        writes: the writes that this process has committed.
    """

    def __init__(self, size: int, clock: Callable[[], float], sink: Sink | None = None) -> None:
        self._size = size
        self._clock = clock
        self._sink = sink
        self._controllers: dict[str, ControllerJournal] = {}
        self.writes = WriteJournal(size // 4, clock, sink)

    def of(self, controller: str) -> ControllerJournal:
        """Return the part of a controller. The parts of all others shrink to make room for a new one."""
        part = self._controllers.get(controller)
        if part is None:
            self._controllers[controller] = part = ControllerJournal(controller, self._clock, self._sink)
            share = (self._size - self._size // 4) // len(self._controllers)
            for each in self._controllers.values():
                each.resize(share)
        return part


class ControllerJournal:
    """The part of one controller.

    Attributes:
        turned_away: the last change of each resource that a predicate turned away. They are kept apart, so that a type
            that changes all the time does not drop the runs.
        succeeded: records a reconcile with at most one reason and with one read, that has written nothing and has not
            failed. Most are like that, so this does as little as possible: what an answer needs is computed when it is
            asked for. The fields are when it ended, its `Dequeued`, its outcome, when it began, the delay until the
            next attempt, and its read as `cache.READING` has it.
    """

    succeeded: Callable[[Succeeded], None]

    def __init__(self, controller: str, clock: Callable[[], float], sink: Sink | None) -> None:
        self._controller = controller
        self._clock = clock
        self._sink = sink
        # The arguments of `succeeded` or of `ran`. An entry is followed by None for each further slot that it takes.
        self._runs: deque[tuple[Any, ...] | None] = deque(maxlen=0)
        self._events: Ring[Happened] = Ring(0)
        self._most_turned_away = 0
        self.succeeded = self._runs.append
        self.turned_away: OrderedDict[tuple[Any, EntryKey], TurnedAway] = OrderedDict()

    def resize(self, limit: int) -> None:
        """Set the memory of the part, in bytes: six tenths for runs, three for events, one for turned-away changes."""
        self._runs = deque(self._runs, maxlen=limit * 6 // 10 // SLOT)
        # Without a sink, the method of the deque itself: a reconcile is worth a few microseconds.
        self.succeeded = self._runs.append if self._sink is None else self._succeeded
        self._events.limit = limit * 3 // 10
        self._most_turned_away = limit // 10 // ENTRY

    def _succeeded(self, fields: Succeeded) -> None:
        self._runs.append(fields)
        assert self._sink is not None
        self._sink(self._controller, _ran(fields))

    def ran(
        self,
        at: float,
        key: EntryKey,
        outcome: str,
        seconds: float,
        waited: float,
        attempt: int,
        reasons: tuple[Any, ...],
        reads: Sequence[Any],
        writes: Sequence[Any],
        error: str,
        traceback: str,
        retry_after: float | None,
    ) -> None:
        """Record a reconcile, by the fields of a `Ran`. ``reads`` is flat, as `cache.READING` has it."""
        fields = (
            *(at, key, outcome, seconds, waited, attempt, reasons, tuple(reads), tuple(writes) if writes else ()),
            *(error, traceback, retry_after),
        )
        size = ENTRY + PART * (4 * len(reasons) + len(reads))
        if writes or error:
            size += PART * len(writes) + 4 * (len(error) + len(traceback))
        self._runs.append(fields)
        self._runs.extend([None] * min((size - 1) // SLOT, (self._runs.maxlen or 1) - 1))
        if self._sink is not None:
            self._sink(self._controller, _ran(fields))

    def turn_away(self, type: Any, key: EntryKey, revision: int, predicate: str) -> None:
        """Record that a predicate turned a change away."""
        entry = TurnedAway(self._clock(), type, key, revision, predicate)
        known = self.turned_away
        known[type, key] = entry
        known.move_to_end((type, key))
        if len(known) > self._most_turned_away:
            known.popitem(last=False)
        if self._sink is not None:
            self._sink(self._controller, entry)

    def note(self, event: object) -> None:
        """Record an event."""
        entry = Happened(self._clock(), type(event).__name__, without_errors(vars(event)))
        self._events.add(entry, entry.size())
        if self._sink is not None:
            self._sink(self._controller, entry)

    def around(self, report: Report) -> Report:
        """Return a report that records each event, and then passes it on. Reconciles are recorded by `ran`."""

        def noted(event: object) -> None:
            if type(event) is not Reconciled:
                self.note(event)
            report(event)

        noted.failures_only = not receives_successes(report)  # type: ignore[attr-defined]  # see `events.Report`
        return noted

    def runs_of(self, key: EntryKey) -> Iterator[Ran]:
        """Yield the recorded reconciles of a key, the newest first."""
        return (_ran(each) for each in reversed(self._runs) if each is not None and _key_of(each) == key)

    def turned_away_of(self, kind: tuple[str, str], key: EntryKey) -> list[TurnedAway]:
        """Return the last change of a resource that a predicate turned away, one for each version of its kind."""
        return [each for (type, of), each in self.turned_away.items() if of == key and type.unversioned == kind]

    def events(self, *what: str) -> Iterator[Happened]:
        """Yield the recorded events with these names, the newest first."""
        return (each for each in self._events.newest() if each.what in what)

    @property
    def complete(self) -> bool:
        """True if no reconcile has been dropped yet."""
        return len(self._runs) < (self._runs.maxlen or 0)


def _key_of(fields: tuple[Any, ...]) -> EntryKey:
    key: EntryKey = fields[1].key if len(fields) == _OF_SUCCESS else fields[1]
    return key


def _ran(fields: tuple[Any, ...]) -> Ran:
    """Return the entry that the arguments of `succeeded` or `ran` stand for."""
    if len(fields) == _OF_SUCCESS:
        at, taken, outcome, began, retry_after, *flat = fields
        key, seconds, waited = taken.key, at - began, began - taken.queued_at
        attempt, reasons, writes, error, traceback = taken.attempt, taken.reasons, (), "", ""
    else:
        at, key, outcome, seconds, waited, attempt, reasons, flat, writes, error, traceback, retry_after = fields
    reads = tuple(zip(flat[::2], flat[1::2], strict=True))
    return Ran(at, key, outcome, seconds, waited, attempt, reasons, reads, writes, error, traceback, retry_after)


def without_errors(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event, with texts in place of exceptions."""
    plain = {name: story(value) if isinstance(value, BaseException) else value for name, value in fields.items()}
    error = fields.get("error")
    if isinstance(error, BaseException):
        plain["traceback"] = own_frames(error)
    return plain
