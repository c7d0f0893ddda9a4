"""The applies of a controller that need no call, because its cache shows that they would change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from headway.client._create_apply import keep_stored
from headway.errors import PayloadError
from headway.protobuf import Payload
from headway.resource import Resource, pb, shared_message

T = TypeVar("T", bound=Payload)

Cached = Callable[[Resource[Any], float], "pb.Resource | None"]
"""A function that returns the cached state of a resource, whole and of the same incarnation.

It returns None if the cache has none, is not complete up to the given revision, or may not be relied on now.
"""

IN_A_ROW = 8
"""The number of applies without a call after which other tasks run."""


class Unchanged:
    """Finds the applies that need no call.

    The state that is compared is never older than what the client has told its user: a user who has read a resource, or
    whose call was refused because of its state, would otherwise see an apply that ignores it. What a refused call has
    told is not known, so the next apply asks, and the answer gives its revision.
    """

    def __init__(self, cached: Cached) -> None:
        self._cached = cached
        self._read = 0.0
        # The calls that have failed so far, and how many of them had failed before a read that has been answered.
        self.failures = self._failures_before_read = 0
        self._in_a_row = 0

    def failed(self) -> None:
        """Note that a call has failed."""
        self.failures += 1

    def read(self, found: pb.Resource | None, at: pb.Position | None, failures: int) -> None:
        """Note what a read has found at a position: one resource, or many if it is None.

        ``failures`` is the number of calls that had failed when it began.
        """
        if at is None or found is None or failures > self._failures_before_read:
            self._read = max(self._read, math.inf if at is None else at.revision)
            self._failures_before_read = max(self._failures_before_read, failures)
        else:
            # Nothing is known of any other resource, whose type may be quiet and its cache far below the position.
            self._read = max(self._read, int(found.version))

    async def find(self, wanted: Resource[T]) -> Resource[T] | None:
        """Return the cached resource if an apply would change nothing, and None if the store has to be asked."""
        self._in_a_row += 1
        if self._in_a_row % IN_A_ROW:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        if self.failures > self._failures_before_read:
            return None
        stored = self._cached(wanted, self._read)
        try:
            same = stored is not None and keep_stored(wanted.type, stored, _draft(wanted))
        except PayloadError:
            # The apply reports it, if the store has it too.
            return None
        return Resource(wanted.type, stored) if same and stored is not None else None


def _draft(wanted: Resource[Any]) -> pb.Resource:
    """Return a resource as a message with metadata of its own. Its other parts are shared, and must not be changed."""
    its = shared_message(wanted)
    return wanted.changed(pb.Resource(id=its.id, owner=its.owner, metadata=dict(its.metadata), data=its.data))
