"""The newest statuses that a run knows, from which its blocks of conditions start."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from headway.cache import Cache
from headway.resource import Resource, ResourceId, pb, shared_message

KEPT = 1_000
"""The number of own statuses that are kept of resources outside the cache, those that were written last."""


class NewestStatuses:
    """The newest statuses that a run knows of resources, which may be newer than a resource that the program holds.

    The cache has them, because it contains the run's own writes (C5). Of a resource that is not cached, the run's own
    last statuses are kept.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        # The version of the whole resource, and its status, by the resource with its uid and by the key of the status.
        self._written: OrderedDict[tuple[ResourceId, str], tuple[int, pb.Status | None]] = OrderedDict()

    def get(self, resource: Resource[Any], key: str) -> pb.Status | None:
        """Return the newest status under ``key`` of this incarnation, which must not be changed, or None."""
        message = shared_message(resource)
        version, status = _number(message.version), message.status.get(key)
        cached = self._cache.find(resource)
        if cached is not None and _number(cached.version) > version:
            return cached.status.get(key)
        written_at, written = self._written.get((resource.id, key), (0, None))
        return written if written_at > version else status

    def note(self, written: Resource[Any], key: str) -> None:
        """Keep the status that a write has stored, unless the cache has the resource."""
        if self._cache.find(written) is not None:
            return
        message = shared_message(written)
        self._written[written.id, key] = _number(message.version), message.status.get(key)
        self._written.move_to_end((written.id, key))
        if len(self._written) > KEPT:
            self._written.popitem(last=False)


def _number(version: str) -> int:
    """Return a version as a number; 0 for a resource that is not stored."""
    return int(version) if version.isdecimal() else 0
