"""The request of a stream that fills a cache."""

from __future__ import annotations

from typing import Any

from headway.cache import CachedType, range_of
from headway.resource import Position, Scope, pb


def watch_request(
    type: CachedType[Any],
    resume_after: Position | None = None,
    bookmark_interval_ms: int = 0,
    known: Position | None = None,
) -> pb.WatchListRequest:
    """Return the request that watches a type, or the scope of it.

    Args:
        bookmark_interval_ms: the minimum interval of bookmarks; 0 for no minimum.
        known: a position that the store must have had.
    """
    range = range_of(type)
    return pb.WatchListRequest(
        type=type.name.message(),
        tenancy=pb.Tenancy(
            partition="" if type.scope is Scope.CLUSTER else range.partition,
            namespace=range.namespace if type.scope in (Scope.NAMESPACE, Scope.UNDEFINED) else "",
        ),
        name_prefix=range.name_prefix,
        metadata_filter=range.selector,
        resume_after=None if resume_after is None else resume_after.message(),
        bookmark_interval_ms=bookmark_interval_ms,
        bookmarks=True,
        known=None if known is None or known == resume_after else known.message(),
    )
