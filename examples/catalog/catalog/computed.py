"""Writes of computed resources: only what differs, and over the version that was read."""

from __future__ import annotations

from typing import TypeVar

import headway
from headway.protobuf import Payload

T = TypeVar("T", bound=Payload)

RETRIED = (headway.errors.Conflict, headway.errors.Fenced)
"""The refusals of a write that say nothing about the resource: another attempt, or another run, decides again."""


async def write_computed(rt: headway.Runtime, wanted: headway.Resource[T]) -> headway.Resource[T] | None:
    """Store a computed resource if it differs from the cached one, and return it as stored.

    If the cached one belongs to an earlier incarnation of the owner, return None: it is being deleted, and that change
    reconciles its key again. One that a user has made, without this owner, is replaced, because an owner cannot change.

    Raises:
        Conflict: the resource has changed since it was cached. Let the error propagate, so that the key is reconciled
            again.
    """
    stored = rt.cache.get(wanted.type, wanted.id)
    if stored is not None and stored.owner != wanted.owner:
        if stored.owner is not None and wanted.owner is not None and stored.owner.key == wanted.owner.key:
            return None
        await rt.client.delete(stored, version=stored.version)
        stored = None
    if stored is None:
        return await rt.client.create(wanted)
    return await rt.apply(wanted)


async def delete_computed(rt: headway.Runtime, stored: headway.Resource[T] | None) -> None:
    """Delete a computed resource, unless it has changed since it was cached, which raises Conflict."""
    if stored is not None and not stored.is_deleting:
        await rt.client.delete(stored, version=stored.version)


_MESSAGE = 1000
"""The most characters of a message. A store refuses a status with more than 64 KiB in all."""


def condition(type: str, state: bool, message: str, reason: str = "") -> headway.Condition:
    """Return a condition that is true or false. A message that quotes a very long name is cut off."""
    value = headway.ConditionState.TRUE if state else headway.ConditionState.FALSE
    return headway.Condition(type=type, state=value, reason=reason, message=message[:_MESSAGE])


def id_text(id: headway.ResourceId) -> str:
    """Return an id as Consul writes it in messages: ``catalog.v2beta1.Service/partition.namespace/name``."""
    return f"{id.type}/{id.partition}.{id.namespace}/{id.name}"
