"""The watches of a store that the service opens, and the states in its history that no program can read any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from headway.resource import (
    ANY_VERSIONS,
    Change,
    Changes,
    Position,
    ResourceType,
    StreamItem,
    Within,
    of_former_schema,
)
from headway.service._context import Context
from headway.service._position import check_versions
from headway.storage import Watch, open_watch


async def open_checked_watch(
    context: Context, type: ResourceType[Any], within: Within, contained: str, resume_after: Position | None
) -> Watch:
    """Open a watch of a type. Raise HistoryCompacted if it would resume one that contained other resources.

    With `ANY_VERSIONS`, it resumes nevertheless. Its reader wants the keys of the changes at least, so states that were
    written with a schema that was replaced arrive without a payload that can be read.
    """
    # First, because the store refuses a position of another store, whose revision and versions mean nothing here.
    watch = await open_watch(context.backend, type.kind, within, resume_after)
    if resume_after is None:
        return watch
    try:
        check_versions(type.name, contained, resume_after)
        if not (replaced := context.versions.replaced(type)):
            return watch
        if resume_after.versions == ANY_VERSIONS:
            return _WithoutFormerSchemas(watch, replaced)
        context.versions.check_schema(type, resume_after)
    except BaseException:
        watch.close()
        raise
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
        return change._replace(resource=of_former_schema(change.resource))

    @override
    def close(self) -> None:
        self._inner.close()
