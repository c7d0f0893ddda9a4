"""Pending removals: what the write that takes a marked resource's last finalizer stores beside it.

It is a tombstone that comes before its owner has gone. The reaper, which knows tombstones alone, removes the owner: it
needs neither a cache nor a scan of every type.
"""

from __future__ import annotations

from ulid_transform import ulid_now

from headway.resource import (
    TOMBSTONE,
    AnyMessage,
    Key,
    Tombstone,
    encode,
    finalizers,
    is_marked,
    pb,
    resource_key,
)
from headway.storage import Backend, Operation, Put, Remove


def removal_after(updated: pb.Resource) -> tuple[Operation, ...]:
    """Return what a write stores besides a resource: a pending removal, if it is marked and nothing holds it.

    It is never there before: what is marked and not held can't be written any more.
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
    """Return what the removal of a resource removes besides it: the pending one that stands for it, if there is one."""
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
    # After the uid, so that any resource's name will do.
    return f"removal-{id.uid.lower()}"
