"""The rules of deletion: marks, writes to a marked resource, pending removals, and tombstones."""

from __future__ import annotations

import datetime
from typing import Any

from ulid_transform import ulid_now

from headway.base import Steps, utc_now
from headway.errors import FailedPrecondition, InvalidArgument, PayloadError
from headway.protobuf import decoding, encode, equal
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    TOMBSTONE,
    AnyMessage,
    Key,
    ResourceType,
    Tombstone,
    finalizers,
    is_marked,
    pb,
    resource_id,
    resource_key,
)
from headway.storage import Backend, Operation, Put, Remove


def check_mark(resource: pb.Resource) -> None:
    """Refuse a mark that is not a valid timestamp."""
    mark = resource.metadata[DELETION_TIMESTAMP]
    if not _is_timestamp(mark):
        raise InvalidArgument(
            f"{resource_id(resource.id)}: metadata.{DELETION_TIMESTAMP} {mark!r} must be a timestamp such as "
            "'2024-02-02T10:00:00Z'; use Delete"
        )


def check_frozen(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> Steps[None]:
    """Refuse a change of a marked resource, except that its finalizers may be removed."""
    before, after = finalizers(stored.metadata), finalizers(updated.metadata)
    problems = yield from _changed_parts(type, stored, updated, ignore=FINALIZERS)
    if after - before:
        problems.append(f"adds finalizers {', '.join(sorted(after - before))}")
    elif not problems and not before - after:
        problems.append(f"removes none of its finalizers ({', '.join(sorted(before)) or 'it has none: use Delete'})")
    if problems:
        raise InvalidArgument(
            f"{resource_id(stored.id)} is marked for deletion: only finalizers may be removed from it now, "
            f"and this write {' and '.join(problems)}"
        )


def check_marking(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> Steps[None]:
    """Raise InvalidArgument if a write marks a resource for deletion and also changes something else."""
    problems = yield from _changed_parts(type, stored, updated, ignore=DELETION_TIMESTAMP)
    if problems:
        raise InvalidArgument(
            f"{resource_id(stored.id)}: a write that sets metadata.{DELETION_TIMESTAMP} must change nothing else, "
            f"but this one also {' and '.join(problems)}. To delete a resource, call Delete"
        )
    check_mark(updated)


def _changed_parts(
    type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource, *, ignore: str
) -> Steps[list[str]]:
    keys = stored.metadata.keys() | updated.metadata.keys()
    parts = [
        f"changes metadata.{key}"
        for key in sorted(keys)
        if key != ignore and stored.metadata.get(key) != updated.metadata.get(key)
    ]
    assert stored.id is not None
    assert updated.id is not None
    if stored.id.type != updated.id.type:
        parts.append("changes the type's version")
    elif not (yield from _same_data(type, stored, updated)):
        parts.append("changes data")
    return parts


def _same_data(type: ResourceType[Any], stored: pb.Resource, updated: pb.Resource) -> Steps[bool]:
    if stored.data is None or updated.data is None:
        return stored.data is updated.data
    if stored.data.value == updated.data.value:
        # The payload may have an older type name, which a write replaces.
        return True
    # A message that was read and written back may be encoded differently than by its first writer.
    try:
        before = yield from decoding(type.payload, stored.data.value)
        return equal(before, (yield from decoding(type.payload, updated.data.value)))
    except PayloadError:
        return False


def _is_timestamp(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def removal_after(updated: pb.Resource) -> tuple[Operation, ...]:
    """Return the operations to add to a write of a marked resource: a pending removal if it has no finalizers.

    A pending removal cannot exist already: a marked resource without finalizers can no longer be written.
    """
    if finalizers(updated.metadata):
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


GENERATED_AT = "generated_at"


def tombstone_of(stored: pb.Resource) -> Put:
    """Return the operation that stores the tombstone of a resource, for the commit that removes the resource.

    It is named after the uid, so that any length of the owner's name will do.
    """
    assert stored.id is not None
    uid = stored.id.uid
    tombstone = pb.Resource(
        id=pb.Id(uid=ulid_now(), name=f"tombstone-{uid.lower()}", type=TOMBSTONE.message, tenancy=stored.id.tenancy),
        generation=ulid_now(),
        metadata={GENERATED_AT: utc_now().isoformat(timespec="seconds")},
        data=AnyMessage(type_url=TOMBSTONE.type_url, value=encode(Tombstone(owner=stored.id))),
    )
    return Put(TOMBSTONE.kind, resource_key(tombstone), tombstone, "")


async def check_done(backend: Backend, tombstone: pb.Resource) -> None:
    """Refuse to delete a tombstone while its owner still owns resources, which are found by the tombstone only."""
    owner = TOMBSTONE.view(tombstone).data.owner
    owned, _ = await backend.list_by_owner("" if owner is None else owner.uid)
    if owned:
        raise FailedPrecondition(
            f"{tombstone.id.name if tombstone.id else ''} is the tombstone of an owner that still owns "
            f"{len(owned)} resources; it is removed after them"
        )
