"""Creation of resources. While the outcome is unknown, a creation is repeated; a token identifies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from headway.errors import InvalidArgument, NotHeadway, OutcomeUnknown, Unavailable
from headway.protobuf import Payload
from headway.resource import Resource, new_create_token, uid_ending

T = TypeVar("T", bound=Payload)

WAITS = (0.1, 0.5, 2.0)
"""The seconds to wait before each further attempt."""


async def create(resource: Resource[T], send: Callable[[str], Awaitable[Resource[T]]], *, repeats: bool) -> Resource[T]:
    """Send a creation with a token until its outcome is known, and return the stored resource.

    ``repeats`` is False for a client whose owner resolves unknown outcomes itself.
    """
    if resource.version:
        raise InvalidArgument(
            f"{resource.id} has been read, at version {resource.version}: create() takes what TYPE.new(...) returns"
        )
    token = new_create_token()
    lost: OutcomeUnknown | None = None
    attempts = len(WAITS) if repeats else 0
    for attempt in range(attempts + 1):
        if attempt:
            await trio.sleep(WAITS[attempt - 1])
        try:
            stored = await send(token)
        except OutcomeUnknown as error:
            lost = error
        except Unavailable as error:
            if lost is None:
                raise
            # This attempt had no effect, but an earlier one may have had.
            lost = OutcomeUnknown(f"{lost}; sent again: {error}")
        else:
            _check_created(resource, stored, token)
            return stored
    assert lost is not None
    raise lost


def _check_created(resource: Resource[T], stored: Resource[T], token: str) -> None:
    """Raise NotHeadway if the server treated the creation as a plain write."""
    if not stored.uid.endswith(uid_ending(token, resource.type.kind, stored.id.key)):
        raise NotHeadway(
            f"the server does not support create-only writes. It has stored {stored.id}, and may have replaced an "
            "existing resource of that name; use a server of the same version as this client"
        )
