"""The events of all resources, the newest first, in steps of bounded work."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

from headway.errors import PayloadError
from headway.resource import EVENT, Entry, ResourceId, pb, resource_id

SHOWN = 200
"""The number of events that one answer shows."""
STEP = 2000
"""The number of resources with events that one request examines. Each may have 20 events, which are decoded."""
AT_ONCE = 50
"""The number of them between two checkpoints. Those with 20 events each take about 10 milliseconds."""


class EventSearch(NamedTuple):
    """A search for the events of resources whose kind or name contains ``text``, within a part of the store.

    Attributes:
        warnings: True for warnings only.
        cursor: where the search goes on, from the answer before.
    """

    partition: str
    namespace: str
    text: str
    warnings: bool
    cursor: str

    @property
    def tenancy(self) -> pb.Tenancy:
        """The tenancy to search. A unit that is left out is any."""
        return pb.Tenancy(partition=self.partition or "*", namespace=self.namespace or "*")


class Newest:
    """The newest events among those that are added."""

    def __init__(self, search: EventSearch) -> None:
        self._search = search
        self._added = 0
        # By time, and then by a number, because entries cannot be compared.
        self._kept: list[tuple[float, int, ResourceId, Entry]] = []

    def add(self, resource: pb.Resource) -> None:
        """Add the events of a resource of type Event."""
        of = None if resource.owner is None else resource_id(resource.owner)
        if of is None or self._search.text.lower() not in f"{of.type.kind} {of.name}".lower():
            return
        try:
            entries = EVENT.view(resource).data.entries
        except PayloadError:
            return
        for each in entries:
            if each.warning or not self._search.warnings:
                self._added += 1
                at = 0.0 if each.last is None else each.last.timestamp()
                (heapq.heappush if len(self._kept) < SHOWN else heapq.heappushpop)(
                    self._kept, (at, -self._added, of, each)
                )

    def shown(self) -> list[dict[str, Any]]:
        """Return the events as JSON, the newest first."""
        return [
            {
                "resource": {
                    "type": str(of.type),
                    "partition": of.partition,
                    "namespace": of.namespace,
                    "name": of.name,
                },
                "controller": each.controller,
                "reason": each.reason,
                "text": each.text,
                "warning": each.warning,
                "count": each.count,
                "first": None if each.first is None else each.first.timestamp(),
                "last": at or None,
            }
            for at, _, of, each in sorted(self._kept, reverse=True)
        ]

    @property
    def dropped(self) -> int:
        """The number of events that are not shown, because there are too many."""
        return self._added - len(self._kept)
