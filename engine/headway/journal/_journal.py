"""The journal of an engine: a part for each controller, and one for the writes. No I/O; the clock is an argument.

A part never takes memory from another one: the writes have a quarter, and each controller an equal part of the rest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import repeat
from os import PathLike
from typing import Any, Generic, TypeVar

from headway.base import Count, checked, own_frames, story
from headway.events import Reconciled, Report, receives_successes
from headway.journal._entries import ENTRY, PART, EntryKey, Happened, Ran, TurnedAway
from headway.journal._writes import Sink, WriteJournal

SLOT = ENTRY + 6 * PART
"""The memory that counts for a reconcile with one reason and one read. Larger ones take several slots."""

_WIDTH = 8
"""The number of values that each slot takes."""


@checked(path="'journal.jsonl'", memory="memory=16 << 20")
@dataclass(frozen=True)
class JournalOptions:
    """The file and the memory of a journal: ``journal=headway.journal.JournalOptions(memory=64 << 20)``

    Attributes:
        path: a file to which the journal is also written, one JSON object a line. It is rotated.
        memory: the memory, in bytes, of the record of what the controllers did, from which `Engine.why` answers. 0
            keeps none.

    Raises DeclarationError for an invalid option.
    """

    path: str | PathLike[str] | None = None
    _: KW_ONLY
    memory: Count = 16 << 20


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
            that changes all the time does not push out the reconciles.
        runs: the newest reconciles, the oldest first, as one sequence of values. A tuple for each reconcile would be
            an object that the garbage collector examines three times before it is dropped. Most reconciles succeed at
            once, have one reason and one read, and write nothing. To keep this case cheap, the worker itself adds
            these values for it: when it ended, its key, when it began, since when its key was ready, its attempt, its
            reason, and its read as `cache.READING` has it. Then it passes the values to `added`.
        added: passes on a reconcile that was added to ``runs``; None if there is no sink.
    """

    def __init__(self, controller: str, clock: Callable[[], float], sink: Sink | None) -> None:
        self._controller = controller
        self._clock = clock
        self._sink = sink
        # Invariant: a multiple of `_WIDTH` values. A reconcile that `ran` added has its time, its key, None, and the
        # further arguments of `Ran` as its first values. It is followed by slots of None for its further memory.
        self.runs: deque[Any] = deque(maxlen=0)
        self.added = None if sink is None else self._added
        self._events: Ring[Happened] = Ring(0)
        self._most_turned_away = 0
        self.turned_away: OrderedDict[tuple[Any, EntryKey], TurnedAway] = OrderedDict()

    def resize(self, limit: int) -> None:
        """Set the memory of the part, in bytes: six tenths for runs, three for events, one for turned-away changes."""
        self.runs = deque(self.runs, maxlen=limit * 6 // 10 // SLOT * _WIDTH)
        self._events.limit = limit * 3 // 10
        self._most_turned_away = limit // 10 // ENTRY

    def _added(self, values: Sequence[Any]) -> None:
        assert self._sink is not None
        self._sink(self._controller, _ran(values))

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
        """Record any other reconcile, by the fields of a `Ran`. ``reads`` is flat, as `cache.READING` has it."""
        # Few are ever read, so no `Ran` is made here.
        entry = (outcome, seconds, waited, attempt, reasons, tuple(reads), tuple(writes), error, traceback, retry_after)
        size = ENTRY + PART * (4 * len(reasons) + len(reads))
        if writes or error:
            size += PART * len(writes) + 4 * (len(error) + len(traceback))
        values = (at, key, None, entry, None, None, None, None)
        self.runs += values
        if size > SLOT:
            slots = min((size - 1) // SLOT, (self.runs.maxlen or _WIDTH) // _WIDTH - 1)
            self.runs.extend(repeat(None, _WIDTH * slots))
        if self._sink is not None:
            self._sink(self._controller, _ran(values))

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
        entry = Happened(self._clock(), type(event).__name__, without_errors(_attributes(event)))
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
        values = list(self.runs)
        for begin in range(len(values) - _WIDTH, -1, -_WIDTH):
            if values[begin + 1] == key:
                yield _ran(values[begin : begin + _WIDTH])

    def turned_away_of(self, kind: tuple[str, str], key: EntryKey) -> list[TurnedAway]:
        """Return the last change of a resource that a predicate turned away, one for each version of its kind."""
        return [each for (type, of), each in self.turned_away.items() if of == key and type.unversioned == kind]

    def events(self, *what: str) -> Iterator[Happened]:
        """Yield the recorded events with these names, the newest first."""
        return (each for each in self._events.newest() if each.what in what)

    @property
    def complete(self) -> bool:
        """True if no reconcile has been dropped yet."""
        return len(self.runs) < (self.runs.maxlen or 0)


def _ran(values: Sequence[Any]) -> Ran:
    """Return the reconcile that a slot stands for."""
    at, key, began, queued_at, attempt, reason, *read = values
    if began is None:
        outcome, seconds, waited, attempt, reasons, reads, *more = queued_at
        return Ran(at, key, outcome, seconds, waited, attempt, reasons, _paired(reads), *more)
    return Ran(at, key, "done", at - began, began - queued_at, attempt, (tuple(reason),), _paired(read))


def _paired(reads: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple(zip(reads[::2], reads[1::2], strict=True))


def _attributes(event: object) -> Mapping[str, Any]:
    """Return the attributes of an event. A program may report any value, such as a tuple with names or a text."""
    if hasattr(event, "__dict__"):
        return vars(event)
    names = getattr(event, "__match_args__", ())
    return {name: getattr(event, name) for name in names} if names else {"value": event}


def without_errors(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event, with texts in place of exceptions."""
    plain = {name: story(value) if isinstance(value, BaseException) else value for name, value in fields.items()}
    error = fields.get("error")
    if isinstance(error, BaseException):
        plain["traceback"] = own_frames(error)
    return plain


E = TypeVar("E")


class Ring(Generic[E]):
    """The newest entries that fit within a limit of memory.

    Attributes:
        limit: the memory that all entries together may count for, in bytes.
        dropped: the number of entries that made room for newer ones.
    """

    __slots__ = ("_entries", "_size", "_sizes", "dropped", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = 0
        self._entries: deque[E] = deque()
        # Invariant: the sizes of the entries. `_size` is their sum, and at most `limit` after each `add`.
        self._sizes: deque[int] = deque()
        self._size = 0

    def add(self, entry: E, size: int) -> None:
        """Add an entry of this size, in bytes, and drop the oldest entries until all fit within the limit."""
        self._entries.append(entry)
        self._sizes.append(size)
        self._size += size
        while self._size > self.limit:
            self._entries.popleft()
            self._size -= self._sizes.popleft()
            self.dropped += 1

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        """Yield the entries, the oldest first."""
        return iter(self._entries)

    def newest(self) -> Iterator[E]:
        """Yield the entries, the newest first."""
        return reversed(self._entries)
