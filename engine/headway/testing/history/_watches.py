"""The rules of a watch: ordered, unique, reliable, atomic, resumable, bookmarkable, and with a true snapshot. Pure."""

from __future__ import annotations

from headway.resource import Key, Kind
from headway.testing.history._facts import (
    BookmarkDelivered,
    ChangesDelivered,
    DeliveredResource,
    SnapshotDelivered,
    SnapshotEnded,
    WatchOpened,
)
from headway.testing.history._truth import Blame, Truth, place

WatchFact = SnapshotDelivered | SnapshotEnded | ChangesDelivered | BookmarkDelivered


class WatchJudge:
    """The judge of one watch.

    It first checks the watch by itself as facts come in, and then compares it with the truth.

    Attributes:
        upto: the last revision that the watch claims to have delivered completely; None before its first claim.
        store_ids: the store ids of its positions.
    """

    def __init__(self, opened: WatchOpened, blame: Blame) -> None:
        self._name = f"watch {opened.watch}"
        self._within = opened.within
        self._selected = opened.metadata
        self._after = opened.after
        self._blame = blame
        self.kind: Kind = opened.kind
        self.upto: int | None = None
        self.store_ids: set[str] = set()
        self._begun_at: int | None = None
        self._snapshot_at: int | None = None
        self._snapshot: dict[Key, DeliveredResource] = {}
        self._delivered: set[tuple[int, Key]] = set()
        # For a watch by metadata: the delivered changes of each key, in order.
        self._of_key: dict[Key, list[DeliveredResource]] = {}
        self._bookmark = 0
        self._open_commit = 0
        # The advances of the watch: (revision, "change" or "bookmark").
        self._steps: list[tuple[int, str]] = []

    def add(self, fact: WatchFact) -> None:
        """Judge the next fact of the watch."""
        match fact:
            case SnapshotDelivered(_, resources):
                self._add_snapshot(resources)
            case SnapshotEnded(_, store_id, revision):
                self.store_ids.add(store_id)
                if self.upto is not None:
                    self._blame("snapshot", f"{self._name} ended a snapshot at {revision}, but was already live")
                    return
                self._begun_at = self._snapshot_at = self.upto = revision
            case ChangesDelivered(_, changes):
                for change in changes:
                    self._add_change(change)
            case BookmarkDelivered(_, store_id, revision, resumed):
                self.store_ids.add(store_id)
                self._add_bookmark(revision, resumed)

    def covers(self, key: Key) -> bool:
        """Return True if the watch covers this key."""
        partition, namespace, prefix = self._within
        return _is(partition, key[0]) and _is(namespace, key[1]) and key[2].startswith(prefix)

    def selects(self, change: DeliveredResource) -> bool:
        """Return True if a change is a state that has the metadata that the watch selects."""
        return not change.deleted and set(self._selected) <= set(change.metadata)

    def _add_snapshot(self, resources: tuple[DeliveredResource, ...]) -> None:
        if self.upto is not None:
            self._blame("snapshot", f"{self._name} delivered a part of a snapshot, but was already live")
        for change in resources:
            if change.key in self._snapshot:
                self._blame("unique", f"{self._name} delivered {place(self.kind, change.key)} twice in its snapshot")
            self._snapshot[change.key] = change
            self._note_selected(change)

    def _add_change(self, change: DeliveredResource) -> None:
        where = f"{self._name} delivered {place(self.kind, change.key)} at {change.revision}"
        if self.upto is None:
            self._blame("snapshot", f"{where} before the end of its snapshot")
            return
        if (change.revision, change.key) in self._delivered:
            self._blame("unique", f"{where} twice")
        elif self._open_commit and change.revision != self._open_commit:
            self._blame("atomic", f"{where} in the middle of commit {self._open_commit}")
        elif self._snapshot_at is None and change.revision <= (self._begun_at or 0):
            self._blame("resumable", f"{where}, although it resumed after {self._begun_at}")
        elif change.revision <= self._bookmark:
            self._blame("bookmarkable", f"{where} after its bookmark {self._bookmark}")
        elif change.revision <= self.upto and not self._open_commit:
            rule = "atomic" if change.revision == self.upto and self._steps else "ordered"
            self._blame(rule, f"{where} after everything up to {self.upto}")
        self._delivered.add((change.revision, change.key))
        self._note_selected(change)
        self._open_commit = change.revision if change.more else 0
        if not change.more and change.revision > self.upto:
            self.upto = change.revision
            self._steps.append((change.revision, "change"))

    def _note_selected(self, change: DeliveredResource) -> None:
        if not self._selected:
            return
        where = f"{self._name} delivered {place(self.kind, change.key)} at {change.revision}"
        before = self._of_key.setdefault(change.key, [])
        if not change.deleted and not self.selects(change):
            self._blame("selected", f"{where}, which does not have the metadata that it selects")
        elif change.deleted and (before[-1].deleted if before else self._snapshot_at is not None):
            self._blame("selected", f"{where} as deleted, but had not delivered it before")
        before.append(change)

    def _add_bookmark(self, revision: int, resumed: bool) -> None:
        if self.upto is None:
            if not resumed or self._after is None:
                self._blame("snapshot", f"{self._name} delivered a bookmark before the end of its snapshot")
                return
            self._begun_at = self.upto = revision
            if revision != self._after:
                self._blame("resumable", f"{self._name} was to resume after {self._after} but resumed after {revision}")
                self._begun_at = min(revision, self._after)
        elif self._open_commit:
            self._blame(
                "atomic", f"{self._name} delivered bookmark {revision} in the middle of commit {self._open_commit}"
            )
        elif revision < self.upto:
            self._blame(
                "bookmarkable", f"{self._name} delivered bookmark {revision} after everything up to {self.upto}"
            )
        self._bookmark = max(self._bookmark, revision)
        if revision > self.upto:
            self.upto = revision
            self._steps.append((revision, "bookmark"))

    def compare(self, truth: Truth) -> None:
        """Report what the watch left out, and what its snapshot had wrong."""
        if self._snapshot_at is not None:
            self._compare_snapshot(truth, self._snapshot_at)
        if self._begun_at is None or self.upto is None:
            return
        for revision, key in truth.changes(self.kind, self._begun_at, self.upto):
            if self.covers(key):
                self._compare_change(truth, revision, key)
        for key, changes in self._of_key.items():
            for change in changes:
                known = truth.at(self.kind, key, change.revision)
                if change.deleted and known is not None and self.selects(known.change):
                    where = f"{place(self.kind, key)} at {change.revision}"
                    self._blame("agreed", f"{where}: {self._name} says that it is deleted, {known.by} has it")

    def _compare_change(self, truth: Truth, revision: int, key: Key) -> None:
        """Report a change that the watch left out.

        The truth may lack changes. So a state that the watch does not select must only not be what its reader has.
        """
        if (revision, key) in self._delivered:
            return
        known = truth.at(self.kind, key, revision)
        assert known is not None
        before = [each for each in self._of_key.get(key, ()) if each.revision < revision]
        has_it = bool(before) and not max(before, key=lambda each: each.revision).deleted
        if not self._selected or self.selects(known.change) or has_it:
            self._blame_missing(truth, revision, key)

    def _blame_missing(self, truth: Truth, revision: int, key: Key) -> None:
        known = truth.at(self.kind, key, revision)
        assert known is not None
        where = f"{self._name} left out {place(self.kind, key)} at {revision}, which {known.by} has"
        passed, by = next((step for step in self._steps if step[0] >= revision), (self.upto, "bookmark"))
        if (self.kind, key, revision) in truth.acknowledged and not known.by.startswith("watch"):
            rule = "durable"
        elif any(delivered == revision for delivered, _ in self._delivered):
            rule = "atomic"
        elif self._steps and (passed, by) == self._steps[0] and by == "change":
            rule = "gapless" if self._snapshot_at is not None else "resumable"
        else:
            rule = "bookmarkable" if by == "bookmark" else "reliable"
        self._blame(rule, where)

    def _compare_snapshot(self, truth: Truth, at: int) -> None:
        for key in truth.keys(self.kind):
            if not self.covers(key):
                continue
            latest = truth.latest(self.kind, key, at)
            there = latest.change.revision if latest is not None and self.selects(latest.change) else 0
            change = self._snapshot.get(key)
            if (change.revision if change is not None else 0) == there:
                continue
            had = (
                f"{place(self.kind, key)} at {change.revision}" if change is not None else f"no {place(self.kind, key)}"
            )
            rule, should = "snapshot", "which is later"
            if latest is not None:
                last = latest.change
                should = f"but {latest.by} has it {'deleted' if last.deleted else 'stored'} at {last.revision}"
                if (self.kind, key, last.revision) in truth.acknowledged:
                    rule = "durable"
            self._blame(rule, f"the snapshot of {self._name} at {at} had {had}, {should}")


def _is(wanted: str, actual: str) -> bool:
    """Return True if a part of a tenancy matches. An empty part stands for the server's default."""
    return wanted in ("*", actual) or (not wanted and actual == "default")
