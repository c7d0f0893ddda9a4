"""The fights of a run: resources that it and other writers change back and forth. No I/O.

Each resource has *parts*: the fields of its payload, the entries of its metadata, its owner, its statuses, and whether
it exists. A *turn* is a change by another writer to a part whose value a reconcile of this run has set. Another key of
the controller is another writer, too. Writers of different parts have no turns with each other.

The first `COUNTED` changes that directly follow an own write are only counted, because most resources have no more.
From then on, the values of the parts are remembered. A new value is *news*, and so is a turn that was slow. After
`FREE` turns without news, and up to `MORE` by chance, the writers fight, and further changes to known values tell the
keys of this run nothing new. News ends the fight: the next one begins from nothing. A change to other parts than those
that this run sets is part of a fight only if it soon follows another change.

A turn is slow if it takes longer than `SOON`, without the time for which this run has delayed its own part. If a fight
over many resources keeps the queue busy, a turn may take longer: as long as keys wait and as others have their turns.

The time is an argument, in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from headway.base import chance
from headway.cache import Applied
from headway.errors import PayloadError
from headway.protobuf import wire_parts
from headway.resource import DELETION_TIMESTAMP, Key, TypeName, pb
from headway.run import OwnWrites

COUNTED, FREE, MORE = 4, 12, 8
"""The numbers of turns. Chance lets one of two equal writers find the fight first. If both did, each would take the
other's delay for a slow turn."""
LATE = 3
"""The number of changes after which the writer of a change is asked: the answer to an own write may come late."""
SOON = 0.1
EACH, LINES = 0.01, 4.0
"""The time that each turn of another resource adds to that of a turn, in seconds, up to this many times the time that
keys wait in the queue."""
GAP = 300.0
"""The time without a turn after which a resource is forgotten, in seconds. It is longer than `LATE` of the longest
delays."""
MOST_RESOURCES, MOST_VALUES = 20_000, 200_000
"""The numbers of resources and of values of all of them that are remembered at once. Others are not noticed."""
MOST_OF_ONE = 1_000
"""The number of values from which on a resource is not in a fight: it changes too much."""

Part = tuple[str, str | int]
"""A part of a resource, such as ``("payload", 3)`` for the field with this number, or ``("metadata", "color")``."""
EXISTENCE: Part = ("existence", "")
LARGE = 65_536
"""The size, in bytes, from which on a payload is one part with the number 0."""


class Undone(NamedTuple):
    """A change by another writer, with the parts that an own key had set and that it has changed."""

    applied: Applied
    parts: frozenset[Part]


class Fight:
    """A resource that this run and others write in turn. They fight once there are more than `free` turns.

    Attributes:
        free: the number of turns without news that are no fight.
        turns: the number of turns without news.
        undone: the last turn of each key of this run, since they fight.
    """

    __slots__ = (
        *("at", "changed_at", "free", "holders", "key", "known", "news", "number", "recent", "revision", "took"),
        *("turns", "type", "undone", "wrote_at"),
    )

    def __init__(self, type: TypeName, key: Key, now: float) -> None:
        self.type, self.key = type, key
        # The times of the last turn, of the last own write and of the last change, and how long the own write took.
        self.at = self.wrote_at = self.changed_at = now
        self.took = 0.0
        # The last change, the last one with news, and the number of turns of all resources at the last turn.
        self.revision = self.news = self.number = self.turns = 0
        # The key that has set the value of each part that an own key has ever set, or None.
        self.holders: dict[Part, Key | None] = {}
        self.known: set[int] = set()
        self.undone: dict[Key, Undone] = {}
        # The revisions, parts and times of the last changes, and in a fight these changes, whose payloads may be large.
        self.recent: list[tuple[int, tuple[Part, ...], float, Applied | None]] = []
        self.free = _free()

    @property
    def is_on(self) -> bool:
        """True if the writers fight."""
        return self.turns > max(self.free, len(self.known))


