"""The repetition of a creation with an unknown outcome, and what an apply keeps of the stored resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from headway.errors import AlreadyExists, HeadwayError, InvalidArgument, NotHeadway, OutcomeUnknown, Unavailable
from headway.protobuf import Payload, encode, equal, has_unknown_fields, keep_unknown_fields
from headway.resource import (
    DELETION_TIMESTAMP,
    FIELD_OWNERS,
    FINALIZERS,
    AnyMessage,
    Resource,
    ResourceType,
    new_create_token,
    pb,
    same_owner,
)

T = TypeVar("T", bound=Payload)

_RESERVED = (FINALIZERS, DELETION_TIMESTAMP, FIELD_OWNERS)
_CREATE_WAITS = (0.1, 0.5, 2.0)
"""The seconds to wait before each further attempt of a creation."""


async def create(resource: Resource[T], send: Callable[[str], Awaitable[Resource[T]]], *, repeats: bool) -> Resource[T]:
    """Send a creation with a token until its outcome is known, and return the stored resource.

    ``repeats`` is False for a client whose owner resolves unknown outcomes itself.
    """
    if resource.version:
        raise InvalidArgument(
            f"{resource.id} has been read, at version {resource.version}: create() takes what TYPE.new(...) returns"
        )
    token = new_create_token()
    first: OutcomeUnknown | None = None
    lost: OutcomeUnknown | None = None
    attempts = len(_CREATE_WAITS) if repeats else 0
    for attempt in range(attempts + 1):
        if attempt:
            await trio.sleep(_CREATE_WAITS[attempt - 1])
        try:
            stored = await send(token)
        except OutcomeUnknown as error:
            lost = error
            first = first or error
        except HeadwayError as error:
            if lost is None or isinstance(error, AlreadyExists):
                raise
            # This attempt had no effect, but an earlier one may have had.
            lost = OutcomeUnknown(f"{first}; sent again: {error}")
            if not isinstance(error, Unavailable):
                raise lost from error
        else:
            _check_created(resource, stored, token)
            return stored
    assert lost is not None
    raise lost


def _check_created(resource: Resource[T], stored: Resource[T], token: str) -> None:
    """Raise NotHeadway if the server treated the creation as a plain write."""
    if not resource.type.is_created_with(token, stored):
        raise NotHeadway(
            f"the server does not support create-only writes. It has stored {stored.id}, and may have replaced an "
            "existing resource of that name; use a server of the same version as this client"
        )


async def stored_already(
    validate: Callable[[Resource[Any]], Awaitable[Resource[Any]]],
    type: ResourceType[Any],
    stored: pb.Resource,
    wanted: pb.Resource,
) -> bool:
    """Give a resource to apply what it keeps of the stored one. Return True if writing it would change nothing.

    If the two differ and the type has a mutate hook, ``validate`` asks the server for the result of the hook, and that
    is compared.
    """
    if keep_stored(type, stored, wanted):
        return True
    if type.hooks.mutate is None:
        return False
    try:
        filled = await validate(Resource(type, wanted))
    except HeadwayError:
        # The write that follows reports the error, and whether it had an effect.
        return False
    # The hook of an older server may have made a new payload, without the fields that its program does not know.
    return merge_and_compare(type, stored, filled.message())


def keep_stored(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Give a resource to apply what it keeps of the stored one. Return True if writing it would change nothing.

    It keeps the finalizers, the deletion mark and the owner, as far as it has none of its own, unknown fields, and the
    owners of fields.
    """
    if type.owned_fields:
        # Only the service changes the owners of fields.
        wanted.metadata.pop(FIELD_OWNERS, None)
    for reserved in _RESERVED:
        if reserved in stored.metadata:
            wanted.metadata.setdefault(reserved, stored.metadata[reserved])
    if wanted.owner is None:
        wanted.owner = stored.owner
    return merge_and_compare(type, stored, wanted)


def merge_and_compare(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Give a resource to write the stored fields that its payload's class lacks, which a newer program has written.

    Return True if the write would then change nothing. An owner without a uid matches the stored owner of that name.
    """
    same = _keep_unknown_fields(type, stored, wanted)
    return same and stored.metadata == wanted.metadata and same_owner(wanted.owner, stored.owner)


def _keep_unknown_fields(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
    """Give a resource the unknown fields of the stored payload. Return True if the two payloads are then equal."""
    if equal(stored.data, wanted.data):
        return True
    there, given = Resource(type, stored).data, Resource(type, wanted).data
    # Equal messages may differ in their bytes, for example in the order of a map.
    if equal(there, given):
        return True
    if not has_unknown_fields(there):
        return False
    keep_unknown_fields(given, there)
    wanted.data = AnyMessage(type_url=type.type_url, value=encode(given))
    return equal(there, given)
