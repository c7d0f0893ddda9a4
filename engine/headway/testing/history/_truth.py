"""The truth: what must have happened, reconstructed from everything that was delivered. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headway.resource import Key, Kind
from headway.testing.history._facts import (
    ChangesDelivered,
    DeliveredResource,
    Fact,
    SnapshotDelivered,
    WatchOpened,
    WriteAnswered,
)


class Violation(NamedTuple):
    """A violation: the rule of `headway.testing.HISTORY_RULES` that a history breaks, and a sentence about where."""

    rule: str
    sentence: str


Blame = Callable[[str, str], None]
"""A function that is called with the rule and the sentence of each violation."""


class Known(NamedTuple):
    """A change that has happened, and the source that reported it."""

    change: DeliveredResource
    by: str


class Truth:
    """Every known change, by kind and key.

    If two sources disagree about a revision, that is reported at once, because the truth is unknown then.

    Attributes:
        acknowledged: the acknowledged changes, as (kind, key, revision), with the process that wrote each.
    """

    def __init__(self, facts: Sequence[Fact], blame: Blame) -> None:
        self._blame = blame
        self._keys: dict[Kind, dict[Key, dict[int, Known]]] = {}
        self._sorted: dict[Kind, dict[Key, list[int]]] = {}
        self._changes: dict[Kind, list[tuple[int, Key]]] = {}
        self.acknowledged: dict[tuple[Kind, Key, int], str] = {}
        watches: dict[str, WatchOpened] = {}
        for fact in facts:
            match fact:
                case WatchOpened(watch):
                    watches[watch] = fact
                case SnapshotDelivered(watch, delivered) | ChangesDelivered(watch, delivered):
                    for change in delivered:
                        # To a watch by metadata, a deletion may be a resource that leaves what it selects. `WatchJudge`
                        # compares it with what the others say.
                        if not (change.deleted and watches[watch].metadata):
                            self._add(watches[watch].kind, change, f"watch {watch}")
        answers = [fact for fact in facts if isinstance(fact, WriteAnswered) and fact.outcome == "acknowledged"]
        for answer in answers:
            if answer.stored is not None:
                self._add(answer.kind, answer.stored, f"the answer to {answer.who}")
                self.acknowledged[answer.kind, answer.key, answer.stored.revision] = answer.who
        self._sort()
        for answer in sorted(answers, key=lambda each: each.revision):
            if answer.stored is None:
                self._deleted(answer)
        self._sort()

    def _add(self, kind: Kind, change: DeliveredResource, by: str) -> None:
        change = change._replace(more=False)
        known = (
            self._keys.setdefault(kind, {}).setdefault(change.key, {}).setdefault(change.revision, Known(change, by))
        )
        if known.change != change:
            self._blame(
                "agreed",
                f"{place(kind, change.key)} at {change.revision}: {known.by} says {known.change}, {by} says {change}",
            )

    def _deleted(self, answer: WriteAnswered) -> None:
        """Add the deletion shown by a reply that found nothing stored.

        If the resource existed before the reply's revision, the write deleted it.
        """
        before = self.latest(answer.kind, answer.key, answer.revision)
        if before is None or before.change.deleted:
            if before is not None and before.change.revision == answer.revision:
                self.acknowledged[answer.kind, answer.key, answer.revision] = answer.who
            return
        if before.change.revision == answer.revision:
            self._add(
                answer.kind,
                DeliveredResource(answer.revision, answer.key, "", "", deleted=True),
                f"the answer to {answer.who}",
            )
            return
        change = DeliveredResource(answer.revision, answer.key, before.change.uid, "", deleted=True)
        self._add(answer.kind, change, f"the answer to {answer.who}")
        self.acknowledged[answer.kind, answer.key, answer.revision] = answer.who
        self._sorted[answer.kind][answer.key] = sorted(self._keys[answer.kind][answer.key])

    def _sort(self) -> None:
        for kind, keys in self._keys.items():
            self._sorted[kind] = {key: sorted(changes) for key, changes in keys.items()}
            self._changes[kind] = sorted((revision, key) for key, changes in keys.items() for revision in changes)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds with known changes."""
        return list(self._keys)

    def keys(self, kind: Kind) -> list[Key]:
        """Return the keys with known changes."""
        return list(self._keys.get(kind, ()))

    def at(self, kind: Kind, key: Key, revision: int) -> Known | None:
        """Return the change of a key at a revision."""
        return self._keys.get(kind, {}).get(key, {}).get(revision)

    def latest(self, kind: Kind, key: Key, upto: int) -> Known | None:
        """Return the last change of a key at or below a revision."""
        revisions = self._sorted.get(kind, {}).get(key, [])
        index = bisect_right(revisions, upto)
        return self._keys[kind][key][revisions[index - 1]] if index else None

    def later(self, kind: Kind, key: Key, after: int) -> list[Known]:
        """Return the changes of a key above a revision."""
        revisions = self._sorted.get(kind, {}).get(key, [])
        return [self._keys[kind][key][each] for each in revisions[bisect_right(revisions, after) :]]

    def changes(self, kind: Kind, after: int, upto: int) -> Iterator[tuple[int, Key]]:
        """Iterate over the changes of a kind above ``after`` and up to ``upto``, in order."""
        changes = self._changes.get(kind, [])
        low = bisect_right(changes, after, key=lambda change: change[0])
        high = bisect_right(changes, upto, key=lambda change: change[0])
        return iter(changes[low:high])


def place(kind: Kind, key: Key) -> str:
    """Return the name of a key for a message."""
    return f"{kind[1]} {'/'.join(key)}"