class Turns:
    """The resources that this run and others write in turn.

    Attributes:
        wait: how long the last key has waited in the queue, in seconds.
    """

    def __init__(self, own: OwnWrites) -> None:
        self._own = own
        # Those with the oldest turn first.
        self._observed: dict[tuple[TypeName, Key], Fight] = {}
        self._values = self._turns = 0
        self.wait = 0.0

    def compare(self, type: TypeName, applied: Applied, now: float) -> Fight | None:
        """Return the fight that a change is part of, or None if it is news."""
        key, old, _, revision = applied
        own = self._own
        fight = self._observed.get((type, key))
        written = None if old is None else own.find(type, key, int(old.version))
        if fight is None and (written is None or written.by is None):
            return None
        by = None if (write := own.find(type, key, revision)) is None else write.by
        if fight is None or now - fight.at > GAP:
            if written is not None and written.by not in (None, by):
                self._observe(type, key, revision, now)
            return None
        if revision < fight.revision:
            # A late one, which was not compared.
            return None
        if revision > fight.revision:
            fight.revision = revision
            if fight.turns > COUNTED:
                self._learn(fight, applied, now)
            elif written is not None and written.by not in (None, by):
                self._turn(fight, now - fight.at, now)
        return fight if fight.is_on and revision > fight.news else None

    def _observe(self, type: TypeName, key: Key, revision: int, now: float) -> None:
        """Begin to count the turns of a resource, with a first one."""
        while self._observed:
            oldest = next(iter(self._observed.values()))
            if now - oldest.at <= GAP:
                break
            self._forget(oldest)
        if len(self._observed) < MOST_RESOURCES:
            fight = self._observed[type, key] = Fight(type, key, now)
            fight.revision, fight.turns = revision, 1

    def _forget(self, fight: Fight) -> None:
        del self._observed[fight.type, fight.key]
        self._values -= len(fight.known)

    def _turn(self, fight: Fight, took: float, now: float) -> None:
        """Count a turn. If it was slow, count from the beginning."""
        self._turns += 1
        busy = min((self._turns - fight.number) * EACH, self.wait * LINES)
        if took > SOON + busy:
            self._begin_anew(fight)
        fight.turns += 1
        fight.at, fight.number = now, self._turns
        self._observed[fight.type, fight.key] = self._observed.pop((fight.type, fight.key))

    def _begin_anew(self, fight: Fight) -> None:
        self._values -= len(fight.known)
        fight.turns, fight.holders, fight.known, fight.undone, fight.recent = 0, {}, set(), {}, []
        fight.free = _free()

    def _learn(self, fight: Fight, applied: Applied, now: float) -> None:
        """Remember the values of the parts that a change has changed."""
        changed = dict(_changed(applied))
        if now - fight.changed_at > SOON and fight.holders.keys().isdisjoint(changed):
            # No turn has caused it.
            fight.news = fight.revision
        fight.changed_at = now
        fresh = {part: number for part, value in changed.items() if (number := hash((part, value))) not in fight.known}
        if fresh:
            fight.news = fight.revision
            if fight.is_on and not fresh.keys() <= fight.holders.keys():
                self._begin_anew(fight)
                return
            fight.turns = COUNTED + 1
            fight.known.update(fresh.values())
            self._values += len(fresh)
            if len(fight.known) > MOST_OF_ONE or self._values > MOST_VALUES:
                self._forget(fight)
                return
        fight.recent.append((fight.revision, tuple(changed), now, applied if fight.is_on else None))
        if len(fight.recent) > LATE:
            self._look(fight, *fight.recent.pop(0))

    def _look(self, fight: Fight, revision: int, changed: tuple[Part, ...], at: float, applied: Applied | None) -> None:
        """Find out whose values a change has changed."""
        write = self._own.find(fight.type, fight.key, revision)
        by = None if write is None else write.by
        undone: dict[Key, set[Part]] = {}
        for part in changed:
            holder = fight.holders.get(part)
            if holder is not None and holder != by:
                undone.setdefault(holder, set()).add(part)
            if by is not None or part in fight.holders:
                fight.holders[part] = by
        if by is not None:
            # In a fight, this run has delayed its own part.
            fight.took, fight.wrote_at = 0.0 if fight.is_on else at - fight.at, at
        if undone:
            self._turn(fight, fight.took + at - fight.wrote_at, at)
        if fight.is_on and applied is not None:
            fight.undone |= {key: Undone(applied, frozenset(parts)) for key, parts in undone.items()}


def _free() -> int:
    """Return the number of turns of a fight that are free."""
    return FREE + int(chance.random() * MORE)


def _changed(applied: Applied) -> Iterator[tuple[Part, Hashable]]:
    """Yield the parts that a change has changed, with their new values. What every write changes is no part."""
    old, new = applied.old, applied.new
    if old is None or new is None:
        yield EXISTENCE, None if new is None else hash(frozenset(_parts(new).items()))
        return
    before, after = _parts(old), _parts(new)
    for part in before.keys() | after.keys():
        if before.get(part) != (value := after.get(part)):
            yield part, value


def _parts(resource: pb.Resource) -> dict[Part, Hashable]:
    parts: dict[Part, Hashable] = dict(_payload(b"" if resource.data is None else bytes(resource.data.value)))
    if resource.owner is not None:
        parts["owner", ""] = bytes(resource.owner)
    for key, text in resource.metadata.items():
        if key == DELETION_TIMESTAMP:
            parts[EXISTENCE] = "marked"
        else:
            parts["metadata", key] = text
    for key, status in resource.status.items():
        for each in status.conditions:
            parts["status", f"{key}.{each.type}"] = each.state, each.reason, each.message
    return parts


def _payload(data: bytes) -> Iterator[tuple[Part, Hashable]]:
    fields: dict[int, list[Hashable]] = {}
    try:
        for number, wire, value in wire_parts(data) if len(data) < LARGE else [(0, 0, data)]:
            fields.setdefault(number, []).append((wire, value))
    except (PayloadError, IndexError):
        fields = {0: [data]}
    for number, values in fields.items():
        yield ("payload", number), tuple(values)
