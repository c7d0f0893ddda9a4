"""The items of the map queue: a change of a type, and the changes of a resource whose mapping has failed."""

from __future__ import annotations

from typing import NamedTuple

from headway.cache import Applied
from headway.resource import Key, TypeName


class MapItem(NamedTuple):
    """A change of a type."""

    revision: int
    order: int
    type: TypeName
    applied: Applied
    backlog: bool


class FailedChanges:
    """The changes of one resource whose mapping has failed.

    Attributes:
        changes: the changes, the oldest first; never empty.
        backlog: True if all of them belong to the backlog.
        failures: the number of consecutive failures to map them.
        due: when they are to be mapped again.
        lost: True if changes between these were dropped.
        since: the time of the first failure; 0 before the caller has set it.
        function: the name of the function that raised last.
        error: the class and message of what it raised.
    """

    MOST = 16
    """The number of changes of one resource that are kept while its mapping fails."""

    __slots__ = (*("backlog", "changes", "due", "error", "failures", "function", "lost", "order", "since", "type"),)

    def __init__(self, item: MapItem, due: float) -> None:
        self.type = item.type
        self.order = item.order
        self.changes = [item.applied]
        self.backlog = item.backlog
        self.failures = 1
        self.due = due
        self.lost = False
        self.since = 0.0
        self.function = self.error = ""

    @property
    def name(self) -> tuple[TypeName, Key]:
        """The resource, by its type and key."""
        return self.type, self.changes[0].key

    def add(self, item: MapItem) -> None:
        """Add a later change of the same resource."""
        self.backlog = self.backlog and item.backlog
        self.changes.append(item.applied)
        if len(self.changes) > self.MOST:
            last = item.applied
            # A change from nothing to nothing would map to nothing, and its mapper might raise.
            merged = last._replace(old=self.changes[0].old or last.old)
            # Perhaps no other state maps to the key that the last change moved the resource from.
            self.changes = [merged, last] if merged.old is not last.old else [last]
            self.lost = True
