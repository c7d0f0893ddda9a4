"""The comparison of a resource to be written with the stored one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headway.errors import HeadwayError
from headway.protobuf import equal
from headway.resource import Resource, ResourceType, pb, same_owner

Validate = Callable[[Resource[Any]], Awaitable[Resource[Any]]]


async def stored_already(validate: Validate, type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Return True if writing the wanted resource would change nothing.

    If the two differ and the type has a mutate hook, ``validate`` asks the server for the result of the hook, and that
    is compared.
    """
    if same_content(type, stored, wanted):
        return True
    if type.hooks.mutate is None:
        return False
    try:
        filled = await validate(type.view(wanted))
    except HeadwayError:
        # The write that follows reports the error, and whether it had an effect.
        return False
    return same_content(type, stored, filled.message())


def same_content(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Return True if writing the wanted resource would change nothing.

    An owner without a uid matches the stored owner of that name.
    """
    if stored.metadata != wanted.metadata:
        return False
    if not same_owner(wanted.owner, stored.owner):
        return False
    if stored.data == wanted.data:
        return True
    # Equal messages may differ in their bytes, for example in the order of a map.
    return equal(type.view(stored).data, type.view(wanted).data)
