"""Pending removals, which are stored by the write that removes the last finalizer of a marked resource.

A pending removal is a tombstone stored before its owner is removed. The reaper, which only follows tombstones, then
removes the owner. It needs neither a cache nor a scan of every type.
"""

from __future__ import annotations

from ulid_transform import ulid_now

from headway.protobuf import encode
from headway.resource import TOMBSTONE, AnyMessage, Key, Tombstone, finalizers, is_marked, pb, resource_key
from headway.storage import Backend, Operation, Put, Remove


def removal_after(updated: pb.Resource) -> tuple[Operation, ...]:
    """Return the operations to add to a write: a pending removal if the resource is marked and has no finalizers.

    A pending removal cannot exist already: a marked resource without finalizers can no longer be written.
    """
    if not is_marked(updated.metadata) or finalizers(updated.metadata):
        return ()
    assert updated.id is not None
    removal = pb.Resource(
        id=pb.Id(uid=ulid_now(), name=_name(updated.id), type=TOMBSTONE.message, tenancy=updated.id.tenancy),
        generation=ulid_now(),
        data=AnyMessage(type_url=TOMBSTONE.type_url, value=encode(Tombstone(owner=updated.id, awaits_removal=True))),
    )
    return (Put(TOMBSTONE.kind, resource_key(removal), removal, ""),)


async def removal_with(backend: Backend, stored: pb.Resource) -> tuple[Operation, ...]:
    """Return the operations to add to a resource's removal: they remove its pending removal, if it has one."""
    if not is_marked(stored.metadata):
        return ()
    assert stored.id is not None
    partition, namespace, _ = resource_key(stored)
    key: Key = (partition, namespace, _name(stored.id))
    removal, _ = await backend.read(TOMBSTONE.kind, key)
    if removal is None or removal.id is None:
        return ()
    return (Remove(TOMBSTONE.kind, key, removal.id.uid, removal.version),)


def _name(id: pb.Id) -> str:
    # Named after the uid, so that any length of the resource's name will do.
    return f"removal-{id.uid.lower()}"
