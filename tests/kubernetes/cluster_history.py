"""The history of programs on a cluster, in the form in which `headway.testing.History` judges it.

The changes in etcd are a watch like the others. Three differences between a cluster and a store of Headway are undone
before the judgment, so that the same rules apply:

- A read returns the version of its object, but no revision of the cluster. It is placed at the last revision at which
  the object had this version.
- A write that changes nothing returns the stored version, which may be old. It is left out.
- A bookmark does not cover objects that were created and deleted since the item before it. They arrive later, or never
  if the stream cannot be resumed. They are moved before the bookmark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from headway.resource import Key, Kind, pb
from headway.testing import History, Violation
from headway.testing.history import (
    BookmarkDelivered,
    ChangesDelivered,
    DeliveredResource,
    Fact,
    ReadAnswered,
    RecordingChannel,
    SnapshotDelivered,
    SnapshotEnded,
    WatchOpened,
)
from headway.testing.history._facts import Entries, delivered_resource
from tests.helpers.truth import Commit

_EVERYTHING = ("*", "*", "")


class RecordingCluster(RecordingChannel):
    """A `RecordingChannel` over a channel to a cluster."""

    @override
    def _wrote(self, id: Any, request: Any, sent: float, outcome: str, digest: str, reply: Any) -> None:
        if reply is None or not getattr(reply, "unchanged", False):
            super()._wrote(id, request, sent, outcome, digest, reply)


class ClusterHistory:
    """The facts of programs on a cluster until it is put back to a backup.

    Attributes:
        facts: the facts, in order.
    """

    def __init__(self, store_id: str, began: int) -> None:
        """Begin at a revision."""
        self._store_id, self._began = store_id, began
        self.facts: list[Fact] = []

    def add(self, fact: Fact) -> None:
        """Add a fact."""
        self.facts.append(fact)

    def violations(self, commits: Sequence[Commit], head: int) -> list[Violation]:
        """Judge everything, given the changes in etcd up to a revision."""
        lives = Lives(commit for commit in commits if commit.revision > self._began)
        facts: list[Fact] = list(self._of_etcd(commits, head))
        watches = {
            each.watch: _Watch(each, lives, self._store_id) for each in self.facts if isinstance(each, WatchOpened)
        }
        for fact in self.facts:
            if isinstance(fact, SnapshotDelivered | SnapshotEnded | ChangesDelivered | BookmarkDelivered):
                # A watch that was opened before this history began is left out.
                facts += watches[fact.watch].told(fact) if fact.watch in watches else ()
            elif isinstance(fact, ReadAnswered):
                facts.append(fact._replace(revision=lives.last_at(fact.kind, fact.key, fact.version, head)))
            else:
                facts.append(fact)
        return History(facts).violations()

    def _of_etcd(self, commits: Sequence[Commit], head: int) -> Iterable[Fact]:
        for kind in {each.kind for each in commits}:
            watch = f"etcd {kind[1]}"
            yield WatchOpened(watch, kind, _EVERYTHING, self._began)
            yield BookmarkDelivered(watch, self._store_id, self._began, True)
            before = [each for each in commits if each.kind == kind and each.revision <= self._began]
            there = {each.key: each for each in before}
            # A watch that resumes does not deliver the objects that exist already.
            opening = f"etcd before {kind[1]}"
            yield WatchOpened(opening, kind, _EVERYTHING, None)
            yield SnapshotDelivered(opening, tuple(_delivered(each) for each in there.values() if each.new is not None))
            yield SnapshotEnded(opening, self._store_id, self._began)
            for each in commits:
                if each.kind == kind and each.revision > self._began:
                    yield ChangesDelivered(watch, (_delivered(each),))
            yield BookmarkDelivered(watch, self._store_id, head, False)


def _delivered(commit: Commit) -> DeliveredResource:
    if commit.new is not None:
        return delivered_resource(commit.new)
    assert commit.old is not None
    return delivered_resource(commit.old)._replace(revision=commit.revision, digest="", deleted=True, metadata=())


class Lives:
    """The changes of each object, and how it came into a watch and left it again.

    To a watch by metadata, an object that has no longer what it selects is deleted.
    """

    def __init__(self, commits: Iterable[Commit]) -> None:
        self._commits = list(commits)
        self._changes: dict[tuple[Kind, Key], list[int]] = {}
        for each in self._commits:
            self._changes.setdefault((each.kind, each.key), []).append(each.revision)
        self._ended: dict[tuple[Kind, Entries], list[list[DeliveredResource]]] = {}
        self._given: set[tuple[Kind, Key, str]] = set()

    def last_at(self, kind: Kind, key: Key, version: int, head: int) -> int:
        """Return the last revision at which an object had a version."""
        changes = self._changes.get((kind, key), [])
        after = bisect_right(changes, version)
        return changes[after] - 1 if after < len(changes) else head

    def has(self, kind: Kind, change: DeliveredResource) -> bool:
        """Return True if there was a change at the revision of a deletion. Other changes say their own."""
        return not change.deleted or change.revision in self._changes.get((kind, change.key), ())

    def given(self, kind: Kind, selected: Entries, after: int, upto: int) -> list[DeliveredResource]:
        """Give the changes of the objects that came after one revision and were gone at another."""
        lives = self._lives(kind, selected)
        found = [each for life in lives if after < life[0].revision and life[-1].revision <= upto for each in life]
        self._given |= {(kind, each.key, each.uid) for each in found}
        return sorted(found, key=lambda each: each.revision)

    def is_given(self, kind: Kind, change: DeliveredResource) -> bool:
        """Return True if a change is one of those that were given."""
        return (kind, change.key, change.uid) in self._given

    def _lives(self, kind: Kind, selected: Entries) -> list[list[DeliveredResource]]:
        if (kind, selected) not in self._ended:
            ended = self._ended[kind, selected] = []
            open: dict[Key, list[DeliveredResource]] = {}
            for each in self._commits:
                if each.kind != kind:
                    continue
                if _is_selected(each.new, selected):
                    if each.key in open or not _is_selected(each.old, selected):
                        open.setdefault(each.key, []).append(_delivered(each))
                elif (life := open.pop(each.key, None)) is not None:
                    gone = life[-1]._replace(revision=each.revision, digest="", deleted=True, metadata=())
                    ended.append([*life, gone])
        return self._ended[kind, selected]


def _is_selected(resource: pb.Resource | None, selected: Entries) -> bool:
    return resource is not None and set(selected) <= set(resource.metadata.items())


class _Watch:
    def __init__(self, opened: WatchOpened, lives: Lives, store_id: str) -> None:
        self._opened, self._lives, self._store_id = opened, lives, store_id
        self._upto = opened.after or 0

    def told(self, fact: SnapshotDelivered | SnapshotEnded | ChangesDelivered | BookmarkDelivered) -> Iterable[Fact]:
        """Return a fact without late changes, after the changes that are moved before it."""
        if isinstance(fact, SnapshotDelivered):
            return [fact]
        if isinstance(fact, SnapshotEnded):
            self._upto = fact.revision
            return [fact]
        if isinstance(fact, BookmarkDelivered):
            before = [] if fact.resumed else self._before(fact.revision)
            self._upto = max(self._upto, fact.revision)
            return [*before, fact]
        kept: list[Fact] = []
        for change in fact.changes:
            if self._lives.is_given(self._opened.kind, change):
                if change.more or change.revision <= self._upto:
                    # It comes late.
                    continue
                if not self._lives.has(self._opened.kind, change):
                    # The last one that comes late has taken the place of a bookmark.
                    kept += self.told(BookmarkDelivered(fact.watch, self._store_id, change.revision, False))
                    continue
            self._upto = max(self._upto, change.revision)
            kept.append(ChangesDelivered(fact.watch, (change,)))
        return kept

    def _before(self, revision: int) -> list[Fact]:
        opened = self._opened
        lives = self._lives.given(opened.kind, opened.metadata, self._upto, revision)
        return [ChangesDelivered(opened.watch, (each,)) for each in lives]
