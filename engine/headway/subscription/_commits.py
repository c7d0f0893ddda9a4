"""Joining the watches of several types into whole commits. Pure: no Trio, no I/O, no clock.

Rules:
1. A watch delivers the changes of a commit together, and then reports its frontier, the revision up to which it is
   complete. A commit is whole once the frontiers of all watches have reached it.
2. `take` returns whole commits in order of revision, each once. Within a commit, the deletions come first: a resource
   that is now stored as another version of its kind is deleted in one watch and stored in another, and still exists
   for a reader that ignores versions.
3. The watch with the lowest frontier is read next. Every watch reports every commit, if only by a bookmark. So reading
   the lowest one waits only when all watches stand at the same revision and the store has nothing newer.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.resource import Change


class CommitMerge:
    """The changes of several watches that are not whole commits yet.

    Args:
        frontiers: the revision up to which each watch is complete.
    """

    def __init__(self, frontiers: Sequence[int]) -> None:
        self._frontiers = list(frontiers)
        # Invariant: no change here is at or below a revision that `take` has passed.
        self._pending: dict[int, list[Change]] = {}

    @property
    def frontier(self) -> int:
        """The revision up to which every watch is complete."""
        return min(self._frontiers)

    def lowest(self) -> int:
        """Return the index of the watch to read next."""
        return self._frontiers.index(min(self._frontiers))

    def feed(self, index: int, changes: Sequence[Change], frontier: int) -> None:
        """Add the changes of a watch, which is complete up to ``frontier`` afterwards."""
        for change in changes:
            self._pending.setdefault(change.revision, []).append(change)
        self._frontiers[index] = max(self._frontiers[index], frontier)

    def take(self, limit: int | None = None) -> list[tuple[int, list[Change]]]:
        """Return the whole commits in order, up to a revision if there is a ``limit``."""
        whole = self.frontier if limit is None else min(self.frontier, limit)
        return [
            (revision, sorted(self._pending.pop(revision), key=lambda change: not change.deleted))
            for revision in sorted(self._pending)
            if revision <= whole
        ]
