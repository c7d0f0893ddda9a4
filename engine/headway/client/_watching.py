"""`Client.watch`."""

from __future__ import annotations

from typing import Annotated, TypeVar

from headway.base import Range, checked
from headway.client._arguments import milliseconds, range_searched
from headway.client._subscribing import Subscribing
from headway.client._watch import WatchStream
from headway.errors import InvalidArgument
from headway.protobuf import Payload
from headway.resource import Position, ResourceType, ScopedType, pb

T = TypeVar("T", bound=Payload)

checked_read = checked(
    InvalidArgument,
    partition="'default', or '*' for any",
    namespace="'default', or '*' for any",
    name_prefix="'team-'",
    filter="'color=red, size!=big'",
    min_revision="event.revision or int(resource.version)",
    resume_after="progress.position (a revision alone doesn't name its store)",
)
"""The decorator of functions that read several resources."""


class Watching(Subscribing):
    """The part of a client that watches."""

    @checked_read
    def watch(
        self,
        type: ResourceType[T] | ScopedType[T],
        *,
        partition: str = "*",
        namespace: str = "*",
        name_prefix: str = "",
        resume_after: Position | None = None,
        progress_interval: Annotated[float, Range(0, 3600, unit="seconds")] | None = None,
    ) -> WatchStream[T]:
        """Watch a type: ``async with client.watch(TEAM) as events: async for event in events: ...``

        The watch yields the existing resources, a SnapshotEnd, and then every change in order. To continue an earlier
        watch, pass its position as ``resume_after``; you then get only the later changes. While only other types
        change, Progress reports the store's position, at most every ``progress_interval`` seconds. The default is one
        second over a network, and 0 within the process.
        """
        if progress_interval is None:
            progress_interval = 0.0 if self._channel.knows_outcomes else 1.0
        searched = range_searched(type, partition, namespace, name_prefix)
        request = pb.WatchListRequest(
            tenancy=searched.tenancy,
            type=type.name.message(),
            name_prefix=searched.name_prefix,
            metadata_filter=searched.selector,
            resume_after=None if resume_after is None else resume_after.message(),
            bookmark_interval_ms=milliseconds(progress_interval),
            bookmarks=True,
        )
        if self._allow is not None:
            self._allow(request)
        # The caller may learn anything from it, at any time.
        self._unchanged = None
        return WatchStream(type, self._channel, request, self._metadata)
