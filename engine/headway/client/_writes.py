"""A client's writes: the interface to their owner, repeated creations, and the comparison with what is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import trio
from typing_extensions import override

from headway.errors import HeadwayError, InvalidArgument, NotHeadway, OutcomeUnknown, Unavailable
from headway.protobuf import Payload, equal
from headway.resource import Key, Position, Resource, ResourceType, new_create_token, pb, same_owner, uid_ending

T = TypeVar("T", bound=Payload)

_CREATE_WAITS = (0.1, 0.5, 2.0)
"""The seconds to wait before each further attempt of a creation."""


class Acknowledged(NamedTuple):
    """The reply to a write.

    A WriteStatus or Delete that had nothing to change was not committed. Its reply may be of another writer's revision.

    Attributes:
        stored: the resource with this key at ``position``, or None if there is none.
        position: the store's position in the reply.
        status_key: the key of the status, if it was a WriteStatus.
        deleted: True if it was a Delete.
    """

    type: ResourceType[Any]
    key: Key
    stored: pb.Resource | None
    position: Position
    status_key: str = ""
    deleted: bool = False


class Writes(Protocol):
    """The owner of a client's writes. A controller's run fences them and keeps its cache up to date with them (C5)."""

    @property
    def fence(self) -> pb.Fence | None:
        """The fence that the next write carries, or None."""
        ...

    @property
    def store_id(self) -> str:
        """The id of the store that the writer has read. Any other store rejects its writes. Empty means any store."""
        ...

    def acknowledged(self, write: Acknowledged) -> None:
        """Handle the reply to a write. It is called without a checkpoint before the client's method returns."""
        ...

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        """Wait until the writer's caches of other versions of this kind contain the write of this revision."""
        ...

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Handle a write with an unknown outcome. ``error`` is None after a cancellation or an unexpected exception."""
        ...

    def fenced(self, fence: pb.Fence | None) -> None:
        """Handle a write that was rejected because the stored fence is higher than this one."""
        ...


Allow = Callable[[str, Any], None]
"""A function called as ``allow(method, request)``. It raises if the client's owner may not make this call."""


class PlainWrites(Writes):
    """The `Writes` of a client without a controller: no fence, no cache and no owner. The caller gets all errors."""

    fence: pb.Fence | None = None
    store_id = ""

    @override
    def acknowledged(self, write: Acknowledged) -> None:
        pass

    @override
    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        pass

    @override
    def unknown(self, error: OutcomeUnknown | None) -> None:
        pass

    @override
    def fenced(self, fence: pb.Fence | None) -> None:
        pass


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
    attempts = len(_CREATE_WAITS) if repeats else 0
    for attempt in range(attempts + 1):
        if attempt:
            await trio.sleep(_CREATE_WAITS[attempt - 1])
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


async def stored_already(
    validate: Callable[[Resource[Any]], Awaitable[Resource[Any]]],
    type: ResourceType[Any],
    stored: pb.Resource,
    wanted: pb.Resource,
) -> bool:
    """Return True if writing the wanted resource would change nothing.

    If the two differ and the type has a mutate hook, ``validate`` asks the server for the result of the hook, and that
    is compared.
    """
    if _same_content(type, stored, wanted):
        return True
    if type.hooks.mutate is None:
        return False
    try:
        filled = await validate(type.view(wanted))
    except HeadwayError:
        # The write that follows reports the error, and whether it had an effect.
        return False
    return _same_content(type, stored, filled.message())


def _same_content(type: ResourceType[Any], stored: pb.Resource, wanted: pb.Resource) -> bool:
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
