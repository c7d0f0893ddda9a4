"""Tombstones: the deletion of an owner stores one in the same commit, so that what it owned is deleted too."""

from __future__ import annotations

import datetime

from ulid_transform import ulid_now

from headway.protobuf import encode
from headway.resource import TOMBSTONE, AnyMessage, Tombstone, pb, resource_key
from headway.service._refusals import precondition
from headway.storage import Backend, Put

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
        metadata={GENERATED_AT: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")},
        data=AnyMessage(type_url=TOMBSTONE.type_url, value=encode(Tombstone(owner=stored.id))),
    )
    return Put(TOMBSTONE.kind, resource_key(tombstone), tombstone, "")


async def check_done(backend: Backend, tombstone: pb.Resource) -> None:
    """Refuse to delete a tombstone while its owner's uid still owns anything: nothing else would ever look for that."""
    owner = TOMBSTONE.view(tombstone).data.owner
    owned, _ = await backend.list_by_owner("" if owner is None else owner.uid)
    if owned:
        raise precondition(
            f"{tombstone.id.name if tombstone.id else ''} is the tombstone of an owner that still owns "
            f"{len(owned)} resources; it is removed after them"
        )
