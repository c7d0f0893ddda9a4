"""The partition with a peering's copies: its creation, and the check that nothing else is in it."""

from __future__ import annotations

from headway._gen.headway.peering.v1 import Peering
from headway._gen.headway.tenancy.v1 import Partition
from headway.client import Client
from headway.errors import AlreadyExists, FailedPrecondition
from headway.peering._types import PEERING_FINALIZER, copies_partition
from headway.resource import PARTITION, Resource
from headway.storage import Backend, Within

OWNER_KEY = PEERING_FINALIZER
"""The metadata key of a partition that holds the uid of the Peering that it belongs to."""


async def check_free(backend: Backend, name: str) -> None:
    """Raise FailedPrecondition if the partition for the copies of a new peering exists, or holds resources."""
    partition = copies_partition(name)
    stored, _ = await backend.read(PARTITION.kind, ("", "", partition))
    if stored is not None:
        raise FailedPrecondition(_taken(partition, "exists already"))
    await check_empty(backend, partition)


async def check_empty(backend: Backend, partition: str) -> None:
    """Raise FailedPrecondition if there are resources in the partition, of any kind, known here or not."""
    for kind in await backend.kinds():
        found, _ = await backend.list(kind, Within(partition), limit=1)
        if found:
            raise FailedPrecondition(_taken(partition, f"holds resources, such as a {'.'.join(kind)}"))


def _taken(partition: str, why: str) -> str:
    return (
        f"partition {partition!r} is for the copies of this peering, but it {why}: wait for the deletion of an "
        "earlier peering to finish, or choose another name for the peering"
    )


async def ensure_partition(backend: Backend, client: Client, peering: Resource[Peering]) -> None:
    """Create the partition of a peering, unless it has one.

    Raises:
        FailedPrecondition: the partition is not this peering's, is being deleted, or holds resources.
    """
    name = copies_partition(peering.name)
    found = await client.get(PARTITION, name)
    if found is None:
        await check_empty(backend, name)
        description = f"copies from peering {peering.name}"
        wanted = PARTITION.new(name, Partition(description=description), metadata={OWNER_KEY: peering.id.uid})
        try:
            found = await client.create(wanted)
        except AlreadyExists:
            found = await client.get(PARTITION, name)
    if found is None or not belongs_to(found, peering) or found.is_deleting:
        raise FailedPrecondition(_taken(name, "exists already"))


def belongs_to(partition: Resource[Partition], peering: Resource[Peering]) -> bool:
    """Return True if the partition was created for this incarnation of the peering."""
    return partition.metadata.get(OWNER_KEY) == peering.id.uid
