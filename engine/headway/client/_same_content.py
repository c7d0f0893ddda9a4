"""Whether a resource that is to be written says what is stored already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headway.errors import HeadwayError
from headway.resource import Resource, ResourceType, equal, pb, same_owner

Validate = Callable[[Resource[Any]], Awaitable[Resource[Any]]]


async def stored_already(validate: Validate, type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Return True if a write of what is wanted would change nothing, also by what the type's mutate hook makes of it.

    ``validate`` asks the server for that, only where the two differ as they are and the type has such a hook.
    """
    if same_content(type, stored, wanted):
        return True
    if type.hooks.mutate is None:
        return False
    try:
        filled = await validate(type.view(wanted))
    except HeadwayError:
        # Whatever is wrong, the write that follows says it, and says whether it had an effect.
        return False
    return same_content(type, stored, filled.message())


def same_content(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Return True if a write of what is wanted would change nothing. An owner without a uid is the stored one."""
    if stored.metadata != wanted.metadata:
        return False
    if not same_owner(wanted.owner, stored.owner):
        return False
    if stored.data == wanted.data:
        return True
    # The same message may have other bytes (the order of a map): compare what they mean.
    return equal(type.view(stored).data, type.view(wanted).data)
