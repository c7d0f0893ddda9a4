"""The form of a type: how stored resources are shown as the type, and how those written as it are stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from headway.base import Steps
from headway.resource import Changes, Position, ResourceType, SnapshotChunk, StreamItem, other_version_error, pb
from headway.storage import Watch, version_of

Type = ResourceType[Any]

View = Callable[[pb.Resource], pb.Resource | None]
"""A function that returns a stored resource as one type of its kind, or None if it cannot be shown as that type.

It returns the same object each time.
"""

Ready = Callable[[pb.Resource], Awaitable[None]]
"""A function that prepares a stored resource, so that its `View` returns it at once. The view must be asked soon."""

Update = Callable[[Type, pb.Resource, pb.Resource], Steps[pb.Resource]]
"""A function that returns what a write makes of a resource that is shown as a type."""

# Not a Python function, because it is called for each resource of a snapshot. Stored ids are complete.
_version: Callable[[pb.Resource], str] = attrgetter("id.type.group_version")


class Form:
    """The form of a type: its resources are stored as written, and shown as stored. An add-on may have others.

    Attributes:
        type: the type.
        as_written: True for this form.
        contained: what a list or a watch of the type contains, in the format of a position. Empty for this form.
        ready: prepares a resource; None if `view` always returns at once.
    """

    as_written = True
    contained = ""
    ready: Ready | None = None

    def __init__(self, type: Type) -> None:
        self.type = type

    def view(self, stored: pb.Resource) -> pb.Resource | None:
        """Return a stored resource as the type: see `View`."""
        return stored if version_of(stored) == self.type.name.version else None

    async def seen(self, stored: pb.Resource) -> pb.Resource | None:
        """Return a stored resource as the type, like `view`, with turns for other tasks."""
        return self.view(stored)

    def checked(self, stored: pb.Resource, seen: pb.Resource | None) -> pb.Resource:
        """Return the resource ``seen``. Refuse the request if it is None, so that the type cannot show it."""
        if seen is None:
            raise other_version_error(stored, self.type.name.version)
        return seen

    async def shown(self, stored: pb.Resource) -> pb.Resource:
        """Return a stored resource as the type, or as it is stored if it cannot be shown as the type."""
        return stored

    async def items(self, visible: Callable[[StreamItem], list[StreamItem]], item: StreamItem) -> list[StreamItem]:
        """Return what ``visible`` makes of an item of a stream by `view`."""
        return visible(item)

    def resumed(self, watch: Watch, _after: Position) -> Watch:
        """Return a watch that resumes after a position. Raises HistoryCompacted if it must begin with a snapshot."""
        return watch

    def carries(self, _resource: pb.Resource) -> bool:
        """Return True if a write leaves the payload as it is stored, because its writer could not read it."""
        return False

    async def created(self, resource: pb.Resource) -> pb.Resource:
        """Return a new resource as it will be stored."""
        return resource

    def replaced(self, stored: pb.Resource, resource: pb.Resource, update: Update) -> Steps[pb.Resource]:
        """Return what a write stores in place of a resource: the update of what its writer sees."""
        return update(self.type, stored, resource)

    async def check(self, stored: pb.Resource | None, resource: pb.Resource) -> None:
        """Refuse a resource that a write could not store: in place of the stored one, or as a new one."""


class Forms:
    """The forms of all types. All services over a store share one, because it may keep what it has made."""

    def of(self, type: Type) -> Form:
        """Return the form of a type, for one call."""
        return Form(type)

    def views(self, stored: pb.Resource) -> Iterable[pb.Resource]:
        """Return a stored resource as each type of its kind, the best first."""
        return (stored,)


def are_stored_as(resources: Sequence[pb.Resource], version: str) -> bool:
    """Return True if there are resources, and all of them are stored as this version of their kind."""
    return set(map(_version, resources)) == {version}


def is_stored_as(item: StreamItem, version: str) -> bool:
    """Return True if all resources of an item are stored as this version; False for items without resources."""
    if isinstance(item, Changes):
        for change in item.changes:
            if change.resource.id.type.group_version != version:  # type: ignore[union-attr]  # stored ids are whole
                break
        else:
            return True
        return False
    return isinstance(item, SnapshotChunk) and are_stored_as(item.resources, version)
