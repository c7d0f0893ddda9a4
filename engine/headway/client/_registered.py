"""Resources of an answer that does not say in which version of its kind the caller knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from headway.client._in_turns import TURN
from headway.errors import InvalidArgument, PermissionDenied
from headway.resource import Registry, Resource, pb, resource_id

if TYPE_CHECKING:
    from headway.client._client import Client


async def in_registered_versions(
    client: Client, registry: Registry, messages: Sequence[pb.Resource]
) -> list[Resource[Any]]:
    """Return the resources as registered types, without those for which there is no way."""
    found: list[Resource[Any]] = []
    for number, message in enumerate(messages, 1):
        made = await _in_registered_version(client, registry, message)
        if made is not None:
            found.append(made)
        if number % TURN == 0:
            await trio.lowlevel.checkpoint()
    return found


async def _in_registered_version(client: Client, registry: Registry, message: pb.Resource) -> Resource[Any] | None:
    """Return the resource as a registered type, which may take another call; None where there is no way."""
    id = resource_id(message.id)
    if id.type in registry:
        return registry.resolve(id.type).view(message)
    for type in registry:
        if type.kind == id.type.unversioned:
            try:
                return await client.get(type, id._replace(type=type.name))
            except (InvalidArgument, PermissionDenied):
                # No converter leads there, or this caller may not read that version.
                continue
    return None
