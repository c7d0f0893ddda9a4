"""Watches that resume over a change of a type's schema, and the states in the history that no program can read now."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.resource import (
    ANY_VERSIONS,
    Change,
    Changes,
    Position,
    StreamItem,
    TypeName,
    unreadable,
    with_payload,
)
from headway.storage import Watch


def resumed_watch(watch: Watch, after: Position, type: TypeName, replaced: Mapping[str, int]) -> Watch:
    """Return a watch that resumes after a position, or raise HistoryCompacted if it would show a former schema.

    With `ANY_VERSIONS`, it resumes nevertheless. Its reader wants the keys of the changes at least, so states that were
    written with a schema that was replaced arrive without a payload that can be read.

    Args:
        replaced: the versions whose schema has replaced an incompatible one, each with the last revision before that.
    """
    if not replaced:
        return watch
    if after.versions == ANY_VERSIONS:
        return _WithoutFormerSchemas(watch, replaced)
    revision = max(replaced.values())
    if after.revision < revision:
        raise HistoryCompacted(
            f"up to revision {revision}, {type} had an incompatible schema, so a watch can't resume after "
            f"{after.revision}: it must begin with a snapshot"
        )
    return watch


class _WithoutFormerSchemas(Watch):
    """A resumed watch whose states have no payload if their version had another schema at the time."""

    def __init__(self, inner: Watch, replaced: Mapping[str, int]) -> None:
        self._inner = inner
        self._replaced = replaced

    @override
    async def next(self) -> StreamItem:
        item = await self._inner.next()
        return Changes([self._legible(each) for each in item.changes]) if isinstance(item, Changes) else item

    def _legible(self, change: Change) -> Change:
        version = change.resource.id.type.group_version  # type: ignore[union-attr]  # stored ids are whole
        if change.revision > self._replaced.get(version, 0):
            return change
        return change._replace(resource=with_payload(change.resource, unreadable()))

    @override
    def close(self) -> None:
        self._inner.close()
