"""The resources that were stored last, which can be read without a thread. Pure: no Trio, no I/O, no clock."""

from __future__ import annotations

from headway.resource import Key, Kind, pb

MOST_RECENT = 4 << 20
"""The maximum number of bytes of these resources."""

_ENTRY = 1500
"""Bytes of memory of a small resource beside its encoding: its messages, its key, and its entry."""


class RecentResources:
    """The resources that were stored last, each in its latest state. The oldest are dropped first.

    Only this process writes to the file, so they are what the file holds. Who writes a resource has often written it
    before, and what a write reads would otherwise take as long as the rest of it.
    """

    def __init__(self) -> None:
        # In the order of their last writes, each with its bytes.
        self._stored: dict[tuple[Kind, Key], tuple[pb.Resource, int]] = {}
        self._bytes = 0

    def find(self, kind: Kind, key: Key) -> pb.Resource | None:
        """Return the stored resource. None says nothing: the file may have it."""
        found = self._stored.get((kind, key))
        return None if found is None else found[0]

    def put(self, kind: Kind, key: Key, resource: pb.Resource, size: int) -> None:
        """Note that a resource has been stored, and the size of its encoding."""
        self.remove(kind, key)
        self._stored[kind, key] = resource, size + _ENTRY
        self._bytes += size + _ENTRY
        while self._bytes > MOST_RECENT:
            self.remove(*next(iter(self._stored)))

    def remove(self, kind: Kind, key: Key) -> None:
        """Note that a resource has been deleted, or drop it."""
        found = self._stored.pop((kind, key), None)
        if found is not None:
            self._bytes -= found[1]
