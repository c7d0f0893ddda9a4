"""Apply fields of a resource through a client, again if another writer was faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import trio

from headway.base import chance
from headway.errors import Conflict, FieldConflict, HeadwayError, NotFound, NotHeadway
from headway.fields._merge import Applied, Merged
from headway.protobuf import Payload
from headway.resource import FIELD_OWNERS, Resource, ResourceId, ResourceType, pb

T = TypeVar("T", bound=Payload)

_ATTEMPTS = 64
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25

Same = Callable[[ResourceType[Any], pb.Resource, pb.Resource], bool]
Cached = Callable[[Resource[Any], Same], Awaitable[Resource[Any] | None]]


class Sends(Protocol):
    """The calls of a client that an apply makes."""

    async def get(self, type: ResourceType[T], id: ResourceId, /) -> Resource[T] | None:
        """Return the stored resource, or None."""
        ...

    async def validate(self, resource: Resource[T], /) -> Resource[T]:
        """Return the resource as `write` would store it."""
        ...

    async def create(self, resource: Resource[T], /) -> Resource[T]:
        """Store a new resource, and return it as stored."""
        ...

    async def write(self, resource: Resource[T], /) -> Resource[T]:
        """Store a resource, and return it as stored."""
        ...


async def apply_fields(
    client: Sends, cached: Cached | None, applied: Applied[T], *, knows_hooks: bool = True
) -> Resource[T]:
    """Store the applied fields, and return the resource as stored. Each attempt begins with what is stored then.

    Args:
        cached: returns the resource of an apply that needs no call; None if the client has no cache.
        knows_hooks: False if the type may have hooks that only the server knows.

    Raises:
        FieldConflict: another manager owns one of them with another value, and the apply does not take it over.
        NotFound: there is no resource, and no field for a new one.
    """
    given = applied.resource

    def same(type: ResourceType[T], stored: pb.Resource, _wanted: pb.Resource) -> bool:
        merged = applied.over(type.view(stored))
        return merged.changes_nothing(merged.resource)

    if cached is not None and (found := await cached(given, same)) is not None:
        return found
    for attempt in range(_ATTEMPTS):
        current = await client.get(given.type, given.id)
        if current is None and not applied.paths:
            raise NotFound(f"{given.id} not found, so there is nothing to give up: list fields to create it")
        merged = applied.over(current)
        after = await as_stored(client, merged, knows_hooks=knows_hooks)
        if not applied.force:
            merged.check(after)
        if current is not None and merged.changes_nothing(after):
            return current
        # Without a version, a given uid refuses any other incarnation.
        send = client.create if current is None and not given.uid else client.write
        try:
            return _checked(await send(merged.to_write()), merged)
        except FieldConflict:
            raise
        except Conflict:
            # Many managers may share a resource, and one of those that write at the same time succeeds.
            await trio.sleep(chance.uniform(0, min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)))
    raise Conflict(f"{given.id} kept being changed by others while it was applied")


async def as_stored(client: Sends, merged: Merged[T], *, knows_hooks: bool) -> Resource[T]:
    """Return the resource as the server would store it. Only the type's mutate hook makes a difference."""
    made = merged.resource
    has_hook = made.type.hooks.mutate is not None or not knows_hooks
    if not has_hook or merged.current is None or merged.changes_nothing(made):
        return made
    try:
        return await client.validate(made)
    except HeadwayError:
        # The write that follows reports the error, and whether it had an effect.
        return made


def _checked(stored: Resource[T], merged: Merged[Any]) -> Resource[T]:
    """Return the stored resource. Raise NotHeadway if the server does not keep its owners."""
    request, entry = merged.request, stored.metadata.get(FIELD_OWNERS)
    # The answer to a creation that was sent again may be of a later state, in which the manager owns less.
    if entry is None and request.paths:
        raise NotHeadway(
            f"a mutate hook of {stored.type.name} has removed the entry {FIELD_OWNERS} of the metadata. The server has "
            f"stored {stored.id}, whose fields have no owner now; let the hook keep the entry"
        )
    if entry == request.text():
        raise NotHeadway(
            f"the server keeps no owners of the fields of {stored.type.name}. It has stored {stored.id}, with the "
            "other fields as they were; declare the type with owned_fields=True in the server's program, too"
        )
    return stored
