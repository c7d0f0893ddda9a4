"""Preview what `apply` would do, with the server's defaults and checks, but without storing anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from headway.cli._exits import code_of, fail
from headway.client import Client
from headway.errors import HeadwayError
from headway.protobuf import equal
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, NAMESPACE, PARTITION, Resource


@dataclass(frozen=True)
class Preview:
    """The stored resource, and the resource that would be stored."""

    stored: Resource[Any] | None
    wanted: Resource[Any]
    differs: bool

    @property
    def outcome(self) -> str:
        """The outcome, as printed by `apply --dry-run`."""
        if not self.differs:
            return "unchanged"
        return "would be created" if self.stored is None else "would be changed"


async def previews(client: Client, resources: Sequence[Resource[Any]]) -> AsyncIterator[Preview]:
    """Yield a preview of each resource. Exit at the first one that the server rejects."""
    coming: set[tuple[str, str]] = set()
    for resource in resources:
        try:
            yield await _preview(client, resource, coming)
        except HeadwayError as error:
            fail(code_of(error), f"Error: {resource.id}: {error}")
        id = resource.id
        if resource.type.kind == NAMESPACE.kind:
            coming.add((id.partition, id.name))
        elif resource.type.kind == PARTITION.kind:
            coming.add((id.name, ""))


async def preview_over(client: Client, stored: Resource[Any], resource: Resource[Any]) -> Preview:
    """Return a preview for a resource whose stored form is known."""
    wanted = await client.validate(_as_applied(stored, resource))
    return Preview(stored, wanted, differs=_differs(stored, wanted))


async def _preview(client: Client, resource: Resource[Any], coming: set[tuple[str, str]]) -> Preview:
    stored = await client.get(resource.type, resource.id)
    if stored is None:
        id = resource.id
        if (id.partition, id.namespace) in coming or (id.partition, "") in coming:
            # The server would reject it, since its namespace doesn't exist yet. An earlier document creates it.
            return Preview(None, resource, differs=True)
        return Preview(None, await client.validate(resource), differs=True)
    return await preview_over(client, stored, resource)


def _as_applied(stored: Resource[Any], wanted: Resource[Any]) -> Resource[Any]:
    """Return the resource as `Client.apply` sends it: omitted finalizers, deletion marks and owners are kept."""
    message = wanted.message()
    before = stored.message()
    for reserved in (FINALIZERS, DELETION_TIMESTAMP):
        if reserved in before.metadata:
            message.metadata.setdefault(reserved, before.metadata[reserved])
    if message.owner is None:
        message.owner = before.owner
    return wanted.type.view(message)


def _differs(stored: Resource[Any], wanted: Resource[Any]) -> bool:
    before, after = stored.message(), wanted.message()
    if before.owner is not None and after.owner is not None and not after.owner.uid:
        after.owner.uid = before.owner.uid
    same = dict(before.metadata) == dict(after.metadata) and before.owner == after.owner
    return not (same and equal(stored.data, wanted.data))
