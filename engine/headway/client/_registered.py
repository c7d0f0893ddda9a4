"""Conversion of a reply's resources to the versions that are registered here."""

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
    """Return the resources as registered types, without those that can't be converted."""
    found: list[Resource[Any]] = []
    for number, message in enumerate(messages, 1):
        made = await _in_registered_version(client, registry, message)
        if made is not None:
            found.append(made)
        if number % TURN == 0:
            await trio.lowlevel.checkpoint()
    return found


async def _in_registered_version(client: Client, registry: Registry, message: pb.Resource) -> Resource[Any] | None:
    """Return the resource as a registered type, or None if it can't be converted. It may take another call."""
    id = resource_id(message.id)
    if id.type in registry:
        return registry.resolve(id.type).view(message)
    for type in registry:
        if type.kind == id.type.unversioned:
            try:
                return await client.get(type, id._replace(type=type.name))
            except (InvalidArgument, PermissionDenied):
                # The server can't convert to that version, or the caller may not read it.
                continue
    return None
